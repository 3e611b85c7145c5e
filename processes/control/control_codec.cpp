#include <troupe/collectives/operation/wire.hpp>
#include <troupe/collectives/order/codec/report_codec.hpp>
#include <troupe/processes/control/control_codec.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

namespace troupe {

namespace {

constexpr std::size_t most_of_name = 256; ///< Limit in bytes of names, hosts, tokens, GPUs.
constexpr std::size_t most_of_text = 4096;
constexpr std::size_t most_facts = 256;
constexpr std::uint64_t most_ranks = 65536;
constexpr std::uint64_t any_int = std::numeric_limits<std::int32_t>::max();

// fields() lists the fields of each message in their order, and value_field() transfers a field, with a limit that
// depends on its type. Both serve both directions: Wire is a wire_writer or a wire_reader, and a value is const when
// writing.

/// Transfers a non-negative number, whose type may be signed.
template <class Wire, class Value>
void nonnegative_field(Wire& io, Value& value) {
  auto plain = static_cast<std::uint64_t>(value);
  io.field(plain, any_int);
  if constexpr (!std::is_const_v<Value>) value = static_cast<Value>(plain);
}

void id_field(wire_writer& io, const unique_id& value) {
  io.raw({reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()});
}
void id_field(wire_reader& io, unique_id& value) {
  for (std::byte& one : value.bytes) one = std::byte{io.u8()};
}

template <class Wire, class Message>
void fields(Wire& io, Message& what);

template <class Wire, class Value>
void value_field(Wire& io, Value& value) {
  using type = std::remove_const_t<Value>;
  const auto again = [&](auto& one) { value_field(io, one); };
  if constexpr (std::is_same_v<type, rank>)
    io.ordinal(value, most_ranks);
  else if constexpr (std::is_same_v<type, int> || std::is_same_v<type, std::uint32_t>)
    nonnegative_field(io, value);
  else if constexpr (std::is_integral_v<type> || std::is_same_v<type, epoch>)
    io.field(value);
  else if constexpr (std::is_same_v<type, process_address>) {
    int number = value.value();
    io.field(number);
    if constexpr (!std::is_const_v<Value>) value = process_address{number};
  } else if constexpr (std::is_same_v<type, nanoseconds>) {
    auto count = value.count();
    io.field(count);
    if constexpr (!std::is_const_v<Value>) value = nanoseconds{count};
  } else if constexpr (std::is_same_v<type, std::string>)
    io.text(value, most_of_name);
  else if constexpr (std::is_same_v<type, unique_id>)
    id_field(io, value);
  else if constexpr (std::is_same_v<type, std::shared_ptr<const resume_points>>)
    points_field(io, value, static_cast<int>(most_ranks));
  else if constexpr (std::is_same_v<type, told_commits>)
    commits_field(io, value);
  else if constexpr (requires { value.has_value(); })
    io.maybe(value, again);
  else if constexpr (requires { value.back(); })
    io.list(value, most_ranks, 1, again);
  else
    fields(io, value);
}

template <class Wire, class... Values>
void each(Wire& io, Values&... values) {
  (value_field(io, values), ...);
}

template <class Wire, class Message>
void fields(Wire& io, Message& what) {
  using type = std::remove_const_t<Message>;
  if constexpr (std::is_same_v<type, error>) {
    io.field(what.code, errc::internal);
    io.field(what.effect, effect::unknown_outcome);
    io.text(what.text, most_of_text);
    each(io, what.call);
    io.field(what.native_code);
    io.text(what.native_text, most_of_text);
    each(io, what.rank, what.epoch);
  } else if constexpr (std::is_same_v<type, process_identity>) {
    each(io, what.name, what.host, what.pid, what.gpu, what.life);
  } else if constexpr (std::is_same_v<type, shared_fact>) {
    each(io, what.name);
    io.text(what.value, most_of_text);
  } else if constexpr (std::is_same_v<type, ring_session>) {
    for (auto& word : what.words) each(io, word);
  } else if constexpr (std::is_same_v<type, serve_directive::candidate>) {
    each(io, what.self, what.nonce);
  } else if constexpr (std::is_same_v<type, join_request>) {
    io.field(what.token, most_of_name);
    each(io, what.who);
    io.list(what.facts, most_facts, 1, [&](auto& one) { fields(io, one); });
    io.maybe(what.place, [&](auto& one) { io.field(one); });
    each(io, what.world_size, what.spare, what.attempt, what.local_device, what.device_count, what.last_epoch,
         what.last_ranks, what.begun, what.prepared, what.last_lease, what.kept, what.wall_clock_ns, what.nonce);
  } else if constexpr (std::is_same_v<type, heartbeat>) {
    each(io, what.number);
  } else if constexpr (std::is_same_v<type, lease_grant>) {
    each(io, what.of, what.number, what.length, what.outlasts);
  } else if constexpr (std::is_same_v<type, id_offer>) {
    each(io, what.of, what.id);
  } else if constexpr (std::is_same_v<type, commits_report>) {
    each(io, what.of, what.told);
  } else if constexpr (std::is_same_v<type, formed_report> || std::is_same_v<type, id_wanted> ||
                       std::is_same_v<type, commits_wanted> || std::is_same_v<type, drop_directive>) {
    each(io, what.of);
  } else if constexpr (std::is_same_v<type, held_notice> || std::is_same_v<type, hold_wanted> ||
                       std::is_same_v<type, hold_order_directive>) {
    each(io, what.of, what.next);
  } else if constexpr (std::is_same_v<type, order_held_report>) {
    each(io, what.of, what.next, what.is_held);
  } else if constexpr (std::is_same_v<type, drained_report>) {
    each(io, what.of, what.succeeded);
  } else if constexpr (std::is_same_v<type, prepare_directive>) {
    each(io, what.of, what.self, what.world_size, what.id, what.hosts, what.is_on_one_node);
  } else if constexpr (std::is_same_v<type, failed_report>) {
    each(io, what.of, what.why, what.blamed);
  } else if constexpr (std::is_same_v<type, order_batch>) {
    each(io, what.of);
    io.field(what.bytes, control_frame_limit);
  } else if constexpr (std::is_same_v<type, leave_notice> || std::is_same_v<type, join_refusal> ||
                       std::is_same_v<type, fence_notice>) {
    each(io, what.why);
  } else if constexpr (std::is_same_v<type, stop_directive>) {
    each(io, what.why, what.decided);
  } else if constexpr (std::is_same_v<type, join_welcome>) {
    each(io, what.session, what.heartbeat, what.suspicion, what.is_spare, what.grants_leases, what.has_successors,
         what.latest);
  } else if constexpr (std::is_same_v<type, formation_directive>) {
    each(io, what.of, what.self, what.world_size, what.id, what.reason, what.has_newcomers, what.hosts, what.names,
         what.has_rings, what.is_on_one_node, what.resume);
  } else if constexpr (std::is_same_v<type, rank_change>) {
    io.field(what.kind, rank_change_kind::join);
    io.maybe(what.place, [&](auto& one) { io.field(one); });
    each(io, what.host, what.renumbers);
  } else if constexpr (std::is_same_v<type, world_process>) {
    each(io, what.name, what.host, what.pid, what.place, what.self, what.is_leaving, what.is_away);
  } else if constexpr (std::is_same_v<type, change_request>) {
    each(io, what.number, what.what);
  } else if constexpr (std::is_same_v<type, change_reply>) {
    each(io, what.number, what.why, what.processes);
  } else if constexpr (std::is_same_v<type, attach_request>) {
    io.field(what.token, most_of_name);
    each(io, what.who, what.is_order_service, what.nonce);
  } else if constexpr (std::is_same_v<type, world_report>) {
    each(io, what.of, what.world_size);
    io.field(what.address);
    each(io, what.is_ready, what.is_held, what.next, what.is_over, what.has_rings, what.reason, what.resume);
  } else if constexpr (std::is_same_v<type, serving_report>) {
    each(io, what.of, what.ranks, what.resume, what.retiring);
  } else if constexpr (std::is_same_v<type, claim_directive> || std::is_same_v<type, gate_notice> ||
                       std::is_same_v<type, gate_closed>) {
    each(io, what.nonce);
  } else if constexpr (std::is_same_v<type, serve_directive>) {
    each(io, what.of, what.world_size, what.previous);
    nonnegative_field(io, what.limits.lead);
    each(io, what.limits.straggling, what.told, what.candidates, what.continued.before, what.continued.successes);
  } else if constexpr (std::is_same_v<type, quiesce_directive>) {
    each(io, what.of, what.why, what.decided, what.is_planned);
  } else {
    static_assert(std::is_same_v<type, failure_directive>);
    each(io, what.of, what.why);
  }
}

template <class Frame>
std::string encode_frame(const Frame& frame) {
  wire_writer io;
  io.varint(frame.session);
  io.varint(frame.what.index());
  std::visit([&](const auto& one) { fields(io, one); }, frame.what);
  return io.take();
}

template <std::size_t Kind, class Variant>
void read_kind(std::size_t kind, wire_reader& io, Variant& what) {
  if constexpr (Kind < std::variant_size_v<Variant>) {
    if (kind == Kind)
      fields(io, what.template emplace<Kind>());
    else
      read_kind<Kind + 1>(kind, io, what);
  }
}

template <class Frame>
std::optional<Frame> decode_frame(std::string_view bytes, std::string_view from, error& why) {
  using variant = decltype(Frame{}.what);
  if (bytes.size() > control_frame_limit) {
    why = {.code = errc::internal,
           .text = "a message of " + std::to_string(bytes.size()) + " bytes from " + std::string{from} +
                   " exceeds the limit of " + std::to_string(control_frame_limit) + " bytes"};
    return std::nullopt;
  }
  wire_reader io{bytes};
  Frame frame;
  frame.session = io.varint();
  const std::size_t kind = io.varint(std::variant_size_v<variant> - 1);
  if (io.ok()) read_kind<0>(kind, io, frame.what);
  if (io.ok() && !io.at_end()) io.refuse("bytes follow its end");
  why = io.failure("a message from " + std::string{from});
  if (why) return std::nullopt;
  return frame;
}

} // namespace

std::string encode(const process_frame& frame) {
  return encode_frame(frame);
}

std::string encode(const controller_frame& frame) {
  return encode_frame(frame);
}

std::optional<process_frame> decode_process_frame(std::string_view bytes, error& why) {
  return decode_frame<process_frame>(bytes, "a process", why);
}

std::optional<controller_frame> decode_controller_frame(std::string_view bytes, error& why) {
  return decode_frame<controller_frame>(bytes, "the controller", why);
}

} // namespace troupe
