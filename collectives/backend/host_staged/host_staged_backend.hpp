/// A backend of host memory for the memory of devices: what it moves is copied to the host and back.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>

#include <memory>

namespace troupe {

/// Communicators of \p inner, which works on pretend devices' memory, for devices of any driver. Each launch copies
/// what it reads into pinned host memory, has \p inner work there, and copies the results back, all in stream order:
/// nothing of a launch runs beside another, so it is for what must arrive rather than for what must be fast.
/// (docs/gloo.md) Pinned memory is taken as launches need it, and kept for later ones and later communicators: the
/// first of a size waits for it. What is launched cannot be captured. Errors: of create(): unsupported for devices
/// without word operations, and inner's.
[[nodiscard]] std::shared_ptr<backend> make_host_staged_backend(std::shared_ptr<backend> inner);

} // namespace troupe
