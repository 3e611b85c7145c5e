/// Defines the replies to requests and to questions, for which Python waits by blocking or in an asyncio loop.
#pragma once

#include "deferred_release.hpp"
#include "process_object.hpp"

#include <troupe/actors/caf/requests.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/operation/remote_buffer.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/stream.hpp>
#include <troupe/device/time.hpp>
#include <troupe/processes/world_driver.hpp>

#include <pybind11/pybind11.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::python {

/// Passes replies to an asyncio loop. The poller writes to the descriptor without the GIL, once for all replies that
/// arrive until the loop calls take(), so that a burst of replies wakes the loop once. Threads: safe from any.
class loop_mailbox {
public:
  loop_mailbox();
  loop_mailbox(const loop_mailbox&) = delete;
  loop_mailbox& operator=(const loop_mailbox&) = delete;
  ~loop_mailbox();

  /// Adds the numbers in \p who. Allocates no memory.
  void put(std::list<std::uint64_t> who) noexcept;
  /// Returns all numbers since the last call, and resets the descriptor.
  [[nodiscard]] std::list<std::uint64_t> take();
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

private:
  std::mutex mutex_;
  std::list<std::uint64_t> come_;
  int descriptor_;
};

/// A result that arrives once. In a fork it arrives only if it had arrived before. Threads: safe from any.
class awaited {
public:
  [[nodiscard]] bool is_done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// Call before wait(). Errors: unsupported (a fork, in which no thread delivers the result, and a thread of the
  /// parent may have held the lock when it was forked).
  void require_own() const {
    if (!is_done()) made_.require_own("this reply");
  }
  /// Spins for \p spin, until \p until at the latest; does not where replies have come later lately. Returns is_done(). The
  /// caller must not hold the GIL.
  [[nodiscard]] bool poll(nanoseconds spin, time_point until) const;
  /// Spins for \p spin where that pays, then sleeps until \p until. Returns is_done(). The caller must not hold the GIL.
  [[nodiscard]] bool wait(nanoseconds spin, time_point until);
  /// Adds \p who to \p where when the result arrives. If the result has arrived already, adds nothing and returns
  /// false. Errors: those of require_own().
  [[nodiscard]] bool tell(const std::shared_ptr<loop_mailbox>& where, std::uint64_t who) {
    return tell({where, {who}});
  }
  /// Calls \p told with \p what when the result arrives, on the thread that delivers it. If the result has arrived
  /// already, calls nothing and returns false. Errors: those of require_own().
  [[nodiscard]] bool tell(void (*told)(void*), void* what) { return tell({{}, {}, told, what}); }

protected:
  awaited() = default;
  ~awaited() = default;

  /// Calls \p store, which stores the result, and wakes all waiting threads and loops. Call it once.
  template <class Store>
  void settle(Store store) noexcept {
    std::vector<watcher> watchers;
    {
      const std::lock_guard lock{mutex_};
      store();
      done_.store(true, std::memory_order_release);
      watchers.swap(watchers_);
    }
    changed_.notify_all();
    for (watcher& one : watchers)
      if (one.told != nullptr)
        one.told(one.what);
      else
        one.where->put(std::move(one.who));
  }

private:
  /// Has a mailbox or a function.
  struct watcher {
    std::shared_ptr<loop_mailbox> where;
    std::list<std::uint64_t> who;
    void (*told)(void*) = nullptr;
    void* what = nullptr;
  };
  [[nodiscard]] bool tell(watcher one);

  const home_process made_;
  std::atomic<bool> done_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<watcher> watchers_;
};

/// The first step of a request that is answered in two: it is in the GPU's queue, or has failed before. Threads: safe
/// from any.
class launch_step final : public awaited, public launch_listener {
public:
  /// \p where is the device of the request's rank.
  explicit launch_step(std::shared_ptr<device> where) : where_{std::move(where)} {}

  void enqueued(const launch_mark& mark) noexcept override { settle_with(mark.behind); }
  /// Ends the step, and releases the event, because the request has been answered.
  void conclude() noexcept { settle_with(nullptr); }
  /// Returns the event behind the request. Null before the launch, and after the outcome.
  [[nodiscard]] shared_event behind() const noexcept;
  [[nodiscard]] device& where() const noexcept { return *where_; }

private:
  void settle_with(shared_event behind) noexcept;

  const std::shared_ptr<device> where_;
  mutable std::mutex event_mutex_;
  shared_event behind_;
  bool is_settled_ = false;
};

/// Receives the outcome of one request. Threads: safe from any.
class reply final : public outcome_sink, public awaited, public std::enable_shared_from_this<reply> {
public:
  /// \p outputs are the tensors that the request writes. \p launched_on: the launch on this device is
  /// reported, too. Null: it is not.
  [[nodiscard]] static std::shared_ptr<reply> make(held_object outputs, std::shared_ptr<device> launched_on = {});
  explicit reply(held_object outputs) : outputs_{std::move(outputs)} {}

  /// Returns the promise of the outcome, which keeps this object alive. Call it once.
  [[nodiscard]] reply_promise make_reply_promise();

  /// Returns the outcome. Call it only if is_done().
  [[nodiscard]] const outcome& result() const noexcept { return *result_; }
  [[nodiscard]] const held_object& outputs() const noexcept { return outputs_; }
  /// Returns the first step; null for a request in one step.
  [[nodiscard]] const std::shared_ptr<launch_step>& launch() const noexcept { return launch_; }

private:
  void deliver(outcome result) noexcept override;
  [[nodiscard]] std::shared_ptr<launch_listener> listener() const noexcept override { return launch_; }
  void release() noexcept override { const auto last = std::move(self_); }

  held_object outputs_;
  std::shared_ptr<reply> self_; ///< Keeps this object alive until the outcome arrives.
  std::shared_ptr<launch_step> launch_;
  std::optional<outcome> result_;
};

/// The answer to a question whose result is a value: the Python class troupe.ValueReply. Threads: safe from any.
class value_reply final : public awaited {
public:
  using value = std::variant<error, remote_buffer, std::string, world_event, world_processes, leave_reply>;

  /// \p type is the element type that a remote buffer in the answer has in Python.
  explicit value_reply(std::optional<dtype> type = {}) : type_{type} {}

  /// Delivers the answer. Call it once.
  void deliver(value result) noexcept {
    settle([&] { result_.emplace(std::move(result)); });
  }
  /// Returns the answer. Call it only if is_done().
  [[nodiscard]] const value& result() const noexcept { return *result_; }
  [[nodiscard]] std::optional<dtype> type() const noexcept { return type_; }

private:
  const std::optional<dtype> type_;
  std::optional<value> result_;
};

/// Calls \p ask with a promise. Returns the reply that receives the answer. \p type is that of value_reply.
template <class Value, class Ask>
[[nodiscard]] std::shared_ptr<value_reply> ask_for(const Ask& ask, std::optional<dtype> type = {}) {
  auto answered = std::make_shared<value_reply>(type);
  ask(std::make_shared<value_promise<Value>>([answered](std::variant<Value, error> result) {
    std::visit([&](auto& one) { answered->deliver(std::move(one)); }, result);
  }));
  return answered;
}

/// Returns how long result() polls before it sleeps.
[[nodiscard]] nanoseconds result_spin() noexcept;

/// Converts a duration: seconds or a datetime.timedelta, or None for \p otherwise. Errors: invalid_argument, which
/// names the parameter \p name.
[[nodiscard]] nanoseconds duration_of(const pybind11::object& span, nanoseconds otherwise,
                                      const char* name = "deadline");

/// The value of an agree: the Python class troupe.Agreed.
struct shown_agreed {
  std::shared_ptr<const agreed_value> what;
};
/// Returns None for null.
[[nodiscard]] pybind11::object shown(const std::shared_ptr<const agreed_value>& one);

/// A completion with the written tensors: the Python class troupe.Completion.
struct shown_completion {
  completion what;
  pybind11::object outputs;
};

void bind_replies(pybind11::module_& module);

} // namespace troupe::python
