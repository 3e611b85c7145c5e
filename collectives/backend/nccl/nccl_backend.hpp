/// The door to NCCL: how a program gets communicators for real GPUs without seeing an NCCL header.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/nccl/nccl_options.hpp>

#include <filesystem>
#include <memory>
#include <optional>

namespace troupe {

/// NCCL as found by nccl_library::open(\p library): that file and no other if given. Its communicators are made with
/// \p options.
/// Errors: missing (not found, or built without CUDA), too_old (the library, or for one of the options),
/// invalid_argument (an option, or one that the environment contradicts), unsupported; the text names the remedy.
[[nodiscard]] std::shared_ptr<backend> make_nccl_backend(const std::optional<std::filesystem::path>& library = {},
                                                         nccl_options options = {});

} // namespace troupe
