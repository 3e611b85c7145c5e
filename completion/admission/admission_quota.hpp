/// How much a world's clients may leave pending: requests that have been accepted and not answered.
#pragma once

#include <troupe/completion/admission/bounded_count.hpp>
#include <troupe/completion/admission/credit.hpp>
#include <troupe/completion/admission/quota_charge.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/poller/polled.hpp>
#include <troupe/completion/poller/poller.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <variant>
#include <vector>

namespace troupe {

/// Of one world, in one process; 0 is no bound.
struct pending_limits {
  std::size_t operations = 65'536;
  std::size_t bytes = 0;
};

/// The account: what is pending beyond the first request of each line, and what has been set aside as credit.
///
/// A request is charged when it is accepted and given back with its answer, by counters alone; a lock is taken only
/// where somebody waits for credit. Credit is given first come, first served, and as long as anybody waits for it what
/// becomes free is theirs. (docs/design/0021-back-pressure.md)
/// Threads: safe from any. The poller calls it for deadlines.
class admission_quota final : public polled, public std::enable_shared_from_this<admission_quota> {
public:
  using credit_sink = std::function<void(std::variant<credit, error>)>;

  admission_quota(pending_limits limits, std::weak_ptr<troupe::poller> poller);
  ~admission_quota() override;

  /// Whether requests need be charged at all, and whether by their bytes too.
  [[nodiscard]] bool is_bounded() const noexcept { return limits_.operations > 0 || limits_.bytes > 0; }
  [[nodiscard]] bool counts_bytes() const noexcept { return limits_.bytes > 0; }
  [[nodiscard]] const pending_limits& limits() const noexcept { return limits_; }
  [[nodiscard]] pending_amount now() const noexcept;

  /// Takes room for \p what at once, or returns false: there is none, or others wait for it.
  [[nodiscard]] bool take(pending_amount what) noexcept;
  void give_back(pending_amount what) noexcept;
  /// Why take() did not: for who asks.
  [[nodiscard]] error objection(pending_amount what) const;

  /// Calls \p to once: with a credit of \p wanted as soon as there is room for it and those who asked before have
  /// theirs, else with the reason why not, at the latest at \p until. It must neither block nor throw.
  void ask(pending_amount wanted, time_point until, credit_sink to);
  /// Answers all who wait, and whoever asks later, with \p why.
  void close(error why);
  /// After close(): whoever asks from now on is served again.
  void reopen();

  bool poll(time_point now) override;
  /// Who waits for credit.
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

  alignas(64) std::mutex guard_;
  std::deque<waiter> waiters_;
  error closed_;
  bool serving_ = false; ///< Somebody hands out credit,
  bool again_ = false;   ///< and is to look once more.
};

/// Who asks in an order of its own: a lane at a rank, or the world. One request of it may always be pending and is not
/// counted: were it refused, ranks could wait for each other's room for ever; so whoever is answered busy has a reply
/// to come.
///
/// Lifetime: until its owner and all that is pending in it are gone, by the one count of both: a request costs its line
/// nothing more. Threads: safe from any; its owner outlives calls of charge().
class pending_line final : public payer {
public:
  /// Lets go of a line in the place of deleting it.
  struct disown {
    void operator()(pending_line* one) const noexcept { one->let_go(owned); }
  };
  using owner = std::unique_ptr<pending_line, disown>;

  explicit pending_line(std::shared_ptr<admission_quota> where) noexcept : where_{std::move(where)} {}

  /// Charges \p reply with a request that names \p bytes. Errors: busy.
  [[nodiscard]] error charge(std::size_t bytes, reply_promise& reply);
  void give_back(pending_amount what) noexcept override;

private:
  static constexpr std::size_t owned = ~(~std::size_t{0} >> 1); ///< The owner's share of the count: its highest bit.

  ~pending_line() override = default;
  void let_go(std::size_t share) noexcept;

  std::shared_ptr<admission_quota> where_;
  std::atomic<std::size_t> pending_{owned}; ///< Requests, and its owner.
};
using pending_line_owner = pending_line::owner;
[[nodiscard]] pending_line_owner make_pending_line(std::shared_ptr<admission_quota> where);

/// Charges \p reply with a request that names \p bytes, to \p by if that is a credit, else to \p asking. Errors: busy;
/// invalid_argument (credit of another world, or too small a one).
[[nodiscard]] error charge(const admission_quota& where, pending_line& asking, const credit& by, std::size_t bytes,
                           reply_promise& reply);

} // namespace troupe
