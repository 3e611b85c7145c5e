#include <troupe/collectives/operation/extents.hpp>

#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/dtype.hpp>

#include <new>
#include <numeric>
#include <type_traits>
#include <variant>

namespace troupe {

namespace {

class extent_walker {
public:
  /// The in-place offset: see footprint.
  using placement = std::optional<std::ptrdiff_t>;

  extent_walker(rank self, int world_size, extent_visitor found)
    : self_{self}, place_{index(self)}, size_{static_cast<std::size_t>(world_size)}, found_{found} {}

  placement operator()(const all_reduce& what) { return both(what, what.count, what.count, 0); }
  placement operator()(const reduce& what) {
    read(what.send.memory, "send", 0, what.count, what.type);
    if (self_ == what.root) write(what.recv.memory, "recv", 0, what.count, what.type);
    return with_factor(what, 0);
  }
  placement operator()(const broadcast& what) {
    if (self_ == what.root) read(what.send.memory, "send", 0, what.count, what.type);
    write(what.recv.memory, "recv", 0, what.count, what.type);
    return 0;
  }
  placement operator()(const all_gather& what) {
    return both(what, what.count, size_ * what.count, offset(place_, what.count));
  }
  placement operator()(const reduce_scatter& what) {
    return both(what, size_ * what.count, what.count, -offset(place_, what.count));
  }
  placement operator()(const all_to_all& what) {
    return both(what, size_ * what.count, size_ * what.count, std::nullopt);
  }
  placement operator()(const gather& what) {
    read(what.send.memory, "send", 0, what.count, what.type);
    if (self_ == what.root) write(what.recv.memory, "recv", 0, size_ * what.count, what.type);
    return offset(place_, what.count);
  }
  placement operator()(const scatter& what) {
    if (self_ == what.root) read(what.send.memory, "send", 0, size_ * what.count, what.type);
    write(what.recv.memory, "recv", 0, what.count, what.type);
    return -offset(place_, what.count);
  }
  placement operator()(const all_gather_v& what) {
    read(what.send.memory, "send", 0, what.recv_parts.counts[place_], what.type);
    write_parts(what.recv.memory, what.recv_parts, what.type);
    return offset(1, what.recv_parts.displacements[place_]);
  }
  placement operator()(const reduce_scatter_v& what) {
    read_parts(what.send.memory, what.send_parts, what.type);
    write(what.recv.memory, "recv", 0, what.send_parts.counts[place_], what.type);
    return with_factor(what, -offset(1, what.send_parts.displacements[place_]));
  }
  placement operator()(const gather_v& what) {
    read(what.send.memory, "send", 0, what.recv_parts.counts[place_], what.type);
    if (self_ == what.root) write_parts(what.recv.memory, what.recv_parts, what.type);
    return offset(1, what.recv_parts.displacements[place_]);
  }
  placement operator()(const scatter_v& what) {
    if (self_ == what.root) read_parts(what.send.memory, what.send_parts, what.type);
    write(what.recv.memory, "recv", 0, what.send_parts.counts[place_], what.type);
    return -offset(1, what.send_parts.displacements[place_]);
  }
  placement operator()(const all_to_all_v& what) {
    read_parts(what.send.memory, what.send_parts, what.type);
    write_parts(what.recv.memory, what.recv_parts, what.type);
    return std::nullopt;
  }
  placement operator()(const send& what) {
    read(what.memory.memory, "send", 0, what.count, what.type);
    return std::nullopt;
  }
  placement operator()(const recv& what) {
    write(what.memory.memory, "recv", 0, what.count, what.type);
    return std::nullopt;
  }
  placement operator()(const barrier&) { return std::nullopt; }
  placement operator()(const agree&) { return std::nullopt; }
  placement operator()(const copy& what) {
    const std::size_t length = what.from.memory.size_bytes();
    read(what.from.memory, "source", 0, length, dtype::u8);
    write(what.to.memory, "destination", 0, length, dtype::u8);
    return std::nullopt;
  }
  placement operator()(const group&) { return std::nullopt; }
  placement operator()(const replay&) { return std::nullopt; } // Capture has checked its requests.
  placement operator()(const call& what) {
    for (const operand& one : what.arguments) write(one.memory, "argument", 0, one.memory.size_bytes(), dtype::u8);
    return std::nullopt;
  }

private:
  static std::size_t index(rank one) { return static_cast<std::size_t>(one.value()); }
  static std::ptrdiff_t offset(std::size_t parts, std::size_t count) {
    return static_cast<std::ptrdiff_t>(parts * count);
  }

  void read(const buffer& memory, std::string_view role, std::size_t first, std::size_t count, dtype type) {
    found_({&memory, role, first, count, type, false});
  }
  void write(const buffer& memory, std::string_view role, std::size_t first, std::size_t count, dtype type) {
    found_({&memory, role, first, count, type, true});
  }
  void read_parts(const buffer& memory, const partition& parts, dtype type) {
    for (std::size_t i = 0; i < size_; ++i) read(memory, "send", parts.displacements[i], parts.counts[i], type);
  }
  void write_parts(const buffer& memory, const partition& parts, dtype type) {
    for (std::size_t i = 0; i < size_; ++i) write(memory, "recv", parts.displacements[i], parts.counts[i], type);
  }

  template <class Operation>
  placement both(const Operation& what, std::size_t sent, std::size_t received, placement in_place) {
    read(what.send.memory, "send", 0, sent, what.type);
    write(what.recv.memory, "recv", 0, received, what.type);
    if constexpr (requires { what.factor; }) return with_factor(what, in_place);
    return in_place;
  }
  template <class Operation>
  placement with_factor(const Operation& what, placement in_place) {
    if (what.op == reduction::pre_mul_sum && what.factor.memory) read(what.factor.memory, "factor", 0, 1, what.type);
    return in_place;
  }

  rank self_;
  std::size_t place_;
  std::size_t size_;
  extent_visitor found_;
};

constexpr std::size_t extents_of_most = 3; ///< Extents of most operations: send, recv, factor.

} // namespace

footprint footprint_of(const operation& what, rank self, int world_size, std::pmr::memory_resource* from) {
  footprint found{.extents = std::pmr::vector<extent>{from}};
  found.extents.reserve(extents_of_most);
  auto keep = [&found](const extent& one) { found.extents.push_back(one); };
  found.in_place = std::visit(extent_walker{self, world_size, keep}, what);
  return found;
}

void visit_extents(const operation& what, rank self, int world_size, extent_visitor visit) {
  if (const auto* several = std::get_if<group>(&what))
    for (const operation& part : several->parts) visit_extents(part, self, world_size, visit);
  else
    std::visit(extent_walker{self, world_size, visit}, what);
}

namespace {

undefined_buffer name_range(const buffer& memory, rank self, std::size_t first_byte, std::size_t size_bytes) {
  undefined_buffer one{.rank = self, .address = memory.data() + first_byte, .size_bytes = size_bytes};
  if (!memory.on_host() && memory.where() != nullptr) one.device = memory.where()->id();
  return one;
}

} // namespace

std::shared_ptr<const undefined_buffers> undefined_ranges(const operation& what, rank self, int world_size,
                                                          device_id where) noexcept {
  try {
    auto all = std::make_shared<undefined_buffers>();
    if (const auto* again = std::get_if<replay>(&what)) {
      if (!again->of) return all;
      for (const buffer& one : again->of->written_on(where))
        if (one.size_bytes() > 0) all->push_back(name_range(one, self, 0, one.size_bytes()));
      return all;
    }
    auto note = [&](const extent& one) {
      if (!one.written || one.count == 0 || !*one.memory) return;
      const std::size_t width = size_bytes(one.type);
      all->push_back(name_range(*one.memory, self, one.first * width, one.count * width));
    };
    visit_extents(what, self, world_size, note);
    return all;
  } catch (const std::bad_alloc&) { // the original error matters more
    return nullptr;
  }
}

std::size_t held_bytes(const operation& what) {
  std::size_t sum = 0;
  const std::byte* last = nullptr;
  visit_operands(what, [&](const operand& one, std::string_view) {
    if (one.memory.size_bytes() == 0 || one.memory.data() == last) return;
    last = one.memory.data();
    sum += one.memory.size_bytes();
  });
  return sum;
}

namespace {

template <class T>
std::size_t payload_of_one(const T& what) noexcept {
  [[maybe_unused]] const auto all_of = [](const partition& parts) {
    return std::accumulate(parts.counts.begin(), parts.counts.end(), std::size_t{0});
  };
  if constexpr (std::is_same_v<T, copy>)
    return what.from.memory.size_bytes();
  else if constexpr (std::is_same_v<T, group>) {
    std::size_t bytes = 0;
    for (const operation& part : what.parts) bytes += payload_of(part);
    return bytes;
  } else if constexpr (requires { what.count; })
    return what.count * size_bytes(what.type);
  else if constexpr (requires { what.send_parts; })
    return all_of(what.send_parts) * size_bytes(what.type);
  else if constexpr (requires { what.recv_parts; })
    return all_of(what.recv_parts) * size_bytes(what.type);
  else
    return 0;
}

} // namespace

std::size_t payload_of(const operation& what) noexcept {
  if (what.valueless_by_exception()) return 0;
  return std::visit([](const auto& one) { return payload_of_one(one); }, what);
}

} // namespace troupe
