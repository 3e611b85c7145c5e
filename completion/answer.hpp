/// The obligation to reply, as an object: whoever holds it last replies, by will or by destructor (ONE-1).
#pragma once

#include <troupe/completion/launch_listener.hpp>
#include <troupe/completion/outcome.hpp>
#include <troupe/completion/pending_charge.hpp>
#include <troupe/completion/recycling.hpp>

#include <future>
#include <memory>

namespace troupe {

/// Where an outcome goes: an actor's mailbox, a future, a group. Threads: deliver() is called once by each answer that
/// leads here, from any thread.
class answer_sink : public recycled {
public:
  answer_sink() = default;
  answer_sink(const answer_sink&) = delete;
  answer_sink& operator=(const answer_sink&) = delete;
  virtual ~answer_sink() = default;

  virtual void deliver(outcome result) noexcept = 0;
  /// An answer needs it no more. Where several lead to one sink, it goes with the last.
  virtual void let_go() noexcept { delete this; }
  /// Who wants to hear that the request has been enqueued; most do not.
  [[nodiscard]] virtual std::shared_ptr<launch_listener> listener() const noexcept { return nullptr; }
};

/// Delivers exactly one outcome. Move-only: there is one holder at any time. Dropped undelivered, it delivers
/// errc::abandoned, with unknown outcome if the work may have been launched.
class answer {
public:
  answer() noexcept = default;
  explicit answer(std::unique_ptr<answer_sink> sink) noexcept : sink_{sink.release()} {}
  /// To a sink that answer_sink::let_go() ends.
  explicit answer(answer_sink& shared) noexcept : sink_{&shared} {}
  answer(answer&& other) noexcept = default;
  answer& operator=(answer&& other) noexcept;
  ~answer() { abandon(); }

  [[nodiscard]] bool pending() const noexcept { return sink_ != nullptr; }
  /// Delivers; does nothing when an outcome has been delivered already.
  void deliver(outcome result) noexcept;
  /// Its sink's. Before it is delivered.
  [[nodiscard]] std::shared_ptr<launch_listener> listener() const noexcept {
    return sink_ ? sink_->listener() : nullptr;
  }
  /// From now on it holds what the request was charged, and gives it back just before it delivers: whoever has the
  /// reply may ask again.
  void carry(pending_charge paid) noexcept { paid_ = std::move(paid); }

private:
  void abandon() noexcept;

  struct let_go {
    void operator()(answer_sink* one) const noexcept { one->let_go(); }
  };
  std::unique_ptr<answer_sink, let_go> sink_;
  pending_charge paid_;
};

/// An answer that arrives in a future. The future throws troupe::exception on an error.
[[nodiscard]] std::pair<answer, std::future<completion>> make_future_answer();

} // namespace troupe
