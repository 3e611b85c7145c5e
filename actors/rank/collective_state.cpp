#include <troupe/actors/rank/collective_state.hpp>

#include <troupe/collectives/operation/agreement.hpp>
#include <troupe/collectives/operation/extents.hpp>
#include <troupe/collectives/operation/validation.hpp>
#include <troupe/device/memory/memory_reserve.hpp>

#include <bit>
#include <cstdint>
#include <string>
#include <utility>

namespace troupe {

error stale_epoch_error(epoch named, epoch now) {
  return {.code = errc::stale_epoch,
          .text = (named == epoch{} ? "the request names no epoch, and the world has been formed again: it"
                                    : "the request is for epoch " + to_string(named) + ", and the world") +
                  " is in epoch " + to_string(now) +
                  "; bring all ranks to one state, then pass that epoch to acknowledge() of the rank's lane "
                  "(troupe_lane_acknowledge() in C), or name it in the request (rank_request::epoch)",
          .epoch = now};
}

bool collective_state::terms::admits(epoch named) const noexcept {
  if (!pipeline) return false;
  const epoch now = pipeline->formed_in();
  return named == epoch{} ? since <= first : since <= named && named <= now;
}

collective_state::collective_state(rank self)
  : self_{self},
    terms_{{.closed = {.code = errc::world_failed,
                       .text = "the world is still forming: wait until it is ready",
                       .rank = self}}} {}

void collective_state::adopt(std::shared_ptr<rank_pipeline> pipeline, std::shared_ptr<rank_order> order,
                             nanoseconds default_deadline, std::shared_ptr<admission_quota> pending, epoch first,
                             epoch since) {
  if (since == epoch{}) since = pipeline->formed_in();
  terms_.change([&](terms& now) {
    if (now.ended) return;
    now = {.pipeline = std::move(pipeline),
           .order = std::move(order),
           .default_deadline = default_deadline,
           .pending = std::move(pending),
           .first = first,
           .since = since};
  });
}

void collective_state::close(error reason) {
  reason.effect = effect::rejected;
  terms_.change([&](terms& now) {
    if (!now.ended) now.closed = std::move(reason);
  });
}

void collective_state::lose(error reason) {
  reason.effect = effect::rejected;
  terms_.change([&](terms& now) {
    if (!now.ended) now = {.closed = std::move(reason)};
  });
}

void collective_state::accept(rank_request asked, reply_promise reply, std::uint64_t client) noexcept {
  if (made_.is_inherited()) return reply.deliver(used_in_fork("this world"));
  try {
    const auto reading = terms_.read();
    const terms& now = *reading;
    error objection = objection_to(asked, now);
    if (!objection && reply.listener() != nullptr && std::holds_alternative<agree>(asked.what))
      objection = no_launch_of_agree();
    // A refused agree takes its position all the same: else this rank's next one would meet the peers' present one.
    std::unique_ptr<error> told;
    if (objection && takes_position(asked, now)) told = refuse_in_order(asked, std::exchange(objection, {}), now);
    if (!objection && now.pending->is_bounded()) objection = charge(asked, now, reply);
    if (objection) {
      if (!objection.rank && objection.code != errc::rank_lost) objection.rank = name_in(now);
      return reply.deliver(std::move(objection));
    }
    const nanoseconds deadline = asked.deadline == world_default_deadline ? now.default_deadline : asked.deadline;
    const ticket name{next_.fetch_add(1, std::memory_order_relaxed)};
    if (!now.order)
      return now.pipeline->submit({.name = name,
                                   .what = std::move(asked.what),
                                   .deadline = deadline,
                                   .reply = std::move(reply),
                                   .client = client,
                                   .site = asked.site});
    now.order->ask(name_in(now), {.what = std::move(asked.what),
                                  .name = name,
                                  .deadline = deadline,
                                  .reply = std::move(reply),
                                  .where = asked.lane,
                                  .client = client,
                                  .position = asked.position,
                                  .site = asked.site,
                                  .objection = std::move(told)});
  } catch (...) {
    reply.deliver(current_error()); // out of memory before the request was passed on
  }
}

void collective_state::accept_for_peer(rank_request asked, error objection, reply_promise reply,
                                       std::uint64_t client) noexcept {
  try {
    const auto reading = terms_.read();
    const terms& now = *reading;
    if (!objection) objection = objection_to(asked, now);
    if (!now.order) return reply.deliver(std::move(objection)); // the rank has left the world
    std::unique_ptr<error> told;
    if (objection) told = refuse_in_order(asked, std::move(objection), now);
    now.order->ask(name_in(now), {.what = std::move(asked.what),
                                  .name = ticket{next_.fetch_add(1, std::memory_order_relaxed)},
                                  .deadline = asked.deadline,
                                  .reply = std::move(reply),
                                  .where = asked.lane,
                                  .client = client,
                                  .site = asked.site,
                                  .objection = std::move(told)});
  } catch (...) {
    reply.deliver(current_error());
  }
}

error collective_state::charge(const rank_request& asked, const terms& now, reply_promise& reply) {
  return troupe::charge(*now.pending, lines_.of(asked.lane, now.pending), asked.credit,
                        now.pending->counts_bytes() ? held_bytes(asked.what) : 0, reply);
}

bool collective_state::takes_position(const rank_request& asked, const terms& now) noexcept {
  return std::holds_alternative<agree>(asked.what) && now.order && !now.closed && now.admits(asked.epoch);
}

std::unique_ptr<error> collective_state::refuse_in_order(rank_request& asked, error why, const terms& now) const {
  if (const auto* one = std::get_if<agree>(&asked.what)) asked.what = stand_in_for(*one); // as a message it is refused
  if (asked.deadline < nanoseconds{0}) asked.deadline = now.default_deadline;
  if (!why.rank) why.rank = name_in(now);
  return std::make_unique<error>(std::move(why));
}

void collective_state::cancel(const cancel_request& query) {
  if (made_.is_inherited()) return;
  const auto now = terms_.read();
  if (now->order && now->admits(query.epoch)) now->order->cancel(name_in(*now), query.lane, query.position);
}

void collective_state::forget(std::uint64_t client, const error& why) {
  if (made_.is_inherited()) return;
  const auto now = terms_.read();
  if (now->order) now->order->withdraw(name_in(*now), client, why);
}

error collective_state::objection_to(const rank_request& asked, const terms& now) {
  if (host_memory_is_short()) return no_host_memory();
  if (now.closed) return now.closed;
  if (!now.admits(asked.epoch)) return stale_epoch_error(asked.epoch, now.pipeline->formed_in());
  if (asked.deadline < nanoseconds{0})
    return error{.code = errc::invalid_argument, .text = "a deadline cannot be negative"};
  if (std::holds_alternative<agree>(asked.what) && !now.order) return no_agreed_order();
  const rank_context at = now.pipeline->context();
  error why = validate(asked.what, at);
  return why ? why : check_transfers_to_self({&asked.what, 1}, at.self);
}

void collective_state::end(const std::string& reason) {
  const bool has_left = reason.empty(); // with its world, which has said why before, unless it was rebuilding
  error why{.code = errc::abandoned};
  std::shared_ptr<rank_pipeline> pipeline;
  terms_.change([&](terms& now) {
    why.rank = name_in(now);
    why.text = "the collective actor of rank " + to_string(*why.rank) +
               " has ended: " + (has_left ? "it was asked to leave" : reason);
    now.ended = true;
    if (!has_left)
      now.closed = why;
    else if (!now.closed || now.closed.code == errc::rebuilding)
      now.closed = {.code = errc::stopping, .text = "the world has stopped", .rank = why.rank};
    pipeline = now.pipeline;
  });
  if (pipeline && pipeline->load() > 0) pipeline->fail(std::move(why));
}

pending_line& lane_lines::of(lane one, const std::shared_ptr<admission_quota>& where) {
  const std::uint64_t number = std::uint64_t{one.index()} + 1;
  const auto run = static_cast<std::size_t>(std::bit_width(number)) - 1;
  const auto place = static_cast<std::size_t>(number - (std::uint64_t{1} << run));
  if (const slot* const there = runs_[run].load(std::memory_order_acquire))
    if (pending_line* const line = there[place].load(std::memory_order_acquire)) return *line;
  return make(run, place, where);
}

pending_line& lane_lines::make(std::size_t run, std::size_t place, const std::shared_ptr<admission_quota>& where) {
  const std::lock_guard lock{mutex_};
  slot* there = runs_[run].load(std::memory_order_relaxed);
  if (there == nullptr) {
    all_runs_.push_back(std::make_unique<slot[]>(std::size_t{1} << run));
    there = all_runs_.back().get();
    runs_[run].store(there, std::memory_order_release);
  }
  if (pending_line* const line = there[place].load(std::memory_order_relaxed)) return *line;
  all_.push_back(make_pending_line(where));
  there[place].store(all_.back().get(), std::memory_order_release);
  return *all_.back();
}

} // namespace troupe
