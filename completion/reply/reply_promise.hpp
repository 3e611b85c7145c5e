/// Promises: move-only objects that represent the obligation to reply. A promise replies once, explicitly or through
/// its destructor (ONE-1).
#pragma once

#include <troupe/completion/admission/credit.hpp>
#include <troupe/completion/reply/outcome.hpp>
#include <troupe/completion/sources/recycling.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

/// One rank's part of a request in its stream.
struct launch_mark {
  troupe::rank rank{};
  troupe::ticket ticket{};
  troupe::epoch epoch{};
  shared_event behind{};    ///< Recorded directly behind the part and all parts launched together with it.
  std::uint64_t launch = 0; ///< The same number as completion::launch.
};

/// Receives a notification when a rank has enqueued its part of a request. Threads: called on the launcher's thread, so
/// it must not wait.
class launch_listener {
public:
  launch_listener() = default;
  launch_listener(const launch_listener&) = delete;
  launch_listener& operator=(const launch_listener&) = delete;
  virtual ~launch_listener() = default;

  /// Called before the outcome of the part can be delivered.
  virtual void enqueued(const launch_mark& mark) noexcept = 0;
};

/// The destination of an outcome: an actor's mailbox, a future, a group. Threads: each promise that refers to the sink
/// calls deliver() once, from any thread.
class outcome_sink : public recycled {
public:
  outcome_sink() = default;
  outcome_sink(const outcome_sink&) = delete;
  outcome_sink& operator=(const outcome_sink&) = delete;
  virtual ~outcome_sink() = default;

  virtual void deliver(outcome result) noexcept = 0;
  /// Called when a promise no longer needs the sink. A sink of several promises is destroyed with the last one.
  virtual void release() noexcept { delete this; }
  /// Returns the listener to be notified that the request has been enqueued; null for most sinks.
  [[nodiscard]] virtual std::shared_ptr<launch_listener> listener() const noexcept { return nullptr; }
};

/// Delivers exactly one outcome. Move-only, so it has one holder at any time. If destroyed without an outcome, it
/// delivers errc::abandoned with unknown outcome.
class reply_promise {
public:
  reply_promise() noexcept = default;
  explicit reply_promise(std::unique_ptr<outcome_sink> sink) noexcept : sink_{sink.release()} {}
  /// Refers to a sink that is not deleted but released through outcome_sink::release().
  explicit reply_promise(outcome_sink& shared) noexcept : sink_{&shared} {}
  reply_promise(reply_promise&& other) noexcept = default;
  reply_promise& operator=(reply_promise&& other) noexcept;
  ~reply_promise() { abandon(); }

  [[nodiscard]] bool pending() const noexcept { return sink_ != nullptr; }
  /// Delivers \p result. Does nothing if an outcome has already been delivered.
  void deliver(outcome result) noexcept;
  /// Prefetches into this core's cache the memory that deliver() will write. Call it well before deliver().
  void prefetch() const noexcept {
    prefetch_for_writing(this);
    if (sink_) prefetch_for_writing(sink_.get(), hot_sink_bytes);
  }
  /// Returns the sink's listener. Call before deliver().
  [[nodiscard]] std::shared_ptr<launch_listener> listener() const noexcept {
    return sink_ ? sink_->listener() : nullptr;
  }
  /// Makes the promise hold the request's charge. The charge is returned just before the outcome is delivered, so a
  /// client that has the reply may send its next request.
  void carry(quota_charge paid) noexcept { paid_ = std::move(paid); }

private:
  static constexpr std::size_t hot_sink_bytes = 3 * cache_line_bytes; ///< What most sinks write at most.

  void abandon() noexcept;

  struct releaser {
    void operator()(outcome_sink* one) const noexcept { one->release(); }
  };
  std::unique_ptr<outcome_sink, releaser> sink_;
  quota_charge paid_;
};

/// Returns a promise that calls \p to with the outcome, on the thread that delivers it. \p to must not throw.
template <class To>
[[nodiscard]] reply_promise make_reply_promise(To to) {
  class sink final : public outcome_sink {
  public:
    explicit sink(To to) noexcept : to_{std::move(to)} {}
    void deliver(outcome result) noexcept override { to_(std::move(result)); }

  private:
    To to_;
  };
  return reply_promise{std::make_unique<sink>(std::move(to))};
}

/// Returns a promise and the future that receives its outcome. The future throws troupe::exception on an error.
[[nodiscard]] std::pair<reply_promise, std::future<completion>> make_future_promise();

/// The promises of the parts of a request.
using divided_reply = std::vector<reply_promise, recycling_allocator<reply_promise>>;

/// Divides the promise of a request to a whole world, which is answered when its last rank is done: makes
/// \p part_count > 0 promises out of \p whole. When the last of them has been answered, \p whole gets the first
/// error in time, if there was one. Otherwise it gets a completion with \p name, the earliest `queued`, and the latest
/// `launched` and `done`. If any part may have run, the error has an unknown outcome and lists the undefined buffers of
/// the parts whose outcome is unknown. The results of parts that succeeded are valid.
[[nodiscard]] divided_reply divide_promise(reply_promise whole, ticket name, std::size_t part_count);

/// A promise of a value of any type. It replies once, explicitly or through the destructor (ONE-1). Threads: one at a
/// time.
template <class Value>
class value_promise {
public:
  using sink = std::function<void(std::variant<Value, error>&&)>;

  explicit value_promise(sink to) : sink_{std::move(to)} {}
  value_promise(const value_promise&) = delete;
  value_promise& operator=(const value_promise&) = delete;
  ~value_promise() {
    deliver(error{.code = errc::abandoned,
                  .effect = may_have_run_ ? effect::unknown_outcome : effect::rejected,
                  .text = "the world ended before it had answered"});
  }

  /// Says whether what was asked may have been done, in case there will be no reply. Until then it may.
  void set_may_have_run(bool may) noexcept { may_have_run_ = may; }

  /// Delivers \p result. Does nothing if it has been called before.
  void deliver(std::variant<Value, error> result) {
    if (const sink to = std::exchange(sink_, nullptr)) to(std::move(result));
  }

private:
  sink sink_;
  bool may_have_run_ = true;
};

/// Returns a promise for a reply and its future.
template <class Value>
std::pair<std::shared_ptr<value_promise<Value>>, std::future<Value>> make_value_promise() {
  const auto done = std::make_shared<std::promise<Value>>();
  auto future = done->get_future();
  return {std::make_shared<value_promise<Value>>([done](std::variant<Value, error> result) {
            if (error* failure = std::get_if<error>(&result))
              done->set_exception(std::make_exception_ptr(exception{std::move(*failure)}));
            else
              done->set_value(std::get<Value>(std::move(result)));
          }),
          std::move(future)};
}

} // namespace troupe
