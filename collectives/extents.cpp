#include <troupe/collectives/extents.hpp>

#include <type_traits>

namespace troupe {

namespace {

class surveyor {
public:
  surveyor(rank self, int world_size) : self_{self}, place_{index(self)}, size_{static_cast<std::size_t>(world_size)} {}

  footprint operator()(const all_reduce& what) { return both(what, what.count, what.count, 0); }
  footprint operator()(const reduce& what) {
    read(what.send.memory, "send", 0, what.count, what.type);
    if (self_ == what.root) write(what.recv.memory, "recv", 0, what.count, what.type);
    return with_factor(what, 0);
  }
  footprint operator()(const broadcast& what) {
    if (self_ == what.root) read(what.send.memory, "send", 0, what.count, what.type);
    write(what.recv.memory, "recv", 0, what.count, what.type);
    return done(0);
  }
  footprint operator()(const all_gather& what) {
    return both(what, what.count, size_ * what.count, offset(place_, what.count));
  }
  footprint operator()(const reduce_scatter& what) {
    return both(what, size_ * what.count, what.count, -offset(place_, what.count));
  }
  footprint operator()(const all_to_all& what) {
    return both(what, size_ * what.count, size_ * what.count, std::nullopt);
  }
  footprint operator()(const gather& what) {
    read(what.send.memory, "send", 0, what.count, what.type);
    if (self_ == what.root) write(what.recv.memory, "recv", 0, size_ * what.count, what.type);
    return done(offset(place_, what.count));
  }
  footprint operator()(const scatter& what) {
    if (self_ == what.root) read(what.send.memory, "send", 0, size_ * what.count, what.type);
    write(what.recv.memory, "recv", 0, what.count, what.type);
    return done(-offset(place_, what.count));
  }
  footprint operator()(const all_gather_v& what) {
    read(what.send.memory, "send", 0, what.recv_parts.counts[place_], what.type);
    write_parts(what.recv.memory, what.recv_parts, what.type);
    return done(offset(1, what.recv_parts.displacements[place_]));
  }
  footprint operator()(const reduce_scatter_v& what) {
    read_parts(what.send.memory, what.send_parts, what.type);
    write(what.recv.memory, "recv", 0, what.send_parts.counts[place_], what.type);
    return with_factor(what, -offset(1, what.send_parts.displacements[place_]));
  }
  footprint operator()(const all_to_all_v& what) {
    read_parts(what.send.memory, what.send_parts, what.type);
    write_parts(what.recv.memory, what.recv_parts, what.type);
    return done(std::nullopt);
  }
  footprint operator()(const send& what) {
    read(what.memory.memory, "send", 0, what.count, what.type);
    return done(std::nullopt);
  }
  footprint operator()(const recv& what) {
    write(what.memory.memory, "recv", 0, what.count, what.type);
    return done(std::nullopt);
  }
  footprint operator()(const barrier&) { return {}; }
  footprint operator()(const copy& what) {
    const std::size_t length = what.from.memory.size_bytes();
    read(what.from.memory, "source", 0, length, dtype::u8);
    write(what.to.memory, "destination", 0, length, dtype::u8);
    return done(std::nullopt);
  }
  footprint operator()(const group&) { return {}; }

private:
  static std::size_t index(rank one) { return static_cast<std::size_t>(one.value()); }
  static std::ptrdiff_t offset(std::size_t parts, std::size_t count) {
    return static_cast<std::ptrdiff_t>(parts * count);
  }

  void read(const buffer& memory, std::string_view role, std::size_t first, std::size_t count, dtype type) {
    found_.extents.push_back({&memory, role, first, count, type, false});
  }
  void write(const buffer& memory, std::string_view role, std::size_t first, std::size_t count, dtype type) {
    found_.extents.push_back({&memory, role, first, count, type, true});
  }
  void read_parts(const buffer& memory, const partition& parts, dtype type) {
    for (std::size_t i = 0; i < size_; ++i) read(memory, "send", parts.displacements[i], parts.counts[i], type);
  }
  void write_parts(const buffer& memory, const partition& parts, dtype type) {
    for (std::size_t i = 0; i < size_; ++i) write(memory, "recv", parts.displacements[i], parts.counts[i], type);
  }

  template <class Operation>
  footprint both(const Operation& what, std::size_t sent, std::size_t received,
                 std::optional<std::ptrdiff_t> in_place) {
    read(what.send.memory, "send", 0, sent, what.type);
    write(what.recv.memory, "recv", 0, received, what.type);
    if constexpr (requires { what.factor; }) return with_factor(what, in_place);
    return done(in_place);
  }
  template <class Operation>
  footprint with_factor(const Operation& what, std::optional<std::ptrdiff_t> in_place) {
    if (what.op == reduction::pre_mul_sum && what.factor.memory) read(what.factor.memory, "factor", 0, 1, what.type);
    return done(in_place);
  }
  footprint done(std::optional<std::ptrdiff_t> in_place) {
    found_.in_place = in_place;
    return std::move(found_);
  }

  rank self_;
  std::size_t place_;
  std::size_t size_;
  footprint found_;
};

} // namespace

footprint footprint_of(const operation& what, rank self, int world_size) {
  return std::visit(surveyor{self, world_size}, what);
}

void visit_operands(const operation& what, const std::function<void(const operand&, std::string_view role)>& visit) {
  std::visit(
      [&]<class T>(const T& one) {
        if constexpr (requires { one.send; }) visit(one.send, "send");
        if constexpr (requires { one.recv; }) visit(one.recv, "recv");
        if constexpr (requires { one.memory; }) visit(one.memory, std::is_same_v<T, send> ? "send" : "recv");
        if constexpr (requires { one.from; }) visit(one.from, "source");
        if constexpr (requires { one.to; }) visit(one.to, "destination");
        if constexpr (requires { one.parts; })
          for (const operation& part : one.parts) visit_operands(part, visit);
      },
      what);
}

} // namespace troupe
