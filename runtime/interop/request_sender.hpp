/// Requests as senders (P2300, std::execution): connect, start, and one of three endings. It names no library for
/// them; a receiver has set_value(completion), set_error(troupe::error) and set_stopped() as members, and may have
/// get_stop_token(), or get_env() with that.
#pragma once

#include <troupe/runtime/interop/ask_into.hpp>
#include <troupe/runtime/interop/continuation.hpp>
#include <troupe/runtime/interop/stop_listener.hpp>
#include <troupe/runtime/world.hpp>

#include <concepts>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

/// What hears how a request ends.
template <class T>
concept request_receiver = std::move_constructible<T> && requires(T&& receiver, completion reply, error failure) {
  std::move(receiver).set_value(std::move(reply));
  std::move(receiver).set_error(std::move(failure));
  std::move(receiver).set_stopped();
};

/// A request that is asked for when its operation is started, each time that one is connected.
///
/// Order: endings come where the resumer takes them, never on the thread that answers.
/// Endings: set_stopped for errc::cancelled, set_error for any other error, set_value else. The deadline, which counts
/// from start(), is an error. Exactly one comes, whatever stop, answer and start() do at once.
/// Stop: where the receiver has a token (stop_token_of()). Requested before start(): nothing is asked, and
/// set_stopped() comes. Later: a request to one rank that names its position in its lane is taken back while it waits
/// for its peers, which are told, and ends stopped. Any other goes on, and its own ending comes, when it comes: its
/// memory is in use, so nobody is let go of before. Its deadline bounds that.
template <resumer Resumer>
class request_sender {
public:
  /// Of all ranks.
  request_sender(Resumer where_to, world where, world_request asked)
    : resumer_{std::move(where_to)}, world_{std::move(where)}, asked_{std::move(asked)} {}
  request_sender(Resumer where_to, world where, std::vector<operation> parts,
                 nanoseconds deadline = world_default_deadline)
    : request_sender{std::move(where_to), where, world_request{std::move(parts), where.epoch(), deadline}} {}
  /// Of one rank (SPMD).
  request_sender(Resumer where_to, world where, rank whom, rank_request asked)
    : resumer_{std::move(where_to)}, world_{std::move(where)}, asked_{of_rank{whom, std::move(asked)}} {}

  /// Lifetime: started, it stays where it is until one of the endings has been called.
  template <request_receiver Receiver>
  class state {
  public:
    /// What connect() gives: the sender and who is told.
    state(request_sender sender, Receiver receiver)
      : sender_{std::move(sender)}, receiver_{std::move(receiver)}, stop_{*this} {}
    state(const state&) = delete;
    state& operator=(const state&) = delete;

    void start() noexcept {
      stop_.listen(stop_token_of(receiver_));
      if (stop_.is_wanted()) {
        result_ = error{.code = errc::cancelled, .text = "it was stopped before it was asked for"};
        return hand_on();
      }
      ask();
      stop_.asked();
      if (stop_.started()) hand_on();
    }

  private:
    using token = decltype(stop_token_of(std::declval<const Receiver&>()));
    friend class stop_listener<token, state>;

    void ask() noexcept {
      reply_promise to{std::make_unique<sink>(*this)};
      try {
        if (auto* const all = std::get_if<world_request>(&sender_.asked_)) {
          ask_into(sender_.world_, std::move(*all), std::move(to));
        } else {
          auto& one = std::get<of_rank>(sender_.asked_);
          lane_ = one.asked.lane;
          position_ = one.asked.position;
          epoch_ = one.asked.epoch;
          ask_into(sender_.world_, one.whom, std::move(one.asked), std::move(to));
        }
      } catch (...) {
        to.deliver(current_error()); // nothing, where the request has taken it along
      }
    }

    class sink final : public outcome_sink {
    public:
      explicit sink(state& to) noexcept : to_{&to} {}
      void deliver(outcome result) noexcept override { to_->end(std::move(result)); }

    private:
      state* to_;
    };

    void end(outcome result) noexcept {
      result_ = std::move(result);
      if (stop_.answered()) hand_on();
    }

    /// Of stop_listener.
    void take_back() const noexcept {
      if (!position_) return;
      const world where = sender_.world_; // a copy: this may end meanwhile, on this thread
      troupe::take_back(where, std::get<of_rank>(sender_.asked_).whom, lane_, *position_, epoch_);
    }

    void hand_on() noexcept {
      // A state outlives its ending, so that nobody need count it. It may be gone when the resumer returns: a copy.
      Resumer where_to = sender_.resumer_;
      where_to(continuation{[](void* self) { static_cast<state*>(self)->tell(); },
                            std::shared_ptr<void>{std::shared_ptr<void>{}, this}});
    }

    void tell() {
      stop_.silence();
      outcome result = *std::move(result_);
      Receiver receiver = std::move(receiver_); // its ending may destroy this
      if (error* const failure = std::get_if<error>(&result)) {
        if (failure->code == errc::cancelled) return std::move(receiver).set_stopped();
        return std::move(receiver).set_error(std::move(*failure));
      }
      std::move(receiver).set_value(std::get<completion>(std::move(result)));
    }

    request_sender sender_;
    Receiver receiver_;
    std::optional<outcome> result_;
    lane lane_{};
    std::optional<std::uint64_t> position_{}; ///< Of a request that can be taken back.
    epoch epoch_{};
    stop_listener<token, state> stop_;
  };

  template <request_receiver Receiver>
  [[nodiscard]] state<Receiver> connect(Receiver receiver) const& {
    return {*this, std::move(receiver)};
  }
  template <request_receiver Receiver>
  [[nodiscard]] state<Receiver> connect(Receiver receiver) && {
    return {std::move(*this), std::move(receiver)};
  }

private:
  struct of_rank {
    rank whom;
    rank_request asked;
  };

  Resumer resumer_;
  world world_;
  std::variant<world_request, of_rank> asked_;
};

} // namespace troupe
