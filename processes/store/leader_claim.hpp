/// What an elected controller may do, by its own clock.
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/threads/boot_clock.hpp>
#include <troupe/processes/store/controller_store.hpp>

#include <atomic>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

/// The claim of an elected controller, as it knows it. It counts from the time at which a call was made, which is
/// earlier than that from which the store counts, and allows for clocks that run apart (lease_bound()). So while this
/// claim is valid, no other controller has been elected.
/// Threads: valid_until() and is_lost() from any, the others from one at a time.
class leader_claim {
public:
  /// Asks \p store for the claim, at \p now. Returns null if another controller has it. Errors: those of the store.
  [[nodiscard]] static std::unique_ptr<leader_claim>
  campaign(std::shared_ptr<controller_store> store, const std::string& leader, nanoseconds length, boot_time now);

  /// Returns until when this controller may grant leases.
  [[nodiscard]] boot_time valid_until() const noexcept { return valid_until_.load(std::memory_order_acquire); }
  /// Returns whether the store has refused the claim, or it has not been renewed in time: this controller decides
  /// nothing any more.
  [[nodiscard]] bool is_lost(boot_time now) const noexcept { return is_lost_ || now > valid_until(); }
  [[nodiscard]] const std::optional<std::string>& record() const noexcept { return claim_.record; }
  /// Returns how often renew() is to be called.
  [[nodiscard]] nanoseconds renewal_period() const noexcept { return claim_.length / 4; }

  /// Renews the claim, once. A store that does not answer changes nothing.
  void renew(boot_time now) noexcept;
  /// Writes a decision, once. Returns whether the store has it. If not, call it again, unless the claim is lost.
  [[nodiscard]] bool decide(const std::string& record) noexcept;
  /// Ends the claim, so that another controller is elected at once.
  void resign() noexcept;
  /// Returns why the latest call has failed; errc::none if the store has answered it.
  [[nodiscard]] const error& failure() const noexcept { return failure_; }

private:
  leader_claim(std::shared_ptr<controller_store> store, store_claim claim, boot_time asked);
  void note(boot_time asked) noexcept;

  const std::shared_ptr<controller_store> store_;
  const store_claim claim_;
  std::atomic<boot_time> valid_until_;
  std::atomic<bool> is_lost_ = false;
  error failure_;
};

} // namespace troupe
