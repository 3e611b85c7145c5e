// Decides whether a request is admitted, and with which error it is refused.
#include <troupe/actors/world/world_state.hpp>
#include <troupe/collectives/operation/signature.hpp>

#include <string>

namespace troupe {

namespace {

/// A request to the whole world that names no epoch is for the present one.
error epoch_objection(epoch meant_for, epoch now) {
  if (meant_for == now || meant_for == epoch{}) return {};
  return {.code = errc::stale_epoch,
          .text = "the request is for epoch " + to_string(meant_for) + ", the world is in epoch " + to_string(now) +
                  ": take the epoch from the world's latest event, or name none for the present one",
          .epoch = now};
}

} // namespace

error world_state::stopping_error() {
  return {.code = errc::stopping, .text = "the world is stopping and takes no new requests"};
}

error world_state::maintenance_objection(epoch meant_for) const {
  if (stop_requested_) return stopping_error();
  error objection = phase_objection();
  return objection ? objection : epoch_objection(meant_for, epoch_);
}

error world_state::phase_objection() const {
  switch (phase_) {
    case world_phase::ready: break;
    case world_phase::forming:
      if (!has_served_)
        return {.code = errc::world_failed, .text = "the world is still forming: wait until it is ready"};
      [[fallthrough]];
    case world_phase::rebuilding:
      return {.code = errc::rebuilding,
              .text = "the world is being formed anew: wait until it is ready in its next epoch; the reason was " +
                      to_string(reason_),
              .epoch = epoch_};
    case world_phase::failed:
      return {.code = errc::world_failed,
              .text = "the world has failed, form a new one; the reason was " + to_string(reason_),
              .epoch = epoch_};
    case world_phase::stopping:
    case world_phase::stopped: return stopping_error();
  }
  return {};
}

world_admission world_state::admission() const {
  return {.refusal = phase_objection(),
          .epoch = epoch_,
          .world_size = world_size_,
          .local_count = local_ranks_.size(),
          .began_with = began_with_};
}

error world_admission::objection_to(const world_request& asked) const {
  if (refusal) return refusal;
  if (error objection = epoch_objection(asked.epoch, epoch)) return objection;
  if (local_count != static_cast<std::size_t>(world_size))
    return {.code = errc::unsupported,
            .text = "only " + std::to_string(local_count) + " of the world's " + std::to_string(world_size) +
                    " ranks live in this process: ask each rank's collective actor instead"};
  if (asked.parts.size() != local_count)
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

} // namespace troupe
