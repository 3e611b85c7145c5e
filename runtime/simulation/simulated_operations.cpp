// Makes the operations of a simulated run's ranks, on the known memory.
#include <troupe/runtime/simulation/simulated_memory.hpp>
#include <troupe/runtime/simulation/watched_block.hpp>

#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

namespace troupe::simulation {

namespace {

template <class Operation>
constexpr bool has_operands = requires(const Operation& one) {
  one.send;
  one.recv;
};

template <class Operation>
constexpr bool has_memory = requires(const Operation& one) {
  one.memory.memory;
};

} // namespace

buffer simulated_memory::hand_out(const planned_request& what, rank self, std::byte* first, std::size_t count) const {
  if (first == nullptr || count == 0) return {};
  const auto home = static_cast<std::size_t>(self.value() + (what.foreign == self ? 1 : 0)) % devices_.size();
  const auto under = registered_.find({what.number, self});
  return buffer{std::make_shared<watched_block>(devices_[home], first, count,
                                                under == registered_.end() ? buffer{} : under->second,
                                                [hook = hook_, number = what.number, self] {
                                                  if (hook) hook(number, self);
                                                })};
}

operation simulated_memory::part_of(const planned_request& what, rank self, bool less) const {
  if (what.what == operation_kind::barrier) return barrier{};
  const place& mine = place_of(what, self);
  constexpr dtype type = dtype::u64;
  const party all = party_of(what, self);
  const std::size_t count = what.count - (less && all.ranks.size() > 1 ? 1 : 0);
  const shape size = shape_of(what, self, all);
  buffer sent = hand_out(what, self, mine.sent, size.sent);
  buffer received = hand_out(what, self, mine.received, size.received);
  const auto fill = [&]<class Operation>(Operation one) {
    one.send = std::move(sent);
    one.recv = std::move(received);
    one.count = count;
    one.type = type;
    return one;
  };
  switch (what.what) {
    case operation_kind::all_reduce: return fill(all_reduce{});
    case operation_kind::broadcast: {
      broadcast one = fill(broadcast{});
      one.root = all.root_here;
      return one;
    }
    case operation_kind::reduce: {
      reduce one = fill(reduce{});
      one.root = all.root_here;
      return one;
    }
    case operation_kind::all_gather: return fill(all_gather{});
    case operation_kind::reduce_scatter: return fill(reduce_scatter{});
    case operation_kind::all_to_all: return fill(all_to_all{});
    case operation_kind::group: {
      group two;
      two.parts.emplace_back(all_reduce{.send = sent, .recv = received, .count = 1, .type = type});
      two.parts.emplace_back(all_reduce{.send = sent.slice(element_bytes, sent.size_bytes() - element_bytes),
                                        .recv = received.slice(element_bytes, received.size_bytes() - element_bytes),
                                        .count = count - 1,
                                        .type = type});
      return two;
    }
    case operation_kind::exchange: {
      group two;
      two.parts.emplace_back(
          send{.memory = sent, .count = count, .type = type, .peer = all.name_of(all.after(self)), .tag = 1});
      two.parts.emplace_back(
          recv{.memory = received, .count = count, .type = type, .peer = all.name_of(all.before(self)), .tag = 1});
      return two;
    }
    case operation_kind::transfer:
      if (size.sent > 0)
        return send{.memory = sent, .count = count, .type = type, .peer = all.name_of(all.after(self))};
      if (size.received > 0) return recv{.memory = received, .count = count, .type = type, .peer = all.root_here};
      return group{};
    case operation_kind::copy: {
      const rank from = all.before(self);
      const place& theirs = place_of(what, from);
      return copy{buffer{std::make_shared<watched_block>(devices_[static_cast<std::size_t>(from.value())], theirs.sent,
                                                         what.count, buffer{}, nullptr)},
                  received};
    }
    case operation_kind::barrier:
    case operation_kind::registration:
    case operation_kind::capture:
    case operation_kind::replay: break;
  }
  return barrier{};
}

std::optional<std::size_t> simulated_memory::request_of(const operation& part, rank self) const {
  const auto& known = requests_[static_cast<std::size_t>(self.value())];
  return std::visit(
      [&]<class Operation>(const Operation& one) -> std::optional<std::size_t> {
        if constexpr (std::is_same_v<Operation, group>) {
          if (!one.parts.empty()) return request_of(one.parts.front(), self);
        } else if constexpr (has_memory<Operation>) {
          const auto found = known.find(one.memory.memory.data());
          if (found != known.end()) return found->second;
        } else if constexpr (has_operands<Operation>) {
          const auto found = known.find(one.send.memory ? one.send.memory.data() : one.recv.memory.data());
          if (found != known.end()) return found->second;
        }
        return std::nullopt;
      },
      part);
}

} // namespace troupe::simulation
