#include <troupe/processes/order/codec/request_codec.hpp>

#include <troupe/collectives/backend/launch_parts.hpp>
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/lanes/lane_names.hpp>
#include <troupe/collectives/operation/staging_plan.hpp>
#include <troupe/collectives/order/codec/report_codec.hpp>
#include <troupe/collectives/pipeline/fusion_composer.hpp>
#include <troupe/completion/sources/recycling.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

namespace {

using request_form = request_record::form;

// The first byte of a record: three bits are its kind, the other bits belong to an ask. A kind has one form or several,
// which are adjacent in request_record::form; then a second byte says which.
constexpr std::array first_forms{request_form::ask,      request_form::name,  request_form::cancel,
                                 request_form::withdraw, request_form::turn,  request_form::capture_launch,
                                 request_form::progress, request_form::select};
constexpr std::size_t capture_kind = 5;
constexpr std::uint8_t request_kind_bits = 0x07;
constexpr std::uint8_t same_client = 0x08; ///< Client and lane are those of the previous request.
constexpr std::uint8_t same_deadline = 0x10;
constexpr std::uint8_t has_own_position = 0x20;
constexpr std::uint8_t has_outline = 0x40;
constexpr std::uint8_t has_facts = 0x80;

/// Returns the number of forms of a kind.
constexpr std::uint64_t forms_of(std::size_t kind) {
  const auto end = kind + 1 < first_forms.size() ? static_cast<std::size_t>(first_forms[kind + 1])
                                                 : static_cast<std::size_t>(request_form::message) + 1;
  return end - static_cast<std::size_t>(first_forms[kind]);
}

/// Sent instead of a slot if the outline is too long to be kept.
constexpr std::uint64_t no_slot = outline_slots;
constexpr std::size_t longest_kept_bytes = 1024;
constexpr std::uint64_t largest_lane = 65'535;

std::size_t slot_of(std::string_view outline) {
  // The slot is sent, so the other side need not use the same hash.
  return std::hash<std::string_view>{}(outline) % outline_slots;
}

/// Writes the bytes that encode the form and, for a record of a capture, the place.
void write_head(wire_writer& out, request_form what, std::uint64_t place) {
  const auto kind = static_cast<std::size_t>(std::ranges::upper_bound(first_forms, what) - first_forms.begin()) - 1;
  out.u8(static_cast<std::uint8_t>(kind));
  if (kind == capture_kind) out.varint(place);
  if (forms_of(kind) > 1) out.varint(static_cast<std::uint64_t>(what) - static_cast<std::uint64_t>(first_forms[kind]));
}

// The templates list fields for both directions. The record is const if Wire is a wire_writer.

template <class Wire, class Groups>
void fields_of_groups(Wire& wire, Groups& groups) {
  wire.list(groups, most_split_groups, 2, [&](auto& one) {
    wire.field(one.name, longest_group_name_bytes);
    wire.list(one.members, longest_split_bytes, 1,
              [&](auto& member) { wire.ordinal(member, std::numeric_limits<int>::max()); });
  });
}

template <class Wire, class Facts>
void fields_of_facts(Wire& wire, Facts& facts) {
  wire.field(facts.bytes);
  wire.field(facts.overlaps);
  wire.field(facts.events);
  wire.field(facts.places);
}

/// Lists the fields after those of write_head().
template <class Wire, class Record>
void request_fields(Wire& wire, Record& one) {
  switch (one.kind) {
    case request_form::withdraw: wire.field(one.client); return error_field(wire, one.why);
    case request_form::turn:
      wire.field(one.turn.name, longest_plan_name_bytes);
      wire.ordinal(one.turn.deadline);
      wire.ordinal(one.turn.capture_limit);
      fields_of_groups(wire, one.turn.split);
      return wire.list(one.turn.told, most_split_groups, 3, [&](auto& commits) { commits_field(wire, commits); });
    case request_form::progress: mark_field(wire, one.launched); return mark_field(wire, one.finished);
    case request_form::limits: wire.field(one.count); return wire.field(one.bytes);
    case request_form::succeeded: return wire.field(one.count);
    case request_form::capture_failure:
    case request_form::close: return error_field(wire, one.why);
    case request_form::message: wire.field(one.to); return wire.field(one.message, longest_message_bytes);
    case request_form::ask: // these have no further fields, or other functions list them
    case request_form::name:
    case request_form::cancel:
    case request_form::select:
    case request_form::objection:
    case request_form::capture_launch:
    case request_form::capture_end: return;
  }
}

void check_turn(wire_reader& in, const turn_terms& one) {
  if (one.name.empty()) in.refuse("a turn has no name");
  if (!one.split.empty() && one.capture_limit != nanoseconds{0}) in.refuse("a turn is both a capture and a split");
  if (!one.told.empty() && one.told.size() != one.split.size())
    in.refuse("a split has commits of other groups than its own");
}

} // namespace

std::string encode_groups(std::span<const rank_group> groups) {
  wire_writer out;
  fields_of_groups(out, groups);
  return out.take();
}

error check_groups_size(std::span<const rank_group> groups) {
  const bool has_long_name =
      std::ranges::any_of(groups, [](const auto& one) { return one.name.size() > longest_group_name_bytes; });
  if (groups.size() <= most_split_groups && !has_long_name && encode_groups(groups).size() <= longest_split_bytes)
    return {};
  return {.code = errc::invalid_argument,
          .text = "the split cannot be sent to the other processes of the world: it may have " +
                  std::to_string(most_split_groups) + " groups, with names of at most " +
                  std::to_string(longest_group_name_bytes) + " bytes, and " + std::to_string(longest_split_bytes) +
                  " bytes in all. Divide it"};
}

void request_writer::select(std::uint64_t world) {
  if (std::exchange(world_, world) == world) return;
  write_head(out_, request_form::select, {});
  out_.varint(world);
}

void request_writer::introduce(lane where) {
  const std::size_t index = where.index();
  if (index < lanes_.size() && lanes_[index]) return;
  if (index >= lanes_.size()) lanes_.resize(index + 1);
  lanes_[index] = true;
  out_.field(request_form::name);
  out_.varint(index);
  out_.bytes(where.name());
}

error request_writer::ask(const operation& what, lane where, std::uint64_t client,
                          const std::optional<std::uint64_t>& position, nanoseconds deadline,
                          const request_facts& facts, const std::optional<std::uint64_t>& copied_bytes,
                          const error* objection) {
  outline_.clear();
  if (error refusal = write_outline(outline_, what, copied_bytes)) return refusal;
  const std::string_view outline = outline_.view();
  // The outline of an agree contains its value, which is seldom repeated.
  const bool kept = outline.size() <= longest_kept_bytes && !std::holds_alternative<agree>(what);
  const std::size_t slot = kept ? slot_of(outline) : no_slot;
  const bool told = kept && outlines_[slot] == outline;
  introduce(where);
  if (objection != nullptr) { // written only here, because the reader applies it to the next ask
    write_head(out_, request_form::objection, {});
    error_field(out_, *objection);
  }
  const bool client_is_same = where == where_ && client == client_;
  const bool deadline_is_same = deadline == deadline_;
  out_.u8(static_cast<std::uint8_t>((client_is_same ? same_client : 0) | (deadline_is_same ? same_deadline : 0) |
                                    (position ? has_own_position : 0) | (told ? 0 : has_outline) |
                                    (facts == request_facts{} ? 0 : has_facts)));
  if (!client_is_same) {
    out_.varint(where.index());
    out_.varint(client);
    where_ = where;
    client_ = client;
  }
  if (!deadline_is_same) {
    out_.ordinal(deadline);
    deadline_ = deadline;
  }
  if (position) out_.varint(*position);
  if (facts != request_facts{}) fields_of_facts(out_, facts);
  out_.u8(static_cast<std::uint8_t>(slot));
  if (!told) {
    out_.raw(outline);
    if (kept) outlines_[slot].assign(outline);
  }
  ++records_;
  return {};
}

void request_writer::add(const request_record& one) {
  if (one.kind == request_form::cancel) introduce(one.where);
  write_head(out_, one.kind, one.place);
  if (one.kind == request_form::cancel) {
    out_.varint(one.where.index());
    out_.varint(*one.position);
  }
  if (one.kind == request_form::capture_launch) out_.raw(one.outline);
  request_fields(out_, one);
  ++records_;
}

std::string request_writer::take(const batch_header& header) {
  std::string whole;
  header.write_before(out_.view(), whole);
  out_.clear(); // and keeps its memory
  records_ = 0;
  return whole;
}

bool request_reader::next(wire_reader& in, request_record& into) {
  for (;;) {
    if (!in.ok() || in.at_end()) return false;
    const std::uint8_t head = in.u8();
    const std::size_t kind = head & request_kind_bits;
    if (kind != 0 && (head & ~request_kind_bits) != 0) in.refuse("a record has unknown flags");
    std::uint64_t step = 0;
    if (kind == capture_kind) into.place = in.varint();
    if (forms_of(kind) > 1) step = in.varint(forms_of(kind) - 1);
    into.kind = static_cast<request_form>(static_cast<std::uint64_t>(first_forms[kind]) + step);
    // Before the record is read, because reading it may name a lane in this process.
    if (only_messages_ && into.kind != request_form::message) in.refuse("it has a record that only a rank may send");
    if (!in.ok()) return false;
    switch (into.kind) {
      case request_form::name: read_name(in); continue;
      case request_form::ask: read_ask(in, head, into); break;
      case request_form::cancel:
        static_cast<void>(read_lane(in, into));
        into.position = in.varint();
        break;
      case request_form::capture_launch: read_launch(in, into); break;
      case request_form::select: world_ = in.varint(); continue;
      case request_form::turn:
        request_fields(in, into);
        check_turn(in, into.turn);
        break;
      case request_form::objection: objection_ = std::make_shared<const error>(read_error(in)); continue;
      default: request_fields(in, into);
    }
    if (into.kind == request_form::succeeded && world_ == 0)
      in.refuse("it counts successes of the whole world, which only the header may do");
    into.world = world_;
    return in.ok();
  }
}

void request_reader::read_launch(wire_reader& in, request_record& into) {
  into.launch.clear();
  into.divisible = in.flag();
  for (std::size_t left = in.count(most_outline_parts); left > 0; --left) {
    operation_outline one;
    if (!read_outline(in, one)) return;
    if (std::holds_alternative<copy>(one.what) || std::holds_alternative<replay>(one.what) ||
        std::holds_alternative<call>(one.what) || std::holds_alternative<agree>(one.what))
      return in.refuse("an operation is in a capture that cannot be launched there");
    if (into.divisible && !is_single_collective(one.what)) return in.refuse("a launch cannot be divided");
    into.launch.push_back(std::move(one.what));
  }
  in.list(into.places, longest_outline_bytes, 1, [&](std::uint64_t& one) { in.field(one); });
  if (!into.places.empty() && into.places.size() != parts_of_launch(pointers_to(into.launch)).collectives.size())
    in.refuse("a launch has another number of places than of collectives");
}

void request_reader::read_name(wire_reader& in) {
  const std::uint64_t number = in.varint(largest_lane);
  const std::string_view name = in.bytes(lane_names::longest_bytes);
  if (!in.ok()) return;
  if (name.empty()) return in.refuse("a lane has no name");
  if (number >= lanes_.size()) lanes_.resize(number + 1);
  named_lane& made = lanes_[number];
  if (made.known) return in.refuse("a lane is named twice");
  made.known = true;
  try {
    made.here = lane::named(name);
  } catch (const exception& failure) {
    made.objection = failure.why();
    made.objection.text = "in the controller's process: " + made.objection.text;
  }
}

std::uint64_t request_reader::read_lane(wire_reader& in, request_record& into) {
  const std::uint64_t number = in.varint(largest_lane);
  if (number >= lanes_.size() || !lanes_[number].known) in.refuse("a lane has not been named");
  if (!in.ok()) return 0;
  read_lane(number, into);
  return number;
}

void request_reader::read_lane(std::uint64_t number, request_record& into) const {
  const named_lane& one = lanes_[number];
  into.where = one.here;
  // Copied only if set, because errors are expensive to copy and rarely set.
  if (one.objection || into.why) into.why = one.objection;
}

void request_reader::read_ask(wire_reader& in, std::uint8_t head, request_record& into) {
  into.objection = std::exchange(objection_, nullptr);
  if ((head & same_client) == 0) {
    where_ = read_lane(in, into);
    client_ = in.varint();
  } else {
    read_lane(where_, into);
  }
  into.client = client_;
  if ((head & same_deadline) == 0) in.ordinal(deadline_);
  into.deadline = deadline_;
  into.position.reset();
  if ((head & has_own_position) != 0) into.position = in.varint();
  into.facts = {};
  if ((head & has_facts) != 0) fields_of_facts(in, into.facts);
  const std::uint64_t slot = in.varint(no_slot);
  if ((head & has_outline) != 0) {
    auto outline = std::allocate_shared<operation_outline>(recycling_allocator<operation_outline>{});
    if (!read_outline(in, *outline)) return;
    into.what = std::move(outline);
    if (slot != no_slot) outlines_[slot] = into.what;
    return;
  }
  if (in.ok() && (slot == no_slot || !outlines_[slot])) in.refuse("an operation has not been outlined");
  into.what = in.ok() ? outlines_[slot] : nullptr;
}

} // namespace troupe
