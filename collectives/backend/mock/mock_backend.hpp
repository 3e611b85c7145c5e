/// Collectives between the mock's devices: they compute real results, and report requests that would hang on a GPU.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/collective_settings.hpp>

#include <memory>
#include <vector>

namespace troupe {

/// Makes communicators for devices of a mock_driver. All communicators of a process connect by unique id, whichever
/// backend object, driver or runtime they come from.
///
/// Semantics: the k-th launch of a rank meets the k-th launch of every other rank, once each is at the head of its
/// stream. If ranks launch different operations, they hang as on a GPU, and check() reports who launched what
/// (errc::mismatch). abort() of a rank makes its tasks end without computing, so that work behind them completes
/// (completion is not success). Its peers hang until their own abort(). Ready events of operands are not waited for
/// here: the caller of launch() enqueues those waits first.
/// create() errors: invalid_argument (rank or world size; a device that is not a mock device).
/// If the ranks of one formation come from backends with different \p results, the setting of its first rank applies;
/// for a transfer, that of the sender.
/// Supports all features except \p without, and then refuses what a library without them refuses.
[[nodiscard]] std::shared_ptr<backend> make_mock_backend(std::vector<feature> without = {},
                                                         mock_results results = mock_results::computed);

} // namespace troupe
