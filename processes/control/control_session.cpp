#include <troupe/processes/control/control_session.hpp>

#include <troupe/processes/control/control_codec.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <variant>

namespace troupe {

namespace {

/// Limit of the heartbeats whose times are kept: those of a controller that is silent for longer than any lease.
constexpr std::size_t most_unanswered = 256;
/// Maximum number of changes of the ranks that a member asks for at a time.
constexpr std::size_t most_changes = 16;

} // namespace

control_session::control_session(session_services services)
  : services_{std::move(services)}, running_{services_.time->now(), terms_.heartbeat}, orphaned_{running_.last()} {}

std::string control_session::introduction() {
  const std::lock_guard lock{mutex_};
  return begin();
}

std::string control_session::begin() {
  if (state_ == state::joined) {
    orphaned_ = running_now();
    fail_changes({.code = errc::communicator_failed, .text = "the controller has ended the session of this process"});
  }
  if (state_ != state::leaving && state_ != state::left) state_ = state::joining;
  auto first = introduce();
  beats_ = 0;
  unanswered_ = {{0, boot_clock::now()}};
  return encode(process_frame{0, std::move(first)});
}

void control_session::rejoin() {
  services_.send(begin());
}

void control_session::receive(std::string_view bytes) {
  error why;
  auto frame = decode_controller_frame(bytes, why);
  std::unique_lock lock{mutex_};
  const bool is_of_session = frame && frame->session == terms_.session;
  if (const auto* batch = is_of_session && (state_ == state::joined || state_ == state::leaving)
                              ? std::get_if<order_batch>(&frame->what)
                              : nullptr) {
    silence_.end(running_now());
    static_cast<void>(follow(lock, batch->of, batch->bytes));
    return;
  }
  switch (state_) {
    case state::unconnected:
    case state::left: return;
    case state::leaving:
      if (!frame || std::holds_alternative<stop_directive>(frame->what) ||
          std::holds_alternative<fence_notice>(frame->what))
        end({});
      break;
    case state::joining: frame ? answer(frame->what) : refuse(why); break;
    case state::joined:
      if (!frame) {
        refuse(why);
      } else if (is_of_session) { // not, for example, a notice that an earlier session has ended
        silence_.end(running_now());
        if (auto* const reply = std::get_if<change_reply>(&frame->what)) {
          if (auto asked = changes_.extract(reply->number))
            answers_.push_back({std::move(asked.mapped()),
                                reply->why ? std::variant<world_processes, error>{std::move(reply->why)}
                                           : std::variant<world_processes, error>{std::move(reply->processes)}});
        } else {
          hear(frame->what);
        }
      }
  }
  lock.unlock();
  finish();
}

void control_session::answer(const controller_message& what) {
  if (const auto* refusal = std::get_if<join_refusal>(&what)) return end(refusal->why);
  const auto* welcome = std::get_if<join_welcome>(&what);
  if (welcome == nullptr) return;
  terms_ = *welcome;
  running_.count(terms_.heartbeat);
  state_ = state::joined;
  was_joined_ = true;
  session_->store(terms_.session);
  beat_ = running_now();
  silence_.end(beat_);
  admitted();
  if (!farewell_) return;
  services_.send(encode(process_frame{terms_.session, *std::exchange(farewell_, std::nullopt)}));
  state_ = state::leaving;
}

bool control_session::follow_ring(epoch of, std::string_view batch) {
  std::unique_lock lock{mutex_};
  silence_.end(running_now());
  return follow(lock, of, batch);
}

void control_session::disconnected(const error& why) {
  {
    const std::lock_guard lock{mutex_};
    lose(why);
  }
  finish();
}

void control_session::give_up(const error& why) {
  {
    const std::lock_guard lock{mutex_};
    if (state_ != state::left) end(why);
  }
  finish();
}

void control_session::lose(const error& why) {
  if (state_ == state::left) return;
  if (state_ == state::leaving) return end({});
  const bool was_connected = std::exchange(state_, state::unconnected) != state::unconnected;
  fail_changes(why);
  if (was_connected) orphaned_ = running_now();
  lost(why, was_connected);
  if ((was_joined_ && services_.ends_with_controller && !terms_.has_successors) || why.code == errc::invalid_argument ||
      running_now() - orphaned_ >= services_.patience)
    end(why);
}

bool control_session::tick() {
  std::unique_lock lock{mutex_};
  const time_point real = now();
  const running_time ticked = running_.read(real);
  lock.unlock();
  work(real, ticked);
  lock.lock();
  if (state_ == state::joining && ticked - orphaned_ >= services_.patience)
    end({.code = errc::deadline_exceeded,
         .text = "the controller has accepted the connection and has not answered for " +
                 std::to_string(std::chrono::duration_cast<std::chrono::seconds>(ticked - orphaned_).count()) +
                 " s: check that it runs, or give it more time (control.patience)"});
  if (state_ == state::joined && silence_.exceeds(silence_limit(), ticked))
    lose({.code = errc::communicator_failed,
          .text = "the controller has been silent for longer than " +
                  std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(silence_limit()).count()) +
                  " ms"});
  if (state_ == state::joined && ticked - beat_ >= terms_.heartbeat) beat();
  const bool is_needed = state_ == state::unconnected;
  lock.unlock();
  finish();
  return is_needed;
}

void control_session::end(const error& why) {
  state_ = state::left;
  farewell_.reset();
  fail_changes(why ? why : error{.code = errc::stopping, .text = "the process has left its world"});
  leaving_ended_.notify_all();
  ended(why);
}

void control_session::change(const rank_change& asked, std::shared_ptr<value_promise<world_processes>> reply) {
  error why;
  {
    const std::lock_guard lock{mutex_};
    if (state_ != state::joined)
      why = {.code = errc::rebuilding, .text = "this process has no session with the controller of its world now"};
    else if (changes_.size() >= most_changes)
      why = {.code = errc::busy, .text = std::to_string(most_changes) + " changes that this process asks for wait"};
    if (!why) {
      changes_.emplace(++last_change_, reply);
      send(change_request{last_change_, asked});
    }
  }
  if (why) reply->deliver(std::move(why));
}

void control_session::fail_changes(error why) {
  why.effect = effect::unknown_outcome;
  for (auto& [number, reply] : std::exchange(changes_, {})) answers_.push_back({std::move(reply), why});
}

void control_session::answer_changes() {
  std::unique_lock lock{mutex_};
  auto due = std::exchange(answers_, {});
  lock.unlock();
  for (change_answer& one : due) one.to->deliver(std::move(one.with));
}

void control_session::finish() {
  answer_changes();
  settle();
}

void control_session::leave(leave_notice what, bool is_confirmed) {
  const bool is_heard = state_ == state::joined;
  if (!is_confirmed) fail_changes({.code = errc::stopping, .text = "this process has left the world"});
  if (!is_heard && is_confirmed && terms_.has_successors &&
      (state_ == state::unconnected || state_ == state::joining)) {
    farewell_ = std::move(what);
    return;
  }
  send(std::move(what));
  state_ = is_heard && is_confirmed ? state::leaving : state::left;
}

void control_session::await_farewell(nanoseconds at_most) {
  std::unique_lock lock{mutex_};
  static_cast<void>(leaving_ended_.wait_for(lock, at_most, [this] { return state_ != state::leaving && !farewell_; }));
}

void control_session::send(process_message what) {
  if (state_ != state::joined || farewell_) return;
  services_.send(encode(process_frame{terms_.session, std::move(what)}));
}

void control_session::beat() {
  beat_ = running_now();
  unanswered_.insert_or_assign(++beats_, boot_clock::now());
  if (unanswered_.size() > most_unanswered) unanswered_.erase(unanswered_.begin());
  send(heartbeat{beats_});
}

std::optional<boot_time> control_session::sent_at(std::uint64_t number) {
  const auto found = unanswered_.find(number);
  if (found == unanswered_.end()) return std::nullopt;
  const boot_time sent = found->second;
  unanswered_.erase(unanswered_.begin(), found); // it may be asked for again
  return sent;
}

std::function<void(std::string)> control_session::batch_sender(epoch of) const {
  return [to = services_.send, session = terms_.session, of](std::string bytes) {
    to(encode(process_frame{session, order_batch{of, std::move(bytes)}}));
  };
}

std::function<void(std::string)> control_session::lasting_batch_sender(epoch of) const {
  return [to = services_.send, session = session_, of](std::string bytes) {
    to(encode(process_frame{session->load(), order_batch{of, std::move(bytes)}}));
  };
}

bool control_session::is_spare() const {
  const std::lock_guard lock{mutex_};
  return terms_.is_spare;
}

bool control_session::is_joined() const {
  const std::lock_guard lock{mutex_};
  return state_ == state::joined;
}

} // namespace troupe
