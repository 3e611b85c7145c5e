/// The door to Gloo: communicators between processes without GPUs, for tests, CI and CPU clusters.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/gloo/gloo_options.hpp>

#include <memory>

namespace troupe {

/// Whether this troupe was built with Gloo.
[[nodiscard]] bool has_gloo() noexcept;

/// Communicators for devices of a mock_driver, in one process or several, over TCP.
///
/// Semantics: as NCCL's. Launches of a communicator run in the order of the calls, one after the other; ranks that ask
/// for different things wait for ever. A peer that has gone, or whose communicator has failed or was aborted, is seen
/// by check() as soon as an operation needs it. The formation's meeting place is a server in the process that made the
/// unique id: it is there for ten minutes, or until all ranks have formed.
/// create() errors: invalid_argument (rank, world size, a device that is no mock's, a unique id of another backend).
/// Errors: missing (built without Gloo), invalid_argument (options).
[[nodiscard]] std::shared_ptr<backend> make_gloo_backend(gloo_options options = {});

} // namespace troupe
