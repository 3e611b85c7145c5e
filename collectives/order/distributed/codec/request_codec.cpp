#include <troupe/collectives/order/distributed/codec/request_codec.hpp>

#include <troupe/collectives/order/distributed/codec/report_codec.hpp>
#include <troupe/collectives/order/fusion_plan.hpp>
#include <troupe/collectives/order/lane_names.hpp>
#include <troupe/collectives/pipeline/plans/captured_plan.hpp>
#include <troupe/collectives/pipeline/staging/staging_plan.hpp>

#include <algorithm>
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

// The first byte of a record: three bits are its kind, the other bits belong to an ask.
enum class request_kind : std::uint8_t { ask, name, cancel, withdraw, turn, capture, progress, world };
enum class world_step : std::uint8_t { select, limits, succeeded, close, objection, message };
enum class capture_step : std::uint8_t { launch, end, failure };
constexpr std::uint8_t request_kind_bits = 0x07;
constexpr std::uint8_t same_client = 0x08; ///< Client and lane are those of the previous request.
constexpr std::uint8_t same_deadline = 0x10;
constexpr std::uint8_t has_own_position = 0x20;
constexpr std::uint8_t has_outline = 0x40;
constexpr std::uint8_t has_facts = 0x80;

/// Sent instead of a slot if the outline is too long to be kept.
constexpr std::uint64_t no_slot = outline_slots;
constexpr std::size_t longest_kept_bytes = 1024;
constexpr std::uint64_t largest_lane = 65'535;
constexpr auto longest_time = static_cast<std::uint64_t>(std::numeric_limits<nanoseconds::rep>::max());

int read_int(wire_reader& in) {
  return static_cast<int>(in.signed_varint(std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
}

std::uint8_t head_of(request_kind kind, std::uint8_t bits = 0) {
  return static_cast<std::uint8_t>(static_cast<std::uint8_t>(kind) | bits);
}

std::size_t slot_of(std::string_view outline) {
  // the slot is transmitted, so the other side need not use the same hash
  return std::hash<std::string_view>{}(outline) % outline_slots;
}

void write_groups(wire_writer& out, std::span<const rank_group> groups) {
  out.varint(groups.size());
  for (const rank_group& one : groups) {
    out.bytes(one.name);
    out.varint(one.members.size());
    for (const rank member : one.members) out.varint(static_cast<std::uint64_t>(member.value()));
  }
}

} // namespace

std::string encode_groups(std::span<const rank_group> groups) {
  wire_writer out;
  write_groups(out, groups);
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
  out_.u8(head_of(request_kind::world));
  out_.u8(static_cast<std::uint8_t>(world_step::select));
  out_.varint(world);
}

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
                          const std::optional<std::uint64_t>& position, nanoseconds deadline,
                          const request_facts& facts, const std::optional<std::uint64_t>& copied_bytes) {
  outline_.clear();
  if (error objection = write_outline(outline_, what, copied_bytes)) return objection;
  const std::string_view outline = outline_.view();
  const bool kept = outline.size() <= longest_kept_bytes;
  const std::size_t slot = kept ? slot_of(outline) : no_slot;
  const bool told = kept && outlines_[slot] == outline;
  introduce(where);
  const bool client_is_same = where == where_ && client == client_;
  const bool deadline_is_same = deadline == deadline_;
  out_.u8(head_of(request_kind::ask,
                  static_cast<std::uint8_t>((client_is_same ? same_client : 0) |
                                            (deadline_is_same ? same_deadline : 0) | (position ? has_own_position : 0) |
                                            (told ? 0 : has_outline) | (facts == request_facts{} ? 0 : has_facts))));
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
  if (facts != request_facts{}) {
    out_.varint(facts.bytes);
    out_.varint(facts.overlaps);
    out_.varint(facts.events);
    out_.varint(facts.places);
  }
  out_.u8(static_cast<std::uint8_t>(slot));
  if (!told) {
    out_.raw(outline);
    if (kept) outlines_[slot].assign(outline);
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

void request_writer::turn(const turn_terms& asked) {
  out_.u8(head_of(request_kind::turn));
  out_.bytes(asked.name);
  out_.varint(static_cast<std::uint64_t>(asked.deadline.count()));
  out_.varint(static_cast<std::uint64_t>(asked.capture_limit.count()));
  write_groups(out_, asked.split);
  ++records_;
}

void request_writer::begin_capture_record(std::uint64_t place, std::uint8_t step) {
  out_.u8(head_of(request_kind::capture));
  out_.varint(place);
  out_.u8(step);
  ++records_;
}

void request_writer::launch_in_capture(std::uint64_t place, std::string_view outline) {
  begin_capture_record(place, static_cast<std::uint8_t>(capture_step::launch));
  out_.raw(outline);
}

void request_writer::end_capture(std::uint64_t place) {
  begin_capture_record(place, static_cast<std::uint8_t>(capture_step::end));
}

void request_writer::fail_capture(std::uint64_t place, const error& why) {
  begin_capture_record(place, static_cast<std::uint8_t>(capture_step::failure));
  write_error(out_, why);
}

void request_writer::limits(std::size_t max_operations, std::size_t max_bytes) {
  out_.u8(head_of(request_kind::world));
  out_.u8(static_cast<std::uint8_t>(world_step::limits));
  out_.varint(max_operations);
  out_.varint(max_bytes);
  ++records_;
}

void request_writer::succeeded(std::uint64_t count) {
  out_.u8(head_of(request_kind::world));
  out_.u8(static_cast<std::uint8_t>(world_step::succeeded));
  out_.varint(count);
  ++records_;
}

void request_writer::close(const error& why) {
  out_.u8(head_of(request_kind::world));
  out_.u8(static_cast<std::uint8_t>(world_step::close));
  write_error(out_, why);
  ++records_;
}

void request_writer::object(const error& why) {
  out_.u8(head_of(request_kind::world));
  out_.u8(static_cast<std::uint8_t>(world_step::objection));
  write_error(out_, why);
}

void request_writer::message(process_address to, std::string_view bytes) {
  out_.u8(head_of(request_kind::world));
  out_.u8(static_cast<std::uint8_t>(world_step::message));
  out_.signed_varint(to.value());
  out_.bytes(bytes);
  ++records_;
}

void request_writer::progress(const std::optional<operation_mark>& launched,
                              const std::optional<operation_mark>& finished) {
  out_.u8(head_of(request_kind::progress));
  write_mark(out_, launched);
  write_mark(out_, finished);
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
      case request_kind::turn:
        into.kind = request_record::form::turn;
        read_turn(in, into.turn);
        break;
      case request_kind::capture: read_capture(in, into); break;
      case request_kind::progress:
        into.kind = request_record::form::progress;
        into.launched = read_mark(in);
        into.finished = read_mark(in);
        break;
      case request_kind::world: {
        bool is_record = true;
        read_world(in, into, is_record);
        if (!is_record) continue;
        break;
      }
    }
    into.world = world_;
    return in.ok();
  }
}

void request_reader::read_turn(wire_reader& in, turn_terms& into) {
  into.name = in.bytes(longest_plan_name_bytes);
  into.deadline = nanoseconds{static_cast<nanoseconds::rep>(in.varint(longest_time))};
  into.capture_limit = nanoseconds{static_cast<nanoseconds::rep>(in.varint(longest_time))};
  into.split.clear();
  if (into.name.empty()) in.refuse("a turn has no name");
  for (std::size_t left = in.count(most_split_groups, 2); left > 0 && in.ok(); --left) {
    rank_group& one = into.split.emplace_back();
    one.name = in.bytes(longest_group_name_bytes);
    constexpr std::uint64_t largest_rank = std::numeric_limits<int>::max();
    for (std::size_t members = in.count(longest_split_bytes); members > 0 && in.ok(); --members)
      one.members.emplace_back(static_cast<int>(in.varint(largest_rank)));
  }
  if (!into.split.empty() && into.capture_limit != nanoseconds{0}) in.refuse("a capture is a split, too");
}

void request_reader::read_world(wire_reader& in, request_record& into, bool& is_record) {
  switch (in.one_of(world_step::message)) {
    case world_step::select:
      world_ = in.varint();
      is_record = false;
      return;
    case world_step::limits:
      into.kind = request_record::form::limits;
      into.count = in.varint();
      into.bytes = in.varint();
      return;
    case world_step::succeeded:
      into.kind = request_record::form::succeeded;
      into.count = in.varint();
      if (world_ == 0) in.refuse("it says of the whole world what is said of a sub-world only");
      return;
    case world_step::close:
      into.kind = request_record::form::close;
      into.why = read_error(in);
      return;
    case world_step::objection:
      objection_ = std::make_shared<const error>(read_error(in));
      is_record = false;
      return;
    case world_step::message:
      into.kind = request_record::form::message;
      into.to = process_address{read_int(in)};
      into.message = in.bytes(longest_message_bytes);
      return;
  }
}

void request_reader::read_capture(wire_reader& in, request_record& into) {
  into.place = in.varint();
  switch (in.one_of(capture_step::failure)) {
    case capture_step::launch: {
      into.kind = request_record::form::capture_launch;
      into.launch.clear();
      into.divisible = in.flag();
      for (std::size_t left = in.count(most_outline_parts); left > 0; --left) {
        auto one = read_outline(in);
        if (!one) return;
        if (std::holds_alternative<copy>(one->what) || std::holds_alternative<replay>(one->what) ||
            std::holds_alternative<call>(one->what))
          return in.refuse("an operation is in a capture that cannot be launched there");
        if (into.divisible && !is_single_collective(one->what)) return in.refuse("a launch cannot be divided");
        into.launch.push_back(std::move(one->what));
      }
      break;
    }
    case capture_step::end: into.kind = request_record::form::capture_end; break;
    case capture_step::failure:
      into.kind = request_record::form::capture_failure;
      into.why = read_error(in);
      break;
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
  into.objection = std::exchange(objection_, nullptr);
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
  into.facts = {};
  if ((head & has_facts) != 0) into.facts = {in.varint(), in.varint(), in.varint(), in.varint()};
  const std::uint64_t slot = in.varint(no_slot);
  if ((head & has_outline) != 0) {
    auto outline = read_outline(in);
    if (!outline) return;
    into.what = std::make_shared<const operation_outline>(std::move(*outline));
    if (slot != no_slot) outlines_[slot] = into.what;
    return;
  }
  if (in.ok() && (slot == no_slot || !outlines_[slot])) in.refuse("an operation has not been outlined");
  into.what = in.ok() ? outlines_[slot] : nullptr;
}

namespace {

constexpr auto last_kind = std::variant_size_v<operation> - 1;

/// Operations that a group cannot contain.
template <class T>
constexpr bool stands_alone = std::is_same_v<T, group> || std::is_same_v<T, replay> || std::is_same_v<T, call>;

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

void write_part(wire_writer& out, const operation& what, bool staged,
                const std::optional<std::uint64_t>& copied_bytes = std::nullopt) {
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
        if constexpr (std::is_same_v<T, copy>) out.varint(copied_bytes.value_or(one.from.memory.size_bytes()));
        if constexpr (std::is_same_v<T, replay>) out.varint(number_of(one));
        if constexpr (std::is_same_v<T, barrier>) out.varint(one.commit ? *one.commit + 1 : 0);
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
    if (in_group) in.refuse("a group contains an operation that must be alone");
  if constexpr (std::is_same_v<T, copy>) copied_bytes = in.varint();
  if constexpr (std::is_same_v<T, barrier>)
    if (const std::uint64_t commit = in.varint(); commit > 0) made.commit = commit - 1;
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

error write_outline(wire_writer& out, const operation& what, const std::optional<std::uint64_t>& copied_bytes) {
  const std::size_t before = out.size_bytes();
  const std::size_t parts = longest_list_of(what);
  if (parts <= most_outline_parts) write_part(out, what, is_launched_in_chunks(what), copied_bytes);
  const std::size_t size = out.size_bytes() - before;
  if (parts <= most_outline_parts && size <= longest_outline_bytes) return {};
  out.cut(before);
  return {.code = errc::invalid_argument,
          .text = describe(compact(what)) + " has more parts than can be sent to the other processes of the world: " +
                  std::to_string(most_outline_parts) + " fit in one list, and " +
                  std::to_string(longest_outline_bytes) + " bytes hold all lists. Divide it"};
}

std::string outline_of_launch(std::span<const operation* const> all, bool divisible) {
  wire_writer out;
  out.flag(divisible);
  out.varint(all.size());
  for (const operation* one : all)
    if (error objection = write_outline(out, *one)) throw exception{std::move(objection)};
  if (all.size() > most_outline_parts || out.size_bytes() > longest_outline_bytes)
    throw exception{
        errc::invalid_argument,
        std::to_string(all.size()) +
            " operations in one launch are more than can be sent to the other processes: divide the launch"};
  return out.take();
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
