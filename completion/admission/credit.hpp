/// Credit: quota of a world that is reserved for one client, and the charges of requests.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace troupe {

/// A number of requests and the size of their buffers.
struct pending_amount {
  std::size_t operations = 0; ///< Requests. A request to one rank or to the world, or a group, counts as one.
  std::size_t bytes = 0;      ///< Total size of the buffers that the requests name.

  friend bool operator==(const pending_amount&, const pending_amount&) = default;
};

/// An account to which requests are charged. It lives until all charges have been returned. Threads: any.
class quota_account {
public:
  quota_account() = default;
  quota_account(const quota_account&) = delete;
  quota_account& operator=(const quota_account&) = delete;
  virtual ~quota_account() = default;

  virtual void give_back(pending_amount what) noexcept = 0;
};

/// The charge of one request. It is returned once, explicitly or by the destructor.
class quota_charge {
public:
  quota_charge() noexcept = default;
  /// \p held keeps \p from alive. It may be empty if \p from keeps itself alive.
  quota_charge(quota_account& from, pending_amount what, std::shared_ptr<void> held = {}) noexcept
    : from_{&from}, what_{what}, held_{std::move(held)} {}
  quota_charge(quota_charge&& other) noexcept
    : from_{std::exchange(other.from_, nullptr)}, what_{other.what_}, held_{std::move(other.held_)} {}
  quota_charge& operator=(quota_charge&& other) noexcept {
    if (this != &other) {
      give_back();
      from_ = std::exchange(other.from_, nullptr);
      what_ = other.what_;
      held_ = std::move(other.held_);
    }
    return *this;
  }
  ~quota_charge() { give_back(); }

  void give_back() noexcept {
    if (quota_account* const from = std::exchange(from_, nullptr)) {
      from->give_back(what_);
      held_ = nullptr;
    }
  }

private:
  quota_account* from_ = nullptr;
  pending_amount what_;
  std::shared_ptr<void> held_;
};

/// Quota that is reserved for one client. Requests that name a credit are charged to it and not to the shared quota.
/// The charge returns to the credit with the outcome of the request. A credit therefore limits how many requests are
/// pending at the same time, not their total number. Such requests never get busy because of the world's limits, only
/// because as many requests as the credit allows are pending.
///
/// Lifetime: all copies are one credit. Its quota is returned when the last copy has been destroyed and no request
/// charged to it is pending. It may outlive its world.
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
