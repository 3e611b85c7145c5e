/// The obligation to reply, as an object: whoever holds it last replies, by will or by destructor (ONE-1).
#pragma once

#include <troupe/completion/admission/quota_charge.hpp>
#include <troupe/completion/poller/launch_listener.hpp>
#include <troupe/completion/reply/outcome.hpp>
#include <troupe/completion/sources/recycling.hpp>

#include <future>
#include <memory>

namespace troupe {

/// Where an outcome goes: an actor's mailbox, a future, a group. Threads: deliver() is called once by each answer that
/// leads here, from any thread.
class outcome_sink : public recycled {
public:
  outcome_sink() = default;
  outcome_sink(const outcome_sink&) = delete;
  outcome_sink& operator=(const outcome_sink&) = delete;
  virtual ~outcome_sink() = default;

  virtual void deliver(outcome result) noexcept = 0;
  /// An answer needs it no more. Where several lead to one sink, it goes with the last.
  virtual void let_go() noexcept { delete this; }
  /// Who wants to hear that the request has been enqueued; most do not.
  [[nodiscard]] virtual std::shared_ptr<launch_listener> listener() const noexcept { return nullptr; }
};

/// Delivers exactly one outcome. Move-only: there is one holder at any time. Dropped undelivered, it delivers
/// errc::abandoned, with unknown outcome if the work may have been launched.
class reply_promise {
public:
  reply_promise() noexcept = default;
  explicit reply_promise(std::unique_ptr<outcome_sink> sink) noexcept : sink_{sink.release()} {}
  /// To a sink that outcome_sink::let_go() ends.
  explicit reply_promise(outcome_sink& shared) noexcept : sink_{&shared} {}
  reply_promise(reply_promise&& other) noexcept = default;
  reply_promise& operator=(reply_promise&& other) noexcept;
  ~reply_promise() { abandon(); }

  [[nodiscard]] bool pending() const noexcept { return sink_ != nullptr; }
  /// Delivers; does nothing when an outcome has been delivered already.
  void deliver(outcome result) noexcept;
  /// Its sink's. Before it is delivered.
  [[nodiscard]] std::shared_ptr<launch_listener> listener() const noexcept {
    return sink_ ? sink_->listener() : nullptr;
  }
  /// From now on it holds what the request was charged, and gives it back just before it delivers: whoever has the
  /// reply may ask again.
  void carry(quota_charge paid) noexcept { paid_ = std::move(paid); }

private:
  void abandon() noexcept;

  struct let_go {
    void operator()(outcome_sink* one) const noexcept { one->let_go(); }
  };
  std::unique_ptr<outcome_sink, let_go> sink_;
  quota_charge paid_;
};

/// An answer that arrives in a future. The future throws troupe::exception on an error.
[[nodiscard]] std::pair<reply_promise, std::future<completion>> make_future_promise();

} // namespace troupe
