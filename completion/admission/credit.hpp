/// Room in a world that has been set aside for a client.
#pragma once

#include <troupe/completion/admission/quota_charge.hpp>

#include <memory>
#include <utility>

namespace troupe {

/// Requests that name it are taken out of it, not out of what others share, and come back into it with their outcomes:
/// it bounds how many of them are pending at once, not how many there are. They are never answered busy for the
/// world's bounds, only for this one, while as many as it is for are pending.
///
/// Lifetime: copies are one credit. What it set aside is given back when the last copy and the last request made under
/// it are gone. It may outlive its world. Threads: safe from any.
class credit {
public:
  class pool;

  /// None: requests pay as those that name no credit do.
  credit() noexcept = default;
  /// Made by admission_quota.
  explicit credit(std::shared_ptr<pool> reserved) noexcept : pool_{std::move(reserved)} {}

  [[nodiscard]] explicit operator bool() const noexcept { return pool_ != nullptr; }
  /// What it is for, at once; nothing where there is none.
  [[nodiscard]] pending_amount size() const noexcept;
  /// Not for users.
  [[nodiscard]] const std::shared_ptr<pool>& reserved() const noexcept { return pool_; }

private:
  std::shared_ptr<pool> pool_;
};

} // namespace troupe
