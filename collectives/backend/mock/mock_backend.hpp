/// Creates the mock backend: it computes real results on mock devices, and reports requests that would hang on a GPU.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/collective_settings.hpp>
#include <troupe/device/identity.hpp>

#include <memory>
#include <vector>

namespace troupe {

class mock_rendezvous;

/// Returns the place where the ranks of a communicator meet: that of \p self in the formation \p id. \p launches: false
/// if the ranks only join.
using mock_rendezvous_maker = std::shared_ptr<mock_rendezvous> (*)(const unique_id& id, rank self, int world_size,
                                                                   bool launches);

/// Creates a backend whose communicators serve devices of a mock_driver. All communicators of a process connect by
/// unique id, also across backend objects, drivers and runtimes.
///
/// Semantics: the k-th launch of a rank matches the k-th launch of every other rank, and runs once each is at the head
/// of its stream. If ranks launch different operations, they hang as on a GPU, and check() reports which rank launched
/// what (errc::mismatch). abort() of a rank ends its tasks without computing, so that work behind them completes
/// (completion is not success). Its peers hang until their own abort(). launch() does not wait for ready events of
/// operands: its caller enqueues those waits first.
/// create() errors: invalid_argument (rank or world size; a device that is not a mock device).
/// If the ranks of one formation come from backends with different \p results, the setting of rank 0 applies; with
/// ranks in processes, results are computed only if all settings say so. For a transfer, the sender's setting applies.
/// \p connect: null if all ranks are in this process; connect_over_processes: each may be in any process of this user
/// on this host, over shared memory. Supports all features except those in \p without: it refuses their calls like a
/// library that lacks them.
[[nodiscard]] std::shared_ptr<backend> make_mock_backend(std::vector<feature> without = {},
                                                         mock_results results = mock_results::computed,
                                                         mock_rendezvous_maker connect = nullptr);

} // namespace troupe
