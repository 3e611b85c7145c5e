#include <troupe/collectives/order/distributed/error_codec.hpp>
#include <troupe/collectives/order/distributed/request_codec.hpp>
#include <troupe/collectives/order/lane_names.hpp>

#include <functional>
#include <limits>
#include <string_view>
#include <utility>

namespace troupe {

namespace {

// The first byte of a record: three bits are its kind, the other bits belong to an ask.
enum class request_kind : std::uint8_t { ask, name, cancel, withdraw, turn };
constexpr std::uint8_t request_kind_bits = 0x07;
constexpr std::uint8_t same_client = 0x08; ///< And the same lane.
constexpr std::uint8_t same_deadline = 0x10;
constexpr std::uint8_t has_own_position = 0x20;
constexpr std::uint8_t has_outline = 0x40;

/// Replaces a slot: the outline is too long to be kept.
constexpr std::uint64_t no_slot = outline_slots;
constexpr std::size_t longest_kept_bytes = 1024;
constexpr std::uint64_t largest_lane = 65'535;
constexpr auto longest_time = static_cast<std::uint64_t>(std::numeric_limits<nanoseconds::rep>::max());

std::uint8_t head_of(request_kind kind, std::uint8_t bits = 0) {
  return static_cast<std::uint8_t>(static_cast<std::uint8_t>(kind) | bits);
}

std::size_t slot_of(std::string_view outline) {
  // the slot is transmitted, so the other side need not use the same hash
  return std::hash<std::string_view>{}(outline) % outline_slots;
}

} // namespace

void request_writer::introduce(lane where) {
  const std::size_t index = where.index();
  if (index < lanes_.size() && lanes_[index]) return;
  if (index >= lanes_.size()) lanes_.resize(index + 1);
  lanes_[index] = true;
  out_.u8(head_of(request_kind::name));
  out_.varint(index);
  out_.bytes(where.name());
}

error request_writer::ask(const operation& what, lane where, std::uint64_t client,
                          const std::optional<std::uint64_t>& position, nanoseconds deadline) {
  outline_.clear();
  if (error objection = write_outline(outline_, what)) return objection;
  const std::string_view outline = outline_.view();
  const bool kept = outline.size() <= longest_kept_bytes;
  const std::size_t slot = kept ? slot_of(outline) : no_slot;
  const bool told = kept && told_[slot] == outline;
  introduce(where);
  const bool client_is_same = where == where_ && client == client_;
  const bool deadline_is_same = deadline == deadline_;
  out_.u8(head_of(request_kind::ask, static_cast<std::uint8_t>(
                                         (client_is_same ? same_client : 0) | (deadline_is_same ? same_deadline : 0) |
                                         (position ? has_own_position : 0) | (told ? 0 : has_outline))));
  if (!client_is_same) {
    out_.varint(where.index());
    out_.varint(client);
    where_ = where;
    client_ = client;
  }
  if (!deadline_is_same) {
    out_.varint(static_cast<std::uint64_t>(deadline.count()));
    deadline_ = deadline;
  }
  if (position) out_.varint(*position);
  out_.u8(static_cast<std::uint8_t>(slot));
  if (!told) {
    out_.raw(outline);
    if (kept) told_[slot].assign(outline);
  }
  ++records_;
  return {};
}

void request_writer::cancel(lane where, std::uint64_t position) {
  introduce(where);
  out_.u8(head_of(request_kind::cancel));
  out_.varint(where.index());
  out_.varint(position);
  ++records_;
}

void request_writer::withdraw(std::uint64_t client, const error& why) {
  out_.u8(head_of(request_kind::withdraw));
  out_.varint(client);
  write_error(out_, why);
  ++records_;
}

void request_writer::turn() {
  out_.u8(head_of(request_kind::turn));
  ++records_;
}

std::string request_writer::take(const batch_header& header) {
  wire_writer whole;
  whole.reserve(32 + out_.size_bytes());
  header.write(whole);
  whole.raw(out_.view());
  out_.clear();
  records_ = 0;
  return whole.take();
}

bool request_reader::next(wire_reader& in, request_record& into) {
  for (;;) {
    if (!in.ok() || in.at_end()) return false;
    const std::uint8_t head = in.u8();
    const auto kind = static_cast<request_kind>(head & request_kind_bits);
    if (kind != request_kind::ask && (head & ~request_kind_bits) != 0) in.refuse("a record has unknown marks");
    switch (kind) {
      case request_kind::name: read_name(in); continue;
      case request_kind::ask: read_ask(in, head, into); break;
      case request_kind::cancel:
        into.kind = request_record::form::cancel;
        static_cast<void>(read_lane(in, into));
        into.position = in.varint();
        break;
      case request_kind::withdraw:
        into.kind = request_record::form::withdraw;
        into.client = in.varint();
        into.why = read_error(in);
        break;
      case request_kind::turn: into.kind = request_record::form::turn; break;
      default: in.refuse("a record is of no known kind");
    }
    return in.ok();
  }
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
  if (in.ok() && (number >= lanes_.size() || !lanes_[number].known)) in.refuse("a lane has not been named");
  if (!in.ok()) return 0;
  read_lane(number, into);
  return number;
}

void request_reader::read_lane(std::uint64_t number, request_record& into) const {
  const named_lane& one = lanes_[number];
  into.where = one.here;
  // copied only if set, because errors are expensive to copy and rarely set
  if (one.objection || into.why) into.why = one.objection;
}

void request_reader::read_ask(wire_reader& in, std::uint8_t head, request_record& into) {
  into.kind = request_record::form::ask;
  if ((head & 0x80U) != 0) in.refuse("a record has unknown marks");
  if ((head & same_client) == 0) {
    where_ = read_lane(in, into);
    client_ = in.varint();
  } else {
    read_lane(where_, into);
  }
  into.client = client_;
  if ((head & same_deadline) == 0) deadline_ = nanoseconds{static_cast<nanoseconds::rep>(in.varint(longest_time))};
  into.deadline = deadline_;
  into.position.reset();
  if ((head & has_own_position) != 0) into.position = in.varint();
  const std::uint64_t slot = in.varint(no_slot);
  if ((head & has_outline) != 0) {
    auto outline = read_outline(in);
    if (!outline) return;
    into.what = std::make_shared<const operation_outline>(std::move(*outline));
    if (slot != no_slot) told_[slot] = into.what;
    return;
  }
  if (in.ok() && (slot == no_slot || !told_[slot])) in.refuse("an operation has not been outlined");
  into.what = in.ok() ? told_[slot] : nullptr;
}

} // namespace troupe
