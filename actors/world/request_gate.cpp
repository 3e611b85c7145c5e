#include <troupe/actors/world/request_gate.hpp>
#include <troupe/collectives/operation/agreement.hpp>
#include <troupe/collectives/operation/extents.hpp>
#include <troupe/collectives/operation/signature.hpp>
#include <troupe/collectives/operation/validation.hpp>
#include <troupe/device/memory/memory_reserve.hpp>

#include <string>
#include <utility>

namespace troupe {

error epoch_objection(epoch meant_for, epoch now) {
  if (meant_for == now || meant_for == epoch{}) return {};
  return {.code = errc::stale_epoch,
          .text = "the request is for epoch " + to_string(meant_for) + ", the world is in epoch " + to_string(now) +
                  ": take the epoch from the world's latest event, or name none for the present one",
          .epoch = now};
}

error world_admission::objection_to(const world_request& asked) const {
  if (refusal) return refusal;
  const bool is_present = since != troupe::epoch{} && asked.epoch >= since && asked.epoch <= epoch;
  if (error objection = epoch_objection(is_present ? epoch : asked.epoch, epoch)) return objection;
  if (local_count != static_cast<std::size_t>(world_size) && !has_peers)
    return {.code = errc::unsupported,
            .text = "only " + std::to_string(local_count) + " of the world's " + std::to_string(world_size) +
                    " ranks live in this process, and under ordering::caller only these can be asked: ask each rank in "
                    "its own process, or set ordering to agreed"};
  if (asked.parts.size() != static_cast<std::size_t>(world_size))
    return {.code = errc::invalid_argument,
            .text = "the request has " + std::to_string(asked.parts.size()) + " parts, the world has " +
                    std::to_string(world_size) + " ranks" +
                    (began_with > world_size ? ", no longer the " + std::to_string(began_with) + " that it began with"
                                             : std::string{}) +
                    ": give one part for each rank"};
  if (asked.deadline < nanoseconds{0})
    return error{.code = errc::invalid_argument, .text = "a deadline cannot be negative"};
  return check_agreement(asked.parts);
}

request_gate::request_gate(nanoseconds default_deadline, std::shared_ptr<admission_quota> pending, terms first)
  : default_deadline_{default_deadline},
    pending_{std::move(pending)},
    line_{make_pending_line(pending_)},
    terms_{std::move(first)} {}

void request_gate::close() {
  terms_.change([](terms& now) {
    error why = std::move(now.admission.refusal);
    if (!why) why = {.code = errc::stopping, .text = "the world has stopped and accepts no new requests"};
    now = {.admission = {.refusal = std::move(why)}};
  });
}

void request_gate::accept(world_request asked, reply_promise reply, std::uint64_t client) noexcept {
  if (made_.is_inherited()) return reply.deliver(used_in_fork("this world"));
  try {
    const auto reading = terms_.read();
    const terms& now = *reading;
    const ticket name{next_.fetch_add(1, std::memory_order_relaxed)};
    if (error objection = admit(asked, now, reply)) {
      objection.ticket = name;
      return reply.deliver(std::move(objection));
    }
    const nanoseconds deadline = asked.deadline == world_default_deadline ? default_deadline_ : asked.deadline;
    if (now.peers)
      return now.peers->ask({.name = name,
                             .parts = std::move(asked.parts),
                             .deadline = deadline,
                             .reply = std::move(reply),
                             .site = asked.site});
    now.order->ask_all(name, std::move(asked.parts), deadline, std::move(reply), client, asked.site);
  } catch (...) {
    reply.deliver(current_error()); // out of memory before the request was handed on
  }
}

namespace {

/// Returns whether its parts, which agree, are those of an agree.
bool is_agree(const world_request& asked) {
  return !asked.parts.empty() && std::holds_alternative<agree>(asked.parts.front());
}

/// Replaces the handles and names in \p parts by the local objects that they refer to. All ranks must be in this
/// process.
error resolve(std::vector<operation>& parts, const local_names& here) {
  error why;
  for (std::size_t i = 0; i < parts.size() && !why; ++i) why = resolve_part(parts[i], here, rank{static_cast<int>(i)});
  return why;
}

} // namespace

void request_gate::find(rank target, const std::string& name, nanoseconds deadline,
                        remote_ranks::handle_promise reply) const {
  if (made_.is_inherited()) return reply->deliver(used_in_fork("this world"));
  const auto reading = terms_.read();
  const terms& now = *reading;
  if (now.peers) return now.peers->find(target, name, deadline, std::move(reply));
  try {
    if (!now.here.memory)
      throw exception{now.admission.refusal
                          ? now.admission.refusal
                          : error{.code = errc::unsupported, .text = "no memory can be exported in this world"}};
    reply->deliver(now.here.memory->find(name, target, false));
  } catch (const exception& failure) {
    reply->deliver(failure.why());
  }
}

error request_gate::admit(world_request& asked, const terms& now, reply_promise& reply) const {
  if (host_memory_is_short()) return no_host_memory();
  if (error objection = now.admission.objection_to(asked)) return objection;
  if (!now.peers) { // else each rank's process validates its part
    error objection = objection_to(asked.parts, now);
    if (objection) { // the operands may be handles and names: resolve these, and validate again
      error missing = resolve(asked.parts, now.here);
      objection = missing ? std::move(missing) : objection_to(asked.parts, now);
    }
    if (objection) return objection;
  }
  if (now.peers && reply.listener() != nullptr)
    return {.code = errc::unsupported,
            .text = "a request to ranks of other processes has one answer, because events can be waited for in their "
                    "own process only: use ask()"};
  if (reply.listener() != nullptr && is_agree(asked)) return no_launch_of_agree();
  if (now.order && !now.order->is_agreed() && is_agree(asked)) return no_agreed_order();
  return pending_->is_bounded() ? charge(asked, reply) : error{};
}

error request_gate::charge(const world_request& asked, reply_promise& reply) const {
  std::size_t bytes = 0;
  if (pending_->counts_bytes())
    for (const operation& part : asked.parts) bytes += held_bytes(part);
  return troupe::charge(*pending_, *line_, asked.credit, bytes, reply);
}

error request_gate::objection_to(const std::vector<operation>& parts, const terms& now) const {
  // Check every rank's part before any is sent: a part refused later would leave its peers hanging (ORD-2).
  for (std::size_t i = 0; i < parts.size(); ++i) {
    rank_context at = (*now.contexts)[i];
    at.stamp.epoch = now.admission.epoch;
    error objection = validate(parts[i], at);
    if (!objection) objection = check_transfers_to_self({&parts[i], 1}, at.self);
    if (objection) {
      objection.rank = at.self;
      return objection;
    }
  }
  for (const auto& one : now.registered)
    if (error objection = check_places(parts, *one)) return objection;
  return {};
}

} // namespace troupe
