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

// One function per type defines the transferred fields, their order and their limits, for both directions. Value is
// const when writing.

template <class Archive, class Strong>
void strong(Archive& io, Strong& value, std::uint64_t most) {
  auto plain = static_cast<std::uint64_t>(value.value());
  io.number(plain, most);
  if constexpr (!std::is_const_v<Strong>)
    value = Strong{static_cast<typename std::remove_const_t<Strong>::value_type>(plain)};
}

template <class Archive, class Value>
void whole(Archive& io, Value& value) {
  auto plain = static_cast<std::uint64_t>(value);
  io.number(plain, any_int);
  if constexpr (!std::is_const_v<Value>) value = static_cast<Value>(plain);
}

template <class Archive, class Value>
void signed_whole(Archive& io, Value& value) {
  auto plain = static_cast<std::int64_t>(value);
  io.signed_number(plain);
  if constexpr (!std::is_const_v<Value>) value = static_cast<Value>(plain);
}

template <class Archive, class Value>
void span_of_time(Archive& io, Value& value) {
  auto plain = static_cast<std::int64_t>(value.count());
  io.signed_number(plain);
  if constexpr (!std::is_const_v<Value>) value = nanoseconds{plain};
}

template <class Archive, class Error>
void fields_of_error(Archive& io, Error& why) {
  auto code = static_cast<std::uint64_t>(why.code);
  io.number(code, static_cast<std::uint64_t>(errc::internal));
  auto happened = static_cast<std::uint64_t>(why.effect);
  io.number(happened, static_cast<std::uint64_t>(effect::unknown_outcome));
  if constexpr (!std::is_const_v<Error>) {
    why.code = static_cast<errc>(code);
    why.effect = static_cast<troupe::effect>(happened);
  }
  io.text(why.text, most_of_text);
  io.text(why.call, most_of_name);
  signed_whole(io, why.native_code);
  io.text(why.native_text, most_of_text);
  io.maybe(why.rank, [&](auto& one) { strong(io, one, most_ranks); });
  io.maybe(why.epoch, [&](auto& one) { strong(io, one, any_number); });
}

template <class Archive, class Identity>
void fields_of_identity(Archive& io, Identity& who) {
  io.text(who.name, most_of_name);
  io.text(who.host, most_of_name);
  signed_whole(io, who.pid);
  io.text(who.gpu, most_of_name);
}

void points(frame_writer& io, const std::shared_ptr<const resume_points>& all) {
  write_points(io.to(), all);
}
void points(frame_reader& io, std::shared_ptr<const resume_points>& all) {
  all = read_points(io.from(), static_cast<int>(most_ranks));
}

template <class Archive, class Session>
void session(Archive& io, Session& one) {
  for (auto& word : one.words) io.number(word, any_number);
}

template <class Archive, class Message>
void fields(Archive& io, Message& what) {
  using type = std::remove_const_t<Message>;
  if constexpr (std::is_same_v<type, join_request>) {
    whole(io, what.protocol); // first, so that later protocols can be distinguished
    io.bytes(what.token, most_of_name);
    fields_of_identity(io, what.who);
    io.list(what.facts, most_facts, [&](auto& one) {
      io.text(one.name, most_of_name);
      io.text(one.value, most_of_text);
    });
    io.maybe(what.place, [&](auto& one) { signed_whole(io, one); });
    io.flag(what.spare);
    whole(io, what.attempt);
    whole(io, what.local_device);
    whole(io, what.device_count);
    strong(io, what.last_epoch, any_number);
    signed_whole(io, what.wall_clock_ns);
    io.maybe(what.nonce, [&](auto& one) { session(io, one); });
  } else if constexpr (std::is_same_v<type, heartbeat>) {
    static_cast<void>(io);
  } else if constexpr (std::is_same_v<type, id_offer>) {
    strong(io, what.of, any_number);
    io.id(what.id);
  } else if constexpr (std::is_same_v<type, formed_report> || std::is_same_v<type, drained_report> ||
                       std::is_same_v<type, id_wanted>) {
    strong(io, what.of, any_number);
  } else if constexpr (std::is_same_v<type, failed_report>) {
    strong(io, what.of, any_number);
    fields_of_error(io, what.why);
    io.list(what.blamed, most_ranks, [&](auto& one) { strong(io, one, most_ranks); });
  } else if constexpr (std::is_same_v<type, order_batch>) {
    strong(io, what.of, any_number);
    io.bytes(what.bytes, control_frame_limit);
  } else if constexpr (std::is_same_v<type, leave_notice> || std::is_same_v<type, join_refusal> ||
                       std::is_same_v<type, fence_notice>) {
    fields_of_error(io, what.why);
  } else if constexpr (std::is_same_v<type, stop_order>) {
    fields_of_error(io, what.why);
    io.number(what.decided, any_number);
  } else if constexpr (std::is_same_v<type, join_welcome>) {
    io.number(what.session, any_number);
    span_of_time(io, what.heartbeat);
    span_of_time(io, what.suspicion);
  } else if constexpr (std::is_same_v<type, formation_order>) {
    strong(io, what.of, any_number);
    strong(io, what.self, most_ranks);
    whole(io, what.world_size);
    io.id(what.id);
    fields_of_error(io, what.reason);
    io.flag(what.has_newcomers);
    io.list(what.hosts, most_ranks, [&](auto& one) { io.text(one, most_of_name); });
    io.flag(what.has_rings);
    points(io, what.resume);
  } else if constexpr (std::is_same_v<type, host_join_request>) {
    whole(io, what.protocol);
    io.bytes(what.token, most_of_name);
    fields_of_identity(io, what.who);
  } else if constexpr (std::is_same_v<type, attach_request>) {
    whole(io, what.protocol);
    io.bytes(what.token, most_of_name);
    fields_of_identity(io, what.who);
    io.maybe(what.nonce, [&](auto& one) { session(io, one); });
  } else if constexpr (std::is_same_v<type, world_report>) {
    strong(io, what.of, any_number);
    whole(io, what.world_size);
    signed_whole(io, what.address);
    io.flag(what.is_ready);
    io.flag(what.is_over);
    io.flag(what.has_rings);
    fields_of_error(io, what.reason);
    points(io, what.resume);
  } else if constexpr (std::is_same_v<type, serving_report>) {
    strong(io, what.of, any_number);
    io.list(what.ranks, most_ranks, [&](auto& one) { strong(io, one, most_ranks); });
    points(io, what.resume);
  } else if constexpr (std::is_same_v<type, claim_order>) {
    session(io, what.nonce);
  } else if constexpr (std::is_same_v<type, serve_order>) {
    strong(io, what.of, any_number);
    whole(io, what.world_size);
    strong(io, what.previous, any_number);
    whole(io, what.limits.lead);
    span_of_time(io, what.limits.straggling);
    io.list(what.candidates, most_ranks, [&](auto& one) {
      strong(io, one.self, most_ranks);
      session(io, one.nonce);
    });
  } else if constexpr (std::is_same_v<type, quiesce_order>) {
    strong(io, what.of, any_number);
    fields_of_error(io, what.why);
    io.number(what.decided, any_number);
  } else {
    static_assert(std::is_same_v<type, failure_order>);
    strong(io, what.of, any_number);
    fields_of_error(io, what.why);
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
