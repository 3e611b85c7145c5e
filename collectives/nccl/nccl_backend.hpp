/// The door to NCCL: how a program gets communicators for real GPUs without seeing an NCCL header.
#pragma once

#include <troupe/collectives/communicator.hpp>

#include <filesystem>
#include <memory>
#include <optional>

namespace troupe {

/// NCCL as found by nccl_library::open(\p library): that file and no other if given.
/// Errors: missing (not found, or built without CUDA), too_old, unsupported; the text names the remedy.
[[nodiscard]] std::shared_ptr<backend> make_nccl_backend(const std::optional<std::filesystem::path>& library = {});

} // namespace troupe
