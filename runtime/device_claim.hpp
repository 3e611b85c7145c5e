/// Which world of processes a machine's GPU belongs to: told among processes that know nothing else of each other.
#pragma once

#include <troupe/runtime/launch/file_descriptor.hpp>

#include <filesystem>
#include <string>

namespace troupe {

/// Held by each process of a world, its spares included, on the GPU that it uses, until it goes or its process ends,
/// however that does. A file on the machine is locked, so processes that do not share the folder (containers) do not
/// see each other. Move-only.
class device_claim {
public:
  /// That of nobody.
  device_claim() noexcept = default;
  /// \p device: the GPU's own name on this machine. \p world: the same for all processes of one world and no other's.
  /// \p holder: who has it, for people. Where the folder cannot be written there is no claim, and the log says so.
  /// Errors: device_occupied, with both holders: the GPU is another world's.
  device_claim(const std::filesystem::path& folder, const std::string& device, const std::string& world,
               const std::string& holder);

  [[nodiscard]] bool is_held() const noexcept { return static_cast<bool>(file_); }

private:
  launch::file_descriptor file_;
};

/// Where all processes of a machine can lock files: the first that there is of /run/lock, /dev/shm and /tmp.
[[nodiscard]] std::filesystem::path device_claims_folder();

} // namespace troupe
