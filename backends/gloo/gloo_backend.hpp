/// The Gloo backend: communicators between processes over TCP, which need no GPU, for tests, CI and CPU
/// clusters. Does not include Gloo's headers.
#pragma once

#include <troupe/runtime/configuration/configuration.hpp>

#include <memory>

namespace troupe {

class backend;

/// Returns whether this troupe was built with Gloo.
[[nodiscard]] bool has_gloo() noexcept;

/// Creates a backend whose communicators connect ranks over TCP, in one process or several. They serve devices of a
/// mock_driver or, with gloo_memory::device, of any driver.
///
/// Semantics: as NCCL's. Launches of a communicator run one after the other, in the order of the calls. Ranks that ask
/// for different operations wait indefinitely. If a peer has ended, or its communicator has failed or was aborted,
/// check() reports it as soon as an operation needs that peer. The ranks of a formation find each other through a
/// server in the process that made the unique id. The server keeps the formation for ten minutes, or until all ranks
/// have formed.
/// create() errors: invalid_argument (rank, world size, a unique id of another backend; with gloo_memory::host, a
/// device of another driver than the mock).
/// Errors: missing (built without Gloo), invalid_argument (options).
[[nodiscard]] std::shared_ptr<backend> make_gloo_backend(gloo_options options = {});

} // namespace troupe
