/// The differences between CAF 0.17.6 and CAF 1.x, and nothing else. The only file that tells them apart.
/// Keep to the common subset: class-based typed actors, state in members, clean-up in on_exit(), no links or groups.
#pragma once

#include <caf/config.hpp>

// CAF_VERSION is written in octal by some 1.x releases: only the major version can be trusted.
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

// Message types that never leave the process, at global scope. 1.x wants an id for each, in a block that begins at
// \p offset and is registered before the first actor system; 0.17 wants neither. A block of yours begins where
// troupe's ends: TROUPE_LOCAL_TYPES_AFTER(yours, troupe).
#if TROUPE_CAF_0_17
#define TROUPE_LOCAL_TYPES_BEGIN(block, offset)
#define TROUPE_LOCAL_TYPES_AFTER(block, previous)
#define TROUPE_LOCAL_TYPE(block, type) CAF_ALLOW_UNSAFE_MESSAGE_TYPE(type)
#define TROUPE_LOCAL_TYPES_END(block)
#define TROUPE_REGISTER_LOCAL_TYPES(block) static_cast<void>(0)
#else
#define TROUPE_LOCAL_TYPES_BEGIN(block, offset) CAF_BEGIN_TYPE_ID_BLOCK(block, caf::first_custom_type_id + (offset))
#define TROUPE_LOCAL_TYPES_AFTER(block, previous) CAF_BEGIN_TYPE_ID_BLOCK(block, ::caf::id_block::previous::end)
#define TROUPE_LOCAL_TYPE(block, type)                                                                                 \
  CAF_ADD_TYPE_ID(block, (type))                                                                                       \
  CAF_ALLOW_UNSAFE_MESSAGE_TYPE(type)
#define TROUPE_LOCAL_TYPES_END(block) CAF_END_TYPE_ID_BLOCK(block)
#define TROUPE_REGISTER_LOCAL_TYPES(block) ::caf::init_global_meta_objects<::caf::id_block::block>()
#endif

namespace troupe::compat {

// Interfaces are written as caf::result<R>(A) signatures in both lines.
#if TROUPE_CAF_0_17
/// A signature caf::result<R>(A) as CAF 0.17 writes it.
template <class Signature>
struct interface_of;
template <class... Results, class... Arguments>
struct interface_of<caf::result<Results...>(Arguments...)> {
  using type = typename caf::replies_to<std::decay_t<Arguments>...>::template with<Results...>;
};
template <class... Signatures>
using typed_actor = caf::typed_actor<typename interface_of<Signatures>::type...>;
#else
template <class... Signatures>
using typed_actor = caf::typed_actor<caf::statically_typed<Signatures...>>;
#endif

/// Before the first actor system, beside TROUPE_REGISTER_LOCAL_TYPES.
inline void register_core_types() {
#if !TROUPE_CAF_0_17
  caf::core::init_global_meta_objects();
#endif
}

/// Sends from a thread that is no actor, or without caring for a sender. Never blocks.
template <class Handle, class Message>
void post(const Handle& to, Message&& what) {
#if TROUPE_CAF_0_17
  caf::anon_send(to, std::forward<Message>(what));
#else
  caf::anon_mail(std::forward<Message>(what)).send(to);
#endif
}

/// An actor that is told things as long as it lives, and is not kept alive for that.
template <class Handle>
class weak_handle {
public:
  template <class Self>
  explicit weak_handle(Self* self) : to_{caf::actor_cast<caf::weak_actor_ptr>(self)} {}

  template <class Message>
  void post(Message&& what) const {
    if (auto alive = to_.lock()) compat::post(caf::actor_cast<Handle>(alive), std::forward<Message>(what));
  }
  /// The same, some time later.
  template <class Message>
  void post_after(std::chrono::nanoseconds delay, Message&& what) const {
    const auto alive = to_.lock();
    if (!alive) return;
    const auto to = caf::actor_cast<Handle>(alive);
    if (delay <= std::chrono::nanoseconds{0}) return compat::post(to, std::forward<Message>(what));
#if TROUPE_CAF_0_17
    caf::delayed_anon_send(to, delay, std::forward<Message>(what));
#else
    // delay() counts from the real time, whatever clock the system has.
    const auto now = caf::actor_cast<caf::abstract_actor*>(alive)->home_system().clock().now();
    caf::anon_mail(std::forward<Message>(what)).schedule(now + delay).send(to);
#endif
  }

private:
  caf::weak_actor_ptr to_;
};

/// Sends from an actor, in whose order the messages arrive.
template <class Self, class Handle, class Message>
void send(Self* self, const Handle& to, Message&& what) {
#if TROUPE_CAF_0_17
  self->send(to, std::forward<Message>(what));
#else
  self->mail(std::forward<Message>(what)).send(to);
#endif
}

/// Asks without CAF's own time limit, whose timer 0.17 keeps until it expires: troupe's requests carry a deadline.
template <class Self, class Handle, class Message>
auto request_unbounded(Self* self, const Handle& to, Message&& what) {
#if TROUPE_CAF_0_17
  return self->request(to, caf::infinite, std::forward<Message>(what));
#else
  return self->mail(std::forward<Message>(what)).request(to, caf::infinite);
#endif
}

inline void set_worker_count(caf::actor_system_config& settings, std::size_t count) {
#if TROUPE_CAF_0_17
  settings.set("scheduler.max-threads", count);
#else
  settings.set("caf.scheduler.max-threads", count);
#endif
}

/// How many messages an actor handles before it lets others run on its worker.
inline void set_messages_per_turn(caf::actor_system_config& settings, std::size_t count) {
#if TROUPE_CAF_0_17
  settings.set("scheduler.max-throughput", count);
#else
  settings.set("caf.scheduler.max-throughput", count);
#endif
}

/// How long a worker looks for work, about, before it begins to sleep between two looks.
inline void set_worker_spin(caf::actor_system_config& settings, std::chrono::nanoseconds spin) {
#if TROUPE_CAF_0_17
  constexpr std::chrono::nanoseconds look{50};
  settings.set("work-stealing.aggressive-poll-attempts", static_cast<std::size_t>(spin / look));
#else
  constexpr std::chrono::nanoseconds look{5'000}; // a wait of no time: see end_waits_in_time()
  settings.set("caf.work-stealing.aggressive-poll-attempts", static_cast<std::size_t>(spin / look));
#endif
}

/// How long a worker that has found nothing for long sleeps before it looks whether others have too much. Its own work
/// wakes it.
inline void set_worker_nap(caf::actor_system_config& settings, caf::timespan nap) {
#if TROUPE_CAF_0_17
  settings.set("work-stealing.relaxed-sleep-duration", nap);
#else
  settings.set("caf.work-stealing.relaxed-sleep-duration", nap);
#endif
}

/// For a thread that is to spin: where CAF looks by a wait of no time, the kernel would let it sleep for 50 us and
/// more.
inline void end_waits_in_time() noexcept {
#if !TROUPE_CAF_0_17 && defined(__linux__)
  static_cast<void>(::prctl(PR_SET_TIMERSLACK, 1UL)); // nanoseconds
#endif
}

/// Calls \p begin first on every thread that CAF makes: workers, clock.
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

// What an actor's enqueue() is given and gives back, for those that take some messages at the door.
#if TROUPE_CAF_0_17
using enqueue_host = caf::execution_unit;
using enqueue_result = void;
#else
using enqueue_host = caf::scheduler;
using enqueue_result = bool;
#endif

/// The message in \p element, if it is one \p Message and nothing else, moved out where nobody else holds it.
template <class Message>
[[nodiscard]] std::optional<Message> take_message(caf::mailbox_element& element) {
  auto& content = element.content();
  if (!content.template match_elements<Message>()) return std::nullopt;
#if TROUPE_CAF_0_17
  if (!element.stages.empty()) return std::nullopt; // a forwarding chain is CAF's own business
  if (content.shared()) return content.template get_as<Message>(0);
#endif
  return std::move(content.template get_mutable_as<Message>(0));
}

/// A down handler per watched actor. 0.17 has one for all, 1.x one for each. Keep it as a member of the actor.
class watches {
public:
  using callback = std::function<void(const caf::error&)>;

  template <class Self, class Handle>
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

/// The reply to the request being handled, taken out of the handler so that any thread may deliver it.
/// It enqueues at the requester with a null execution unit, which is thread-safe in both lines; delivering a
/// caf::response_promise on a foreign thread is a data race in both.
class foreign_reply {
public:
  template <class Self>
  explicit foreign_reply(Self* self) {
    if (auto* element = self->current_mailbox_element()) take(self, *element);
    if (requester_) id_ = self->take_current_message_id();
  }
  /// The same for a request that \p self has not queued, and never will.
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
