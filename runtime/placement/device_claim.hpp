/// Prevents two worlds of separate processes from using one GPU, although the processes do not know of each other.
#pragma once

#include <troupe/device/driver.hpp>
#include <troupe/device/file_descriptor.hpp>
#include <troupe/device/time.hpp>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

namespace troupe {

/// Holds the claim of a process on the GPU that it uses. Every process of a world holds one, spares included.
///
/// Mechanism: a lock on a file in a folder that belongs to the user and that nobody else may write to. Other users
/// therefore cannot hold the claim. Processes of other users, and processes that do not share the folder (containers),
/// do not see each other.
/// Lifetime: the claim ends with this object or with the process, however that ends. Move-only.
class device_claim {
public:
  /// Creates an object without a claim.
  device_claim() noexcept = default;
  /// Claims \p device, the GPU's own name on this machine. \p world is the same for all processes of one world and
  /// differs between worlds. \p holder describes the claiming process in messages. If the folder cannot be written, no
  /// claim is made and a warning is logged. Errors: device_occupied, with both holders (the GPU belongs to another
  /// world); deadline_exceeded, with the name of the other process (it has kept the file locked for \p patience, so it
  /// is probably stopped).
  device_claim(const std::filesystem::path& folder, const std::string& device, const std::string& world,
               const std::string& holder, nanoseconds patience = std::chrono::seconds{5});

  [[nodiscard]] bool is_held() const noexcept { return static_cast<bool>(file_); }

private:
  file_descriptor file_;
};

/// Returns the name by which \p where is claimed: its PCI bus id on this machine. Empty for a simulated device, which
/// belongs to its driver alone.
[[nodiscard]] std::string name_to_claim(driver& api, device_id where);

/// Claims \p device for one of this process's runtimes until the result is released. Two runtimes on one GPU would have
/// two launchers and two orders for it. Errors: device_occupied. Threads: any.
[[nodiscard]] std::shared_ptr<void> claim_in_process(const std::string& device);

/// Returns the user's own folder for claims, in the first of /run/lock, /dev/shm and /tmp that is writable. The first
/// claim creates it. A folder of that name that belongs to another user is skipped with a warning that names that user.
[[nodiscard]] std::filesystem::path device_claims_folder();

} // namespace troupe
