/// Credit: quota of a world that is reserved for one client.
#pragma once

#include <troupe/completion/admission/quota_charge.hpp>

#include <memory>
#include <utility>

namespace troupe {

/// Requests that name a credit are charged to it and not to the shared quota. The charge returns to the credit with the
/// outcome of the request. A credit therefore limits how many requests are pending at once, not their total number.
/// Such requests never get busy because of the world's limits, only because as many requests as the credit allows are
/// pending.
///
/// Lifetime: all copies are one credit. Its quota is returned when the last copy and the last request charged to it are
/// gone. It may outlive its world.
/// Threads: all functions may be called from any thread.
class credit {
public:
  class pool;

  /// Creates an empty credit. Requests with it are charged like requests without credit.
  credit() noexcept = default;
  /// Used by admission_quota.
  explicit credit(std::shared_ptr<pool> reserved) noexcept : pool_{std::move(reserved)} {}

  [[nodiscard]] explicit operator bool() const noexcept { return pool_ != nullptr; }
  /// Returns the reserved amount; zero for an empty credit.
  [[nodiscard]] pending_amount size() const noexcept;
  /// Returns the shared state. Not for users.
  [[nodiscard]] const std::shared_ptr<pool>& reserved() const noexcept { return pool_; }

private:
  std::shared_ptr<pool> pool_;
};

} // namespace troupe
