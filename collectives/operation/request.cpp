#include <troupe/collectives/operation/request.hpp>

#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace troupe {

namespace {

/// Returns the operand of \p what to which a ready event is attached. It has no event, and it has memory if any such
/// operand has.
operand* operand_to_wait(operation& what) {
  return std::visit(
      [](auto& one) -> operand* {
        using type = std::remove_reference_t<decltype(one)>;
        const auto first = [](std::initializer_list<operand*> all) -> operand* {
          operand* found = nullptr;
          for (operand* const each : all)
            if (!each->ready && (!found || (found->memory.size_bytes() == 0 && each->memory.size_bytes() != 0)))
              found = each;
          return found;
        };
        if constexpr (requires { one.send; }) return first({&one.send, &one.recv});
        if constexpr (requires { one.memory; }) return first({&one.memory});
        if constexpr (requires { one.from; }) return first({&one.from, &one.to});
        if constexpr (std::is_same_v<type, group>)
          for (operation& part : one.parts)
            if (operand* const found = operand_to_wait(part)) return found;
        return nullptr;
      },
      what);
}

void set_staged(operation& what) {
  std::visit(
      [](auto& one) {
        if constexpr (requires { one.staged; }) one.staged = true;
      },
      what);
}

} // namespace

void prepare_operands(std::span<operation> parts, const per_rank<shared_event>& ready, bool staged) {
  if (staged)
    for (operation& part : parts) set_staged(part);
  if (ready.empty()) return;
  if (ready.size() != parts.size())
    throw exception{errc::invalid_argument, "there are " + std::to_string(ready.size()) + " ready events for " +
                                                std::to_string(parts.size()) + " ranks: give one for each"};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const shared_event& event = ready.data()[i];
    if (!event) continue;
    operand* const waits = operand_to_wait(parts[i]);
    if (waits == nullptr)
      throw exception{errc::invalid_argument, "no operand of " + std::string{name_of(parts[i])} +
                                                  " can take the ready event: all have one already, or there are none"};
    waits->ready = event;
  }
}

std::vector<operation> transfer_parts(int world_size, rank source, operand from, rank destination, operand to,
                                      std::size_t count, dtype type, int tag) {
  std::vector<group> groups(static_cast<std::size_t>(world_size));
  const auto parts_of = [&](rank self) -> std::vector<operation>& {
    if (self.value() < 0 || self.value() >= world_size)
      throw exception{errc::invalid_argument, "rank " + to_string(self) + " is not in this world: its ranks are 0 to " +
                                                  std::to_string(world_size - 1)};
    return groups[static_cast<std::size_t>(self.value())].parts;
  };
  parts_of(source).emplace_back(send{std::move(from), count, type, destination, tag});
  parts_of(destination).emplace_back(recv{std::move(to), count, type, source, tag});
  return {groups.begin(), groups.end()};
}

world_request make_request(std::vector<operation> parts, request_options options, call_site from) {
  prepare_operands(parts, options.ready, options.staged);
  return {.parts = std::move(parts),
          .epoch = options.epoch,
          .deadline = options.deadline,
          .credit = std::move(options.credit),
          .site = from};
}

rank_request make_request(operation what, request_options options, call_site from) {
  prepare_operands({&what, 1}, options.ready, options.staged);
  return {.what = std::move(what),
          .epoch = options.epoch,
          .deadline = options.deadline,
          .credit = std::move(options.credit),
          .site = from};
}

std::vector<outcome> part_outcomes(const group& asked, const outcome& whole) {
  std::vector<outcome> all(asked.parts.size(), whole);
  const error* const failure = failure_of(whole);
  if (failure == nullptr || !failure->part || failure->effect == effect::unknown_outcome) return all;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i == *failure->part) continue;
    error other = *failure;
    other.text = "not done, because part " + std::to_string(*failure->part) + " of its group was refused";
    all[i] = std::move(other);
  }
  return all;
}

} // namespace troupe
