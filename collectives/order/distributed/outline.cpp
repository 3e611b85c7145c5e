#include <troupe/collectives/order/distributed/outline.hpp>
#include <troupe/collectives/pipeline/plans/captured_plan.hpp>
#include <troupe/collectives/pipeline/staging/staging_plan.hpp>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

namespace {

constexpr auto last_kind = std::variant_size_v<operation> - 1;

/// Operations that a group cannot contain.
template <class T>
constexpr bool stands_alone = std::is_same_v<T, group> || std::is_same_v<T, replay>;

void write_counts(wire_writer& out, const partition& parts) {
  out.varint(parts.counts.size());
  for (const std::size_t one : parts.counts) out.varint(one);
}

partition read_counts(wire_reader& in) {
  partition made;
  made.counts.resize(in.count(most_outline_parts));
  for (std::size_t& one : made.counts) one = in.varint();
  return made;
}

int read_int(wire_reader& in) {
  return static_cast<int>(in.signed_varint(std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
}

void write_part(wire_writer& out, const operation& what, bool staged) {
  out.u8(static_cast<std::uint8_t>(what.index()));
  std::visit(
      [&]<class T>(const T& one) {
        if constexpr (requires { one.type; }) out.u8(static_cast<std::uint8_t>(one.type));
        if constexpr (requires { one.op; }) out.u8(static_cast<std::uint8_t>(one.op));
        if constexpr (requires { one.count; }) out.varint(one.count);
        if constexpr (requires { one.root; }) out.signed_varint(one.root.value());
        if constexpr (requires { one.peer; }) out.signed_varint(one.peer.value());
        if constexpr (requires { one.tag; }) out.signed_varint(one.tag);
        if constexpr (requires { one.send_parts; }) write_counts(out, one.send_parts);
        if constexpr (requires { one.recv_parts; }) write_counts(out, one.recv_parts);
        if constexpr (requires { one.staged; }) out.flag(staged);
        if constexpr (std::is_same_v<T, copy>) out.varint(one.from.memory.size_bytes());
        if constexpr (std::is_same_v<T, replay>) out.varint(number_of(one));
        if constexpr (std::is_same_v<T, group>) {
          out.varint(one.parts.size());
          // parts are never launched in chunks: see operand
          for (const operation& part : one.parts) write_part(out, part, false);
        }
      },
      what);
}

operation read_part(wire_reader& in, bool in_group, std::uint64_t& copied_bytes);

template <class T>
operation read_fields(wire_reader& in, bool in_group, std::uint64_t& copied_bytes) {
  T made;
  if constexpr (requires { made.type; }) made.type = in.one_of(std::ranges::max(all_dtypes));
  if constexpr (requires { made.op; }) made.op = in.one_of(std::ranges::max(all_reductions));
  if constexpr (requires { made.count; }) made.count = in.varint();
  if constexpr (requires { made.root; }) made.root = rank{read_int(in)};
  if constexpr (requires { made.peer; }) made.peer = rank{read_int(in)};
  if constexpr (requires { made.tag; }) made.tag = read_int(in);
  if constexpr (requires { made.send_parts; }) made.send_parts = read_counts(in);
  if constexpr (requires { made.recv_parts; }) made.recv_parts = read_counts(in);
  if constexpr (requires { made.staged; }) made.staged = in.flag();
  if constexpr (stands_alone<T>)
    if (in_group) in.refuse("a group holds what only stands alone");
  if constexpr (std::is_same_v<T, copy>) copied_bytes = in.varint();
  if constexpr (std::is_same_v<T, replay>)
    if (const std::uint64_t number = in.varint(); number > 0) made.of = std::make_shared<captured_plan>(number);
  if constexpr (std::is_same_v<T, group>) {
    const std::size_t count = in_group ? 0 : in.count(most_outline_parts);
    for (std::size_t i = 0; i < count && in.ok(); ++i) made.parts.push_back(read_part(in, true, copied_bytes));
  }
  return made;
}

operation read_part(wire_reader& in, bool in_group, std::uint64_t& copied_bytes) {
  const std::uint64_t kind = in.varint(last_kind);
  operation made;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    ((kind == I ? void(made = read_fields<std::variant_alternative_t<I, operation>>(in, in_group, copied_bytes))
                : void()),
     ...);
  }
  (std::make_index_sequence<last_kind + 1>{});
  return made;
}

std::size_t longest_list_of(const operation& what) {
  return std::visit(
      []<class T>(const T& one) -> std::size_t {
        std::size_t most = 0;
        if constexpr (requires { one.send_parts; }) most = std::max(most, one.send_parts.counts.size());
        if constexpr (requires { one.recv_parts; }) most = std::max(most, one.recv_parts.counts.size());
        if constexpr (std::is_same_v<T, group>)
          for (const operation& part : one.parts) most = std::max({most, one.parts.size(), longest_list_of(part)});
        return most;
      },
      what);
}

} // namespace

error write_outline(wire_writer& out, const operation& what) {
  const std::size_t before = out.size_bytes();
  const std::size_t parts = longest_list_of(what);
  if (parts <= most_outline_parts) write_part(out, what, is_launched_in_chunks(what));
  const std::size_t size = out.size_bytes() - before;
  if (parts <= most_outline_parts && size <= longest_outline_bytes) return {};
  out.cut(before);
  return {.code = errc::invalid_argument,
          .text = describe(compact(what)) + " has more parts than can be told to the other processes of the world: " +
                  std::to_string(most_outline_parts) + " may be in one list, and " +
                  std::to_string(longest_outline_bytes) + " bytes hold them all; divide it"};
}

std::optional<operation_outline> read_outline(wire_reader& in) {
  std::uint64_t copied_bytes = 0;
  operation what = read_part(in, false, copied_bytes);
  if (!in.ok()) return std::nullopt;
  const bool is_copy = std::holds_alternative<copy>(what);
  operation_outline made{.what = std::move(what)};
  made.sketch = compact(made.what);
  if (is_copy) made.sketch.count = copied_bytes;
  return made;
}

} // namespace troupe
