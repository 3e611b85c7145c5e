#include <troupe/collectives/order/distributed/codec/report_codec.hpp>
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
  const std::size_t ranks = in.count(static_cast<std::size_t>(world_size));
  made->what = read_text(in);
  made->lane = read_lane(in);
  made->waited = nanoseconds{in.signed_varint()};
  for (std::size_t r = 0; r < ranks && in.ok(); ++r) {
    absence_report::standing one{.rank = rank{static_cast<int>(r)}};
    one.participates = in.flag();
    one.asked = in.flag();
    one.last_asked = read_mark(in);
    one.last_launched = read_mark(in);
    one.last_finished = read_mark(in);
    made->ranks.push_back(std::move(one));
  }
  return in.ok() ? made : nullptr;
}

namespace {

constexpr std::size_t most_lanes = 65'536;

void write_ranks(wire_writer& out, const std::vector<rank>& all) {
  out.varint(all.size());
  for (const rank one : all) out.varint(static_cast<std::uint64_t>(one.value()));
}

std::vector<rank> read_ranks(wire_reader& in, int world_size) {
  std::vector<rank> all;
  for (std::size_t left = in.count(static_cast<std::size_t>(world_size)); left > 0 && in.ok(); --left)
    all.emplace_back(static_cast<int>(in.varint(static_cast<std::uint64_t>(world_size) - 1)));
  return all;
}

} // namespace

void write_points(wire_writer& out, const resume_points& all) {
  out.varint(all.size());
  for (const resume_point& one : all) {
    out.flag(one.where.has_value());
    if (one.where) out.bytes(one.where->name());
    out.varint(one.complete);
    out.flag(one.commit.has_value());
    if (one.commit) out.varint(*one.commit);
    out.varint(one.incomplete);
    out.varint(one.later.size());
    for (const incomplete_operation& each : one.later) {
      out.varint(each.position);
      write_ranks(out, each.succeeded);
      write_ranks(out, each.unknown);
    }
  }
}

resume_points read_points(wire_reader& in, int world_size) {
  resume_points all;
  for (std::size_t left = in.count(most_lanes); left > 0 && in.ok(); --left) {
    resume_point one;
    const bool is_of_lane = in.flag();
    const std::string_view name = is_of_lane ? in.bytes(lane_names::longest_bytes) : std::string_view{};
    if (is_of_lane && name.empty()) in.refuse("a lane has no name");
    one.complete = in.varint();
    if (in.flag()) one.commit = in.varint();
    one.incomplete = in.varint();
    for (std::size_t listed = in.count(resume_point::most_listed); listed > 0 && in.ok(); --listed) {
      incomplete_operation& each = one.later.emplace_back();
      each.position = in.varint();
      each.succeeded = read_ranks(in, world_size);
      each.unknown = read_ranks(in, world_size);
    }
    if (!in.ok()) return {};
    try {
      if (is_of_lane) one.where = lane::named(name);
      all.push_back(std::move(one));
    } catch (const exception&) { // more lanes than this process can have
    }
  }
  return all;
}

} // namespace troupe
