/// Creates the mock backend: it computes real results on mock devices, and reports requests that would hang on a GPU.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/collective_settings.hpp>

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// The processes in which the ranks of a mock communicator are.
enum class mock_ranks : std::uint8_t {
  in_this_process, ///< All in this process.
  in_processes     ///< Each in any process of this user on this host, over shared memory.
};

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
/// Supports all features except those in \p without: it refuses their calls like a library that lacks them.
[[nodiscard]] std::shared_ptr<backend> make_mock_backend(std::vector<feature> without = {},
                                                         mock_results results = mock_results::computed,
                                                         mock_ranks ranks = mock_ranks::in_this_process);

} // namespace troupe
