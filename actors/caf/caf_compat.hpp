/// Hides the differences between CAF 0.17.6 and CAF 1.x, and contains nothing else. Besides the tests' caf_stepping.hpp
/// this is the only file that distinguishes the two release lines. Keep to the common subset: class-based typed actors,
/// state in members, clean-up in on_exit(), no links or groups.
#pragma once

#include <caf/config.hpp>

// Some 1.x releases write CAF_VERSION in octal: only the major version can be trusted.
#if CAF_MAJOR_VERSION < 1
#define TROUPE_CAF_0_17 1
#else
#define TROUPE_CAF_0_17 0
#endif

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/send.hpp>
#include <caf/thread_hook.hpp>
#include <caf/type_id.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#if !TROUPE_CAF_0_17
#include <caf/anon_mail.hpp>
#include <caf/init_global_meta_objects.hpp>
#endif

#if !TROUPE_CAF_0_17 && defined(__linux__)
#include <sys/prctl.h>
#endif

#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

// These macros declare, at global scope, message types that never leave the process (TROUPE_LOCAL_TYPE), and types with
// an inspect(), which may be sent to another node (TROUPE_SENT_TYPE). 1.x needs an id for each type, in
// a block that begins at \p offset and is registered before the first actor system; 0.17 needs neither. A user's block
// begins where troupe's ends: TROUPE_LOCAL_TYPES_AFTER(yours, troupe).
#if TROUPE_CAF_0_17
#define TROUPE_LOCAL_TYPES_BEGIN(block, offset)
#define TROUPE_LOCAL_TYPES_AFTER(block, previous)
#define TROUPE_LOCAL_TYPE(block, type) CAF_ALLOW_UNSAFE_MESSAGE_TYPE(type)
#define TROUPE_SENT_TYPE(block, type)
#define TROUPE_LOCAL_TYPES_END(block)
#define TROUPE_REGISTER_LOCAL_TYPES(block) static_cast<void>(0)
#else
#define TROUPE_LOCAL_TYPES_BEGIN(block, offset) CAF_BEGIN_TYPE_ID_BLOCK(block, caf::first_custom_type_id + (offset))
#define TROUPE_LOCAL_TYPES_AFTER(block, previous) CAF_BEGIN_TYPE_ID_BLOCK(block, ::caf::id_block::previous::end)
#define TROUPE_LOCAL_TYPE(block, type)                                                                                 \
  CAF_ADD_TYPE_ID(block, (type))                                                                                       \
  CAF_ALLOW_UNSAFE_MESSAGE_TYPE(type)
#define TROUPE_SENT_TYPE(block, type) CAF_ADD_TYPE_ID(block, (type))
#define TROUPE_LOCAL_TYPES_END(block) CAF_END_TYPE_ID_BLOCK(block)
#define TROUPE_REGISTER_LOCAL_TYPES(block) ::caf::init_global_meta_objects<::caf::id_block::block>()
#endif

namespace troupe::compat {

// In both lines, interfaces are written as caf::result<R>(A) signatures.
#if TROUPE_CAF_0_17
/// Translates the signature caf::result<R>(A) to the form of CAF 0.17.
template <class Signature>
struct interface_of;
template <class... Results, class... Arguments>
struct interface_of<caf::result<Results...>(Arguments...)> {
  using type = typename caf::replies_to<std::decay_t<Arguments>...>::template with<Results...>;
};
template <class... Signatures>
using typed_actor = caf::typed_actor<typename interface_of<Signatures>::type...>;

template <class Handle, class... Signatures>
using extended = typename Handle::template extend<typename interface_of<Signatures>::type...>;
#else
template <class... Signatures>
using typed_actor = caf::typed_actor<caf::statically_typed<Signatures...>>;

template <class Handle, class... Signatures>
struct extension_of;
template <class... Old, class... New>
struct extension_of<caf::typed_actor<caf::statically_typed<Old...>>, New...> {
  using type = typed_actor<Old..., New...>;
};
/// The interface of \p Handle, extended by \p Signatures.
template <class Handle, class... Signatures>
using extended = typename extension_of<Handle, Signatures...>::type;
#endif

/// Registers CAF's own types. Call it before the first actor system, together with TROUPE_REGISTER_LOCAL_TYPES.
inline void register_core_types() {
#if !TROUPE_CAF_0_17
  caf::core::init_global_meta_objects();
#endif
}

/// Sends a message without a sender, also from a thread that is not an actor. Never blocks.
template <class Handle, class Message>
void post(const Handle& to, Message&& what) {
#if TROUPE_CAF_0_17
  caf::anon_send(to, std::forward<Message>(what));
#else
  caf::anon_mail(std::forward<Message>(what)).send(to);
#endif
}

/// Sends messages to an actor while it is alive, without keeping it alive.
template <class Handle>
class weak_handle {
public:
  template <class Self>
  explicit weak_handle(Self* self) : to_{caf::actor_cast<caf::weak_actor_ptr>(self)} {}

  template <class Message>
  void post(Message&& what) const {
    if (auto alive = to_.lock()) compat::post(caf::actor_cast<Handle>(alive), std::forward<Message>(what));
  }
  /// Sends \p what after \p delay.
  template <class Message>
  void post_after(std::chrono::nanoseconds delay, Message&& what) const {
    const auto alive = to_.lock();
    if (!alive) return;
    const auto to = caf::actor_cast<Handle>(alive);
    if (delay <= std::chrono::nanoseconds{0}) return compat::post(to, std::forward<Message>(what));
#if TROUPE_CAF_0_17
    caf::delayed_anon_send(to, delay, std::forward<Message>(what));
#else
    // delay() uses the real clock even if the actor system has another one.
    const auto now = caf::actor_cast<caf::abstract_actor*>(alive)->home_system().clock().now();
    caf::anon_mail(std::forward<Message>(what)).schedule(now + delay).send(to);
#endif
  }

private:
  caf::weak_actor_ptr to_;
};

/// Sends \p what from the actor \p self. Messages from one actor to another arrive in the order of sending.
template <class Self, class Handle, class Message>
void send(Self* self, const Handle& to, Message&& what) {
#if TROUPE_CAF_0_17
  self->send(to, std::forward<Message>(what));
#else
  self->mail(std::forward<Message>(what)).send(to);
#endif
}

/// Sends a request that CAF itself ends after \p timeout.
template <class Self, class Handle, class Timeout, class Message>
auto request_within(Self* self, const Handle& to, Timeout timeout, Message&& what) {
#if TROUPE_CAF_0_17
  return self->request(to, timeout, std::forward<Message>(what));
#else
  return self->mail(std::forward<Message>(what)).request(to, timeout);
#endif
}

/// Sends a request without CAF's own timeout, because 0.17 keeps the timer until it expires. troupe's requests carry a
/// deadline instead.
template <class Self, class Handle, class Message>
auto request_unbounded(Self* self, const Handle& to, Message&& what) {
  return request_within(self, to, caf::infinite, std::forward<Message>(what));
}

// The prefix of the names of CAF's own settings, and the duration of one poll of a worker.
#if TROUPE_CAF_0_17
inline constexpr const char* settings_prefix = "";
inline constexpr std::chrono::nanoseconds poll_interval{50};
#else
inline constexpr const char* settings_prefix = "caf.";
inline constexpr std::chrono::nanoseconds poll_interval{5'000}; // a wait with timeout 0: see end_waits_in_time()
#endif

inline void set_worker_count(caf::actor_system_config& settings, std::size_t count) {
  settings.set(std::string{settings_prefix} + "scheduler.max-threads", count);
}

/// Sets how many messages an actor handles before its worker continues with another actor.
inline void set_messages_per_turn(caf::actor_system_config& settings, std::size_t count) {
  settings.set(std::string{settings_prefix} + "scheduler.max-throughput", count);
}

/// Sets roughly how long a worker polls for work before it sleeps between two polls.
inline void set_worker_spin(caf::actor_system_config& settings, std::chrono::nanoseconds spin) {
  settings.set(std::string{settings_prefix} + "work-stealing.aggressive-poll-attempts",
               static_cast<std::size_t>(spin / poll_interval));
}

/// Sets how long a worker that has been idle for a long time sleeps before it tries to steal work from other workers.
/// Work in its own queue wakes it immediately.
inline void set_worker_nap(caf::actor_system_config& settings, caf::timespan nap) {
  settings.set(std::string{settings_prefix} + "work-stealing.relaxed-sleep-duration", nap);
}

/// Lets the calling thread spin without delays. CAF 1.x polls by a wait with timeout 0, which the kernel's timer slack
/// would extend to 50 us or more.
inline void end_waits_in_time() noexcept {
#if !TROUPE_CAF_0_17 && defined(__linux__)
  static_cast<void>(::prctl(PR_SET_TIMERSLACK, 1UL)); // nanoseconds
#endif
}

/// Calls \p begin at the start of every thread that CAF creates (workers, clock).
inline void on_thread_start(caf::actor_system_config& settings, std::function<void()> begin) {
  class hook final : public caf::thread_hook {
  public:
    explicit hook(std::function<void()> what) : begin_{std::move(what)} {}
    void init(caf::actor_system&) override {}
#if TROUPE_CAF_0_17
    void thread_started() override {
      begin_();
    }
#else
    void thread_started(caf::thread_owner) override {
      begin_();
    }
#endif
    void thread_terminates() override {}

  private:
    std::function<void()> begin_;
  };
  settings.add_thread_hook<hook>(std::move(begin));
}

[[nodiscard]] inline bool failed(const caf::error& what) {
#if TROUPE_CAF_0_17
  return static_cast<bool>(what);
#else
  return what != caf::error{};
#endif
}

// Parameter and result type of an actor's enqueue(), for actors that handle some messages on the sender's thread.
#if TROUPE_CAF_0_17
using enqueue_host = caf::execution_unit;
using enqueue_result = void;
#else
using enqueue_host = caf::scheduler;
using enqueue_result = bool;
#endif

/// Returns the content of \p element if it is exactly one \p Message. The message is moved out if it is not shared.
template <class Message>
[[nodiscard]] std::optional<Message> take_message(caf::mailbox_element& element) {
  auto& content = element.content();
  if (!content.template match_elements<Message>()) return std::nullopt;
#if TROUPE_CAF_0_17
  if (!element.stages.empty()) return std::nullopt; // CAF handles a forwarding chain itself
  if (content.shared()) return content.template get_as<Message>(0);
#endif
  return std::move(content.template get_mutable_as<Message>(0));
}

/// Holds one down handler per monitored actor. 0.17 has one handler for all actors, 1.x has one for each. Keep this
/// object as a member of the monitoring actor.
class watches {
public:
  using callback = std::function<void(const caf::error&)>;

  template <class Self, class Handle>
  // NOLINTNEXTLINE(performance-unnecessary-value-param): the other branch moves the callback
  void add(Self* self, const Handle& watched, callback on_down) {
#if TROUPE_CAF_0_17
    if (!std::exchange(installed_, true))
      self->set_down_handler([this](caf::down_msg& down) {
        const auto found = callbacks_.find(down.source);
        if (found == callbacks_.end()) return;
        const callback run = std::move(found->second);
        callbacks_.erase(found);
        run(down.reason);
      });
    callbacks_[watched.address()] = std::move(on_down);
    self->monitor(watched);
#else
    self->monitor(watched, [run = std::move(on_down)](const caf::error& reason) { run(reason); });
#endif
  }

private:
#if TROUPE_CAF_0_17
  bool installed_ = false;
  std::map<caf::actor_addr, callback> callbacks_;
#endif
};

/// Keeps the reply to the current request beyond its handler, so that any thread may deliver it.
/// It enqueues the reply at the requester with a null execution unit, which is thread-safe in both lines. Delivering a
/// caf::response_promise on a foreign thread is a data race in both.
class foreign_reply {
public:
  template <class Self>
  explicit foreign_reply(Self* self) {
    if (auto* element = self->current_mailbox_element()) take(self, *element);
    if (requester_) id_ = self->take_current_message_id();
  }
  /// Keeps the reply to the request in \p element, which never enters the mailbox of \p self.
  template <class Self>
  foreign_reply(Self* self, const caf::mailbox_element& element) {
    take(self, element);
  }
  foreign_reply(foreign_reply&& other) noexcept { swap(other); }
  foreign_reply& operator=(foreign_reply&& other) noexcept {
    swap(other);
    return *this;
  }
  ~foreign_reply() = default;

  template <class Value>
  void deliver(Value&& value) {
    if (!requester_) return;
#if TROUPE_CAF_0_17
    auto element =
        caf::make_mailbox_element(std::move(responder_), id_.response_id(), caf::no_stages, std::forward<Value>(value));
#else
    auto element = caf::make_mailbox_element(std::move(responder_), id_.response_id(), std::forward<Value>(value));
#endif
    std::exchange(requester_, nullptr)->enqueue(std::move(element), nullptr);
  }

private:
  template <class Self>
  void take(Self* self, const caf::mailbox_element& element) {
    if (element.mid.is_answered() || element.mid.is_response() || !element.sender) return;
    responder_ = caf::actor_cast<caf::strong_actor_ptr>(self);
    requester_ = element.sender;
    id_ = element.mid;
  }

  void swap(foreign_reply& other) noexcept {
    responder_.swap(other.responder_);
    requester_.swap(other.requester_);
    std::swap(id_, other.id_);
  }

  caf::strong_actor_ptr responder_;
  caf::strong_actor_ptr requester_;
  caf::message_id id_;
};

} // namespace troupe::compat
