/// Which world of processes a machine's GPU belongs to: told among processes that know nothing else of each other.
#pragma once

#include <troupe/device/driver.hpp>
#include <troupe/device/time.hpp>
#include <troupe/runtime/launch/file_descriptor.hpp>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

namespace troupe {

/// Held by each process of a world, its spares included, on the GPU that it uses, until it goes or its process ends,
/// however that does. A file on the machine is locked, in a folder of the user's own that nobody else may write to: so
/// no other user can keep a claim, and processes of other users, or that do not share the folder (containers), do not
/// see each other. Move-only.
class device_claim {
public:
  /// That of nobody.
  device_claim() noexcept = default;
  /// \p device: the GPU's own name on this machine. \p world: the same for all processes of one world and no other's.
  /// \p holder: who has it, for people. Where the folder cannot be written there is no claim, and the log says so.
  /// Errors: device_occupied, with both holders: the GPU is another world's. deadline_exceeded, with who looks: another
  /// process has kept the file locked for \p patience while it looked, so it is stopped.
  device_claim(const std::filesystem::path& folder, const std::string& device, const std::string& world,
               const std::string& holder, nanoseconds patience = std::chrono::seconds{5});

  [[nodiscard]] bool is_held() const noexcept { return static_cast<bool>(file_); }

private:
  launch::file_descriptor file_;
};

/// The name by which \p where is claimed: its own on this machine; empty for a pretend device, which is its driver's
/// alone.
[[nodiscard]] std::string name_to_claim(driver& api, device_id where);

/// Of one runtime among those of this process, until the result goes. Two runtimes on one GPU would be two launchers
/// and two orders for it. Errors: device_occupied. Threads: any.
[[nodiscard]] std::shared_ptr<void> claim_in_process(const std::string& device);

/// The user's own folder in the first that there is of /run/lock, /dev/shm and /tmp; made with the first claim. One of
/// that name that is another user's is passed over, and the log says whose it is.
[[nodiscard]] std::filesystem::path device_claims_folder();

} // namespace troupe
