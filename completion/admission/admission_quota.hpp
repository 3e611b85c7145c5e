/// Limits the requests of a world's clients that are pending, that is, accepted and not yet answered.
#pragma once

#include <troupe/completion/admission/credit.hpp>
#include <troupe/completion/completion_settings.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/poller/poller.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/device/process_mark.hpp>

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

namespace troupe {

/// A counter with an upper limit. Threads: all functions may be called from any thread. Operations that change the
/// count are sequentially consistent, so that a thread that returns quota and a thread that waits for it notice each
/// other.
class bounded_count {
public:
  /// Adds \p by unless the sum would exceed \p limit; 0 means no limit. Returns whether it was added. A failed call
  /// changes nothing, not even temporarily.
  [[nodiscard]] bool take(std::size_t by, std::size_t limit) noexcept {
    std::size_t now = count_.load(std::memory_order_seq_cst);
    do
      if (limit > 0 && (by > limit || now > limit - by)) return false;
    while (!count_.compare_exchange_weak(now, now + by, std::memory_order_seq_cst));
    return true;
  }
  void give_back(std::size_t by) noexcept { count_.fetch_sub(by, std::memory_order_seq_cst); }
  [[nodiscard]] std::size_t now() const noexcept { return count_.load(std::memory_order_relaxed); }

private:
  std::atomic<std::size_t> count_{0};
};

/// Counts the pending requests beyond the first one of each pending_line, and the quota that is reserved as credit.
///
/// A request is charged when it is accepted, and the charge is returned with its answer. Both use only atomic counters.
/// A lock is taken only while a client waits for credit. Credit is granted first come, first served. While any client
/// waits, freed quota goes to the waiters. (docs/design/0021-back-pressure.md)
/// Threads: all functions may be called from any thread. The poller calls poll() for deadlines.
class admission_quota final : public polled, public std::enable_shared_from_this<admission_quota> {
public:
  using credit_sink = std::function<void(std::variant<credit, error>)>;

  admission_quota(pending_limits limits, std::weak_ptr<troupe::poller> poller);
  ~admission_quota() override;

  /// Returns whether requests need to be charged at all. counts_bytes() returns whether their bytes are charged too.
  [[nodiscard]] bool is_bounded() const noexcept { return limits_.operations > 0 || limits_.bytes > 0; }
  [[nodiscard]] bool counts_bytes() const noexcept { return limits_.bytes > 0; }
  [[nodiscard]] const pending_limits& limits() const noexcept { return limits_; }
  [[nodiscard]] pending_amount now() const noexcept;

  /// Takes quota for \p what immediately, or returns false if there is not enough or if others wait for it.
  [[nodiscard]] bool take(pending_amount what) noexcept;
  void give_back(pending_amount what) noexcept;
  /// Returns the error for a client whose take() failed.
  [[nodiscard]] error objection(pending_amount what) const;

  /// Calls \p to exactly once: with a credit of \p wanted as soon as enough quota is free and all earlier waiters have
  /// been served, or with an error, at \p until at the latest. \p to must neither block nor throw.
  void ask(pending_amount wanted, time_point until, credit_sink to);
  /// Answers all waiters, and all later calls of ask(), with \p why.
  void close(error why);
  /// Reverses close(): later calls of ask() are served again.
  void reopen();

  bool poll(time_point now, running_time running) override;
  /// Returns the number of clients that wait for credit.
  [[nodiscard]] std::size_t load() const noexcept override { return waiting_.load(std::memory_order_acquire); }

private:
  struct waiter {
    pending_amount wanted;
    time_point until;
    credit_sink to;
  };
  using lock_type = std::unique_lock<std::mutex>;

  [[nodiscard]] bool reserve(pending_amount what) noexcept;
  void serve() noexcept;
  void note_waiters();

  pending_limits limits_;
  std::weak_ptr<troupe::poller> poller_;
  alignas(64) bounded_count operations_;
  bounded_count bytes_;
  std::atomic<std::size_t> waiting_{0};
  std::atomic<time_point> due_{time_point::max()};

  alignas(64) std::mutex mutex_;
  std::deque<waiter> waiters_;
  error closed_;
  bool serving_ = false; ///< A thread is granting credit.
  bool again_ = false;   ///< That thread must check the waiters once more.
};

/// The account of one source of requests: a lane at a rank, or the world. The first pending request of each source is
/// not counted and never refused. Refusing it could deadlock: two ranks could each wait for quota that the other holds.
/// A client that is refused as busy therefore always has a pending reply to wait for.
///
/// Lifetime: the line lives until its owner has released it and none of its requests is pending. One counter counts
/// both, so keeping the line alive costs no further atomic operation.
/// Threads: all functions may be called from any thread. The owner must outlive calls of charge().
// NOLINTNEXTLINE(cppcoreguidelines-virtual-class-destructor): only release() deletes it
class pending_line final : public quota_account {
public:
  /// Releases the owner's share of a line instead of deleting the line.
  struct disown {
    void operator()(pending_line* one) const noexcept { one->release(owned); }
  };
  using owner = std::unique_ptr<pending_line, disown>;

  explicit pending_line(std::shared_ptr<admission_quota> where) noexcept : where_{std::move(where)} {}

  /// Charges the line for a request with \p bytes of buffers and stores the charge in \p reply. Errors: busy.
  [[nodiscard]] error charge(std::size_t bytes, reply_promise& reply);
  void give_back(pending_amount what) noexcept override;

private:
  static constexpr std::size_t owned = ~(~std::size_t{0} >> 1); ///< The owner's share of the count: its highest bit.

  ~pending_line() override = default;
  void release(std::size_t share) noexcept;

  std::shared_ptr<admission_quota> where_;
  std::atomic<std::size_t> pending_{owned}; ///< Pending requests, and the owner's share.
};
using pending_line_owner = pending_line::owner;
[[nodiscard]] pending_line_owner make_pending_line(std::shared_ptr<admission_quota> where);

/// Charges a request with \p bytes of buffers to \p by or, if \p by is empty, to \p asking, and stores the charge in \p
/// reply. Errors: busy; invalid_argument (credit of another world, or too small a credit).
[[nodiscard]] error charge(const admission_quota& where, pending_line& asking, const credit& by, std::size_t bytes,
                           reply_promise& reply);

/// Pays for the requests charged to one credit. Its destructor returns the quota.
class credit::pool final : public quota_account, public std::enable_shared_from_this<pool> {
public:
  /// Takes over \p size, which has already been reserved in \p where.
  pool(std::shared_ptr<admission_quota> where, pending_amount size) noexcept;
  pool(const pool&) = delete;
  pool& operator=(const pool&) = delete;
  ~pool() override;

  /// Charges a request with \p bytes of buffers and stores the charge in \p reply. Errors: busy (as many requests as
  /// the credit allows are pending), invalid_argument (the credit is too small for the request).
  [[nodiscard]] error charge(std::size_t bytes, reply_promise& reply);
  void give_back(pending_amount what) noexcept override;

  [[nodiscard]] pending_amount size() const noexcept { return size_; }
  [[nodiscard]] bool is_of(const admission_quota& where) const noexcept { return where_.get() == &where; }

private:
  std::shared_ptr<admission_quota> where_;
  const process_mark made_;
  pending_amount size_;
  bounded_count operations_;
  bounded_count bytes_;
};

} // namespace troupe
