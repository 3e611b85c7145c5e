#include <troupe/actors/control/control_codec.hpp>
#include <troupe/collectives/order/distributed/codec/report_codec.hpp>
#include <troupe/collectives/order/distributed/codec/wire.hpp>

#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t most_of_name = 256; ///< Limit in bytes of names, hosts, tokens, GPUs.
constexpr std::size_t most_of_text = 4096;
constexpr std::size_t most_facts = 256;
constexpr std::uint64_t most_ranks = 65536;

/// Writes the fields that fields() lists; frame_reader reads the same fields.
class frame_writer {
public:
  void number(std::uint64_t value, std::uint64_t) { to_.varint(value); }
  void signed_number(std::int64_t value) { to_.signed_varint(value); }
  void flag(bool value) { to_.flag(value); }
  /// Truncates a text that is too long. These texts are only shown to users.
  void text(const std::string& value, std::size_t most) { to_.bytes(std::string_view{value}.substr(0, most)); }
  void bytes(const std::string& value, std::size_t) { to_.bytes(value); }
  void id(const unique_id& value) { to_.raw({reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()}); }
  template <class T, class Each>
  void list(const std::vector<T>& all, std::size_t, Each each) {
    to_.varint(all.size());
    for (const T& one : all) each(one);
  }
  template <class T, class Each>
  void maybe(const std::optional<T>& one, Each each) {
    to_.flag(one.has_value());
    if (one) each(*one);
  }
  [[nodiscard]] std::string take() { return to_.take(); }
  [[nodiscard]] wire_writer& to() noexcept { return to_; }

private:
  wire_writer to_;
};

class frame_reader {
public:
  explicit frame_reader(std::string_view bytes) : from_{bytes} {}

  template <class T>
  void number(T& value, std::uint64_t most) {
    value = static_cast<T>(from_.varint(most));
  }
  void signed_number(std::int64_t& value) { value = from_.signed_varint(); }
  void flag(bool& value) { value = from_.flag(); }
  void text(std::string& value, std::size_t most) { value = from_.bytes(most); }
  void bytes(std::string& value, std::size_t most) { value = from_.bytes(most); }
  void id(unique_id& value) {
    for (std::byte& one : value.bytes) one = std::byte{from_.u8()};
  }
  template <class T, class Each>
  void list(std::vector<T>& all, std::size_t most, Each each) {
    all.resize(from_.count(most));
    for (T& one : all) each(one);
  }
  template <class T, class Each>
  void maybe(std::optional<T>& one, Each each) {
    if (from_.flag()) each(one.emplace());
  }
  [[nodiscard]] wire_reader& from() noexcept { return from_; }

private:
  wire_reader from_;
};

constexpr std::uint64_t any_number = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t any_int = std::numeric_limits<std::int32_t>::max();

// fields() defines the transferred fields of each message and their order, and each() how a field is transferred and
// with which limit, by its type. Both serve both directions; a value is const when writing.

/// Transfers a value as a number of at most \p most.
template <class Archive, class Value>
void whole(Archive& io, Value& value, std::uint64_t most = any_int) {
  auto plain = static_cast<std::uint64_t>(value);
  io.number(plain, most);
  if constexpr (!std::is_const_v<Value>) value = static_cast<Value>(plain);
}

template <class Archive, class Value>
void signed_whole(Archive& io, Value& value) {
  auto plain = static_cast<std::int64_t>(value);
  io.signed_number(plain);
  if constexpr (!std::is_const_v<Value>) value = static_cast<Value>(plain);
}

template <class Archive, class Strong>
void strong(Archive& io, Strong& value, std::uint64_t most) {
  auto plain = value.value();
  whole(io, plain, most);
  if constexpr (!std::is_const_v<Strong>) value = Strong{plain};
}

void points(frame_writer& io, const std::shared_ptr<const resume_points>& all) {
  write_points(io.to(), all);
}
void points(frame_reader& io, std::shared_ptr<const resume_points>& all) {
  all = read_points(io.from(), static_cast<int>(most_ranks));
}

template <class Archive, class Message>
void fields(Archive& io, Message& what);

template <class Archive, class Value>
void one_of_each(Archive& io, Value& value) {
  using type = std::remove_const_t<Value>;
  const auto again = [&](auto& one) { one_of_each(io, one); };
  if constexpr (std::is_same_v<type, bool>)
    io.flag(value);
  else if constexpr (std::is_same_v<type, epoch>)
    strong(io, value, any_number);
  else if constexpr (std::is_same_v<type, rank>)
    strong(io, value, most_ranks);
  else if constexpr (std::is_same_v<type, int> || std::is_same_v<type, std::uint32_t>)
    whole(io, value);
  else if constexpr (std::is_same_v<type, std::uint64_t>)
    io.number(value, any_number);
  else if constexpr (std::is_same_v<type, std::int64_t>)
    io.signed_number(value);
  else if constexpr (std::is_same_v<type, nanoseconds>) {
    auto count = value.count();
    signed_whole(io, count);
    if constexpr (!std::is_const_v<Value>) value = nanoseconds{count};
  } else if constexpr (std::is_same_v<type, std::string>)
    io.text(value, most_of_name);
  else if constexpr (std::is_same_v<type, unique_id>)
    io.id(value);
  else if constexpr (std::is_same_v<type, std::shared_ptr<const resume_points>>)
    points(io, value);
  else if constexpr (requires { value.has_value(); })
    io.maybe(value, again);
  else if constexpr (requires { value.back(); })
    io.list(value, most_ranks, again);
  else
    fields(io, value);
}

template <class Archive, class... Values>
void each(Archive& io, Values&... values) {
  (one_of_each(io, values), ...);
}

template <class Archive, class Message>
void fields(Archive& io, Message& what) {
  using type = std::remove_const_t<Message>;
  if constexpr (std::is_same_v<type, error>) {
    whole(io, what.code, static_cast<std::uint64_t>(errc::internal));
    whole(io, what.effect, static_cast<std::uint64_t>(effect::unknown_outcome));
    io.text(what.text, most_of_text);
    each(io, what.call);
    signed_whole(io, what.native_code);
    io.text(what.native_text, most_of_text);
    each(io, what.rank, what.epoch);
  } else if constexpr (std::is_same_v<type, process_identity>) {
    each(io, what.name, what.host, what.pid, what.gpu);
  } else if constexpr (std::is_same_v<type, shared_fact>) {
    each(io, what.name);
    io.text(what.value, most_of_text);
  } else if constexpr (std::is_same_v<type, ring_session>) {
    for (auto& word : what.words) each(io, word);
  } else if constexpr (std::is_same_v<type, serve_order::candidate>) {
    each(io, what.self, what.nonce);
  } else if constexpr (std::is_same_v<type, join_request>) {
    each(io, what.protocol); // first, so that later protocols can be distinguished
    io.bytes(what.token, most_of_name);
    each(io, what.who);
    io.list(what.facts, most_facts, [&](auto& one) { fields(io, one); });
    io.maybe(what.place, [&](auto& one) { signed_whole(io, one); });
    each(io, what.spare, what.attempt, what.local_device, what.device_count, what.last_epoch, what.wall_clock_ns,
         what.nonce);
  } else if constexpr (std::is_same_v<type, heartbeat>) {
    static_cast<void>(io);
  } else if constexpr (std::is_same_v<type, id_offer>) {
    each(io, what.of, what.id);
  } else if constexpr (std::is_same_v<type, formed_report> || std::is_same_v<type, drained_report> ||
                       std::is_same_v<type, id_wanted>) {
    each(io, what.of);
  } else if constexpr (std::is_same_v<type, failed_report>) {
    each(io, what.of, what.why, what.blamed);
  } else if constexpr (std::is_same_v<type, order_batch>) {
    each(io, what.of);
    io.bytes(what.bytes, control_frame_limit);
  } else if constexpr (std::is_same_v<type, leave_notice> || std::is_same_v<type, join_refusal> ||
                       std::is_same_v<type, fence_notice>) {
    each(io, what.why);
  } else if constexpr (std::is_same_v<type, stop_order>) {
    each(io, what.why, what.decided);
  } else if constexpr (std::is_same_v<type, join_welcome>) {
    each(io, what.session, what.heartbeat, what.suspicion);
  } else if constexpr (std::is_same_v<type, formation_order>) {
    each(io, what.of, what.self, what.world_size, what.id, what.reason, what.has_newcomers, what.hosts, what.has_rings,
         what.resume);
  } else if constexpr (std::is_same_v<type, host_join_request> || std::is_same_v<type, attach_request>) {
    each(io, what.protocol);
    io.bytes(what.token, most_of_name);
    each(io, what.who);
    if constexpr (std::is_same_v<type, attach_request>) each(io, what.nonce);
  } else if constexpr (std::is_same_v<type, world_report>) {
    each(io, what.of, what.world_size);
    signed_whole(io, what.address);
    each(io, what.is_ready, what.is_over, what.has_rings, what.reason, what.resume);
  } else if constexpr (std::is_same_v<type, serving_report>) {
    each(io, what.of, what.ranks, what.resume);
  } else if constexpr (std::is_same_v<type, claim_order>) {
    each(io, what.nonce);
  } else if constexpr (std::is_same_v<type, serve_order>) {
    each(io, what.of, what.world_size, what.previous);
    whole(io, what.limits.lead);
    each(io, what.limits.straggling, what.candidates);
  } else if constexpr (std::is_same_v<type, quiesce_order>) {
    each(io, what.of, what.why, what.decided);
  } else {
    static_assert(std::is_same_v<type, failure_order>);
    each(io, what.of, what.why);
  }
}

template <class Frame>
std::string encode_frame(const Frame& frame) {
  frame_writer io;
  io.number(frame.session, any_number);
  io.number(frame.what.index(), any_number);
  std::visit([&](const auto& one) { fields(io, one); }, frame.what);
  return io.take();
}

template <std::size_t Kind, class Variant>
void read_kind(std::size_t kind, frame_reader& io, Variant& what) {
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
  frame_reader io{bytes};
  Frame frame;
  io.number(frame.session, any_number);
  std::size_t kind = 0;
  io.number(kind, std::variant_size_v<variant> - 1);
  if (io.from().ok()) read_kind<0>(kind, io, frame.what);
  if (io.from().ok() && !io.from().at_end()) io.from().refuse("bytes follow its end");
  why = io.from().failure("a message from " + std::string{from});
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
