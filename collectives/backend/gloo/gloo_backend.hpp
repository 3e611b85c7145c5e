/// Creates the Gloo backend: communicators between processes without GPUs, for tests, CI and CPU clusters.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/gloo/gloo_options.hpp>

#include <memory>

namespace troupe {

/// Returns whether this troupe was built with Gloo.
[[nodiscard]] bool has_gloo() noexcept;

/// Creates a backend whose communicators serve devices of a mock_driver, in one process or several, over TCP.
///
/// Semantics: as NCCL's. Launches of a communicator run one after the other, in the order of the calls. Ranks that ask
/// for different operations wait indefinitely. If a peer has ended, or its communicator has failed or was aborted,
/// check() reports it as soon as an operation needs that peer. The ranks of a formation find each other through a
/// server in the process that made the unique id. The server keeps the formation for ten minutes, or until all ranks
/// have formed.
/// create() errors: invalid_argument (rank, world size, a device of another driver than the mock, a unique id of
/// another backend).
/// Errors: missing (built without Gloo), invalid_argument (options).
[[nodiscard]] std::shared_ptr<backend> make_gloo_backend(gloo_options options = {});

} // namespace troupe
