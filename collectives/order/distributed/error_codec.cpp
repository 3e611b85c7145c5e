#include <troupe/collectives/order/distributed/error_codec.hpp>
#include <troupe/collectives/order/lane_names.hpp>

#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

namespace {

constexpr int largest_int = std::numeric_limits<int>::max();
constexpr int smallest_int = std::numeric_limits<int>::min();

void write_text(wire_writer& out, std::string_view text) {
  out.bytes(text.substr(0, longest_wire_text_bytes));
}

std::string read_text(wire_reader& in) {
  return std::string{in.bytes(longest_wire_text_bytes)};
}

lane read_lane(wire_reader& in) {
  const std::string_view name = in.bytes(lane_names::longest_bytes);
  if (in.ok() && name.empty()) in.refuse("a lane has no name");
  if (!in.ok()) return {};
  try {
    return lane::named(name);
  } catch (const exception&) {
    return {};
  }
}

} // namespace

void write_mark(wire_writer& out, const std::optional<operation_mark>& one) {
  out.flag(one.has_value());
  if (!one) return;
  write_text(out, one->what);
  out.bytes(one->lane.name());
  out.varint(one->position);
}

std::optional<operation_mark> read_mark(wire_reader& in) {
  if (!in.flag()) return std::nullopt;
  operation_mark made;
  made.what = read_text(in);
  made.lane = read_lane(in);
  made.position = in.varint();
  return made;
}

void write_error(wire_writer& out, const error& why) {
  out.u8(static_cast<std::uint8_t>(why.code));
  out.u8(static_cast<std::uint8_t>(why.effect));
  write_text(out, why.text);
  write_text(out, why.call);
  out.signed_varint(why.native_code);
  write_text(out, why.native_text);
  out.flag(why.rank.has_value());
  if (why.rank) out.signed_varint(why.rank->value());
  out.flag(why.part.has_value());
  if (why.part) out.varint(*why.part);
}

error read_error(wire_reader& in) {
  error why{.code = in.one_of(errc::internal)};
  if (in.ok() && why.code == errc::none) in.refuse("an error has the code none");
  why.effect = in.one_of(effect::unknown_outcome);
  why.text = read_text(in);
  why.call = read_text(in);
  why.native_code = static_cast<int>(in.signed_varint(smallest_int, largest_int));
  why.native_text = read_text(in);
  if (in.flag()) why.rank = rank{static_cast<int>(in.signed_varint(0, largest_int))};
  if (in.flag()) why.part = in.varint();
  return why;
}

bool write_report(wire_writer& out, const absence_report& report) {
  const std::size_t before = out.size_bytes();
  out.varint(report.ranks.size());
  write_text(out, report.what);
  out.bytes(report.lane.name());
  out.signed_varint(report.waited.count());
  out.flag(report.held);
  for (const auto& one : report.ranks) {
    out.flag(one.participates);
    out.flag(one.asked);
    write_mark(out, one.last_asked);
    write_mark(out, one.last_launched);
    write_mark(out, one.last_finished);
    if (out.size_bytes() - before <= longest_wire_report_bytes) continue;
    out.cut(before);
    return false;
  }
  return true;
}

std::shared_ptr<absence_report> read_report(wire_reader& in, int world_size) {
  auto made = std::make_shared<absence_report>();
  if (in.count(static_cast<std::size_t>(world_size)) != static_cast<std::size_t>(world_size))
    in.refuse("a report does not cover all ranks of the world");
  made->what = read_text(in);
  made->lane = read_lane(in);
  made->waited = nanoseconds{in.signed_varint()};
  made->held = in.flag();
  for (int r = 0; r < world_size && in.ok(); ++r) {
    absence_report::standing one{.rank = rank{r}};
    one.participates = in.flag();
    one.asked = in.flag();
    one.last_asked = read_mark(in);
    one.last_launched = read_mark(in);
    one.last_finished = read_mark(in);
    made->ranks.push_back(std::move(one));
  }
  return in.ok() ? made : nullptr;
}

} // namespace troupe
