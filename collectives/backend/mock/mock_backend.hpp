/// Collectives between the mock's pretend GPUs: real results, and a name for what would hang on real ones.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/mock/mock_results.hpp>

#include <memory>
#include <vector>

namespace troupe {

/// Communicators for devices of a mock_driver. All of a process meet by unique id, whichever backend object, driver
/// or runtime they come from.
///
/// Semantics: the k-th launch of a rank meets the k-th launch of every other rank once each has come to the head of
/// its stream. Ranks that ask for different things hang, as they would on a GPU, and check() says who asked for what
/// (errc::mismatch). abort() of a rank makes its tasks leave without computing, so that what is behind them fires
/// (completion is not success); its peers hang until their own abort(). Events in operands are not waited for here:
/// who launches puts those waits in front.
/// create() errors: invalid_argument (rank or world size; a device that is no mock's).
/// Where the ranks of one formation come from backends of different \p results, those of its first rank
/// count, and of a transfer the sender's.
/// It can do all that is asked, but pretends to lack \p without, and refuses what a library without it refuses.
[[nodiscard]] std::shared_ptr<backend> make_mock_backend(std::vector<feature> without = {},
                                                         mock_results results = mock_results::computed);

} // namespace troupe
