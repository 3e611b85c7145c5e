#include <troupe/actors/world_entrance.hpp>

#include <utility>

namespace troupe {

world_entrance::world_entrance(std::vector<seat> seats, std::vector<std::shared_ptr<device>> devices,
                               std::shared_ptr<const capabilities> able, nanoseconds default_deadline, terms first)
  : seats_{std::move(seats)},
    devices_{std::move(devices)},
    able_{std::move(able)},
    default_deadline_{default_deadline},
    terms_{std::move(first)} {}

void world_entrance::accept(world_request asked, answer reply) noexcept {
  try {
    const terms& now = terms_.get();
    const ticket name{next_.fetch_add(1, std::memory_order_relaxed)};
    if (error objection = objection_to(asked, now)) {
      objection.ticket = name;
      return reply.deliver(std::move(objection));
    }
    const nanoseconds deadline = asked.deadline == world_default_deadline ? default_deadline_ : asked.deadline;
    now.order->ask_all(name, std::move(asked.parts), deadline, std::move(reply));
  } catch (...) {
    reply.deliver(current_error()); // out of memory, and not handed on
  }
}

error world_entrance::objection_to(const world_request& asked, const terms& now) const {
  if (error objection = now.admission.objection_to(asked)) return objection;
  // Every rank's part is checked before any is sent: a part refused later would leave its peers hanging (ORD-2).
  for (std::size_t i = 0; i < asked.parts.size(); ++i)
    if (error objection = validate(asked.parts[i], seats_[i])) {
      objection.rank = seats_[i].self;
      return objection;
    }
  for (const auto& one : now.registered)
    if (error objection = check_places(asked.parts, *one)) return objection;
  return {};
}

} // namespace troupe
