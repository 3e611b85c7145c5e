#include <troupe/collectives/operation/lanes/lane_names.hpp>
#include <troupe/collectives/order/codec/report_codec.hpp>

#include <troupe/collectives/operation/operation.hpp>

#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>

namespace troupe {

namespace {

void lane_field(wire_writer& out, const lane& one) {
  out.bytes(one.name());
}

void lane_field(wire_reader& in, lane& one) {
  const std::string_view name = in.bytes(lane_names::longest_bytes);
  if (name.empty()) return in.refuse("a lane has no name");
  try {
    one = lane::named(name);
  } catch (const exception&) { // this process cannot have more lanes
  }
}

// The templates list the fields of a type for both directions. The value is const if Wire is a wire_writer.

template <class Wire, class Mark>
void fields_of_mark(Wire& wire, Mark& mark) {
  wire.maybe(mark, [&](auto& one) {
    wire.text(one.what, longest_wire_text_bytes);
    lane_field(wire, one.lane);
    wire.field(one.position);
  });
}

/// Lists all fields but the code.
template <class Wire, class Error>
void fields_of_error(Wire& wire, Error& why) {
  wire.field(why.effect, effect::unknown_outcome);
  wire.text(why.text, longest_wire_text_bytes);
  wire.text(why.call, longest_wire_text_bytes);
  wire.field(why.native_code);
  wire.text(why.native_text, longest_wire_text_bytes);
  wire.maybe(why.rank, [&](auto& one) { wire.field(one, 0, std::numeric_limits<int>::max()); });
  wire.maybe(why.part, [&](auto& one) { wire.field(one); });
}

template <class Wire, class Report>
void fields_of_report(Wire& wire, Report& report) {
  auto waited = report.waited.count();
  wire.text(report.what, longest_wire_text_bytes);
  lane_field(wire, report.lane);
  wire.field(waited);
  if constexpr (!std::is_const_v<Report>) report.waited = nanoseconds{waited};
}

template <class Wire, class Standing>
void fields_of_standing(Wire& wire, Standing& one) {
  wire.field(one.participates);
  wire.field(one.asked);
  fields_of_mark(wire, one.last_asked);
  fields_of_mark(wire, one.last_launched);
  fields_of_mark(wire, one.last_finished);
}

constexpr std::size_t most_agreed_ranks = 65'536;

/// Lists the fields of an agreed value but its bytes.
template <class Wire, class Value>
void fields_of_value(Wire& wire, Value& one) {
  wire.field(one.epoch);
  wire.field(one.position);
  wire.list(one.part_sizes, most_agreed_ranks, 1,
            [&](auto& size) { wire.field(size, static_cast<std::uint64_t>(most_contributed_bytes)); });
}

/// Lists agreed values.
template <class Wire, class Values>
void fields_of_values(Wire& wire, Values& all) {
  wire.list(all, most_kept_values, 4, [&](auto& one) {
    if constexpr (std::is_same_v<Wire, wire_writer>) {
      agreed_field(wire, *one);
    } else {
      auto read = std::make_shared<agreed_value>();
      agreed_field(wire, *read);
      one = std::move(read);
    }
  });
}

/// Lists all fields but the lane.
template <class Wire, class Point>
void fields_of_point(Wire& wire, Point& point, int world_size) {
  const auto ranks = [&](auto& all) {
    const auto most = static_cast<std::size_t>(world_size);
    wire.list(all, most, 1, [&](auto& one) { wire.ordinal(one, most - 1); });
  };
  wire.field(point.complete);
  wire.maybe(point.commit, [&](auto& one) { wire.field(one); });
  wire.field(point.incomplete);
  wire.list(point.later, resume_point::most_listed, 1, [&](auto& one) {
    wire.field(one.position);
    ranks(one.succeeded);
    ranks(one.unknown);
  });
  fields_of_values(wire, point.agreed);
  wire.field(point.agreed_unlisted);
}

constexpr std::size_t most_lanes = 65'536;

} // namespace

void agreed_field(wire_writer& out, const agreed_value& one) {
  fields_of_value(out, one);
  out.bytes(one.text());
}

void agreed_field(wire_reader& in, agreed_value& one) {
  fields_of_value(in, one);
  const std::string_view text = in.bytes(most_agreed_bytes);
  one.bytes = contribution{text}.bytes;
  std::size_t sum = 0;
  for (const std::uint32_t size : one.part_sizes) sum += size;
  if (!one.part_sizes.empty() && sum != text.size()) in.refuse("an agreed value is not divided into its parts");
}

void mark_field(wire_writer& out, const std::optional<operation_mark>& one) {
  fields_of_mark(out, one);
}

void mark_field(wire_reader& in, std::optional<operation_mark>& one) {
  fields_of_mark(in, one);
}

void write_error(wire_writer& out, const error& why) {
  out.field(why.code);
  fields_of_error(out, why);
}

error read_error(wire_reader& in) {
  error why;
  in.field(why.code, errc::internal);
  if (in.ok() && why.code == errc::none) in.refuse("an error has the code none");
  fields_of_error(in, why);
  return why;
}

bool write_report(wire_writer& out, const absence_report& report) {
  const std::size_t before = out.size_bytes();
  out.varint(report.ranks.size());
  fields_of_report(out, report);
  for (const auto& one : report.ranks) {
    fields_of_standing(out, one);
    if (out.size_bytes() - before <= longest_wire_report_bytes) continue;
    out.cut(before);
    return false;
  }
  return true;
}

std::shared_ptr<absence_report> read_report(wire_reader& in, int world_size) {
  auto made = std::make_shared<absence_report>();
  const std::size_t ranks = in.count(static_cast<std::size_t>(world_size));
  fields_of_report(in, *made);
  for (std::size_t r = 0; r < ranks && in.ok(); ++r) {
    absence_report::standing one{.rank = rank{static_cast<int>(r)}};
    fields_of_standing(in, one);
    made->ranks.push_back(std::move(one));
  }
  return in.ok() ? made : nullptr;
}

namespace {

void where_field(wire_writer& out, const std::optional<lane>& where) {
  out.flag(where.has_value());
  if (where) out.bytes(where->name());
}

/// Returns false if this process cannot have the lane, because it cannot have more lanes.
bool where_field(wire_reader& in, std::optional<lane>& where) {
  if (!in.flag()) return true;
  const std::string_view name = in.bytes(lane_names::longest_bytes);
  if (name.empty()) {
    in.refuse("a lane has no name");
    return false;
  }
  try {
    where = lane::named(name);
    return true;
  } catch (const exception&) {
    return false;
  }
}

/// Lists all fields but the lane.
template <class Wire, class Commit>
void fields_of_commit(Wire& wire, Commit& one) {
  wire.field(one.seen);
  wire.maybe(one.number, [&](auto& number) { wire.field(number); });
  fields_of_values(wire, one.agreed);
  wire.field(one.unlisted);
}

/// Writes the lanes of \p all, each followed by what \p fields writes.
void each_lane_field(wire_writer& out, const auto& all, const auto& fields) {
  out.varint(all.size());
  for (const auto& one : all) {
    where_field(out, one.where);
    fields(out, one);
  }
}

/// Reads what each_lane_field() has written. Leaves out the lanes that this process cannot have.
template <class Item>
void each_lane_field(wire_reader& in, std::vector<Item>& all, const auto& fields) {
  all.clear();
  for (std::size_t left = in.count(most_lanes); left > 0 && in.ok(); --left) {
    Item one;
    const bool is_known = where_field(in, one.where);
    fields(in, one);
    if (is_known && in.ok()) all.push_back(std::move(one));
  }
}

template <class Wire, class Points>
void fields_of_points(Wire& wire, Points& all, int world_size) {
  wire.field(all.counted_from);
  wire.field(all.has_survivors);
  each_lane_field(wire, all.lanes, [world_size](auto& io, auto& one) { fields_of_point(io, one, world_size); });
}

template <class Wire, class Commits>
void fields_of_commits(Wire& wire, Commits& all) {
  wire.field(all.of);
  wire.field(all.has_survivors);
  each_lane_field(wire, all.lanes, [](auto& io, auto& one) { fields_of_commit(io, one); });
}

} // namespace

void points_field(wire_writer& out, const std::shared_ptr<const resume_points>& all, int world_size) {
  out.flag(all != nullptr);
  if (all) fields_of_points(out, *all, world_size);
}

void points_field(wire_reader& in, std::shared_ptr<const resume_points>& all, int world_size) {
  all = nullptr;
  if (!in.flag()) return;
  auto read = std::make_shared<resume_points>();
  fields_of_points(in, *read, world_size);
  all = std::move(read);
}

void commits_field(wire_writer& out, const told_commits& all) {
  fields_of_commits(out, all);
}

void commits_field(wire_reader& in, told_commits& all) {
  fields_of_commits(in, all);
}

} // namespace troupe
