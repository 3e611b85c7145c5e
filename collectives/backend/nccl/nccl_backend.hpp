/// Creates the NCCL backend: communicators for real GPUs, without NCCL's header.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/nccl/nccl_options.hpp>

#include <filesystem>
#include <memory>
#include <optional>

namespace troupe {

/// Creates the backend for the library that nccl_library::open(\p library) finds. If \p library is given, only that
/// file is tried. Communicators are made with \p options.
/// Errors: missing (not found, or built without CUDA), too_old (the library, or for one of the options),
/// invalid_argument (an option, or an option that the environment contradicts), unsupported. The text names the remedy.
[[nodiscard]] std::shared_ptr<backend> make_nccl_backend(const std::optional<std::filesystem::path>& library = {},
                                                         nccl_options options = {});

} // namespace troupe
