#include <troupe/processes/meeting/meeting_messages.hpp>

#include <troupe/collectives/backend/one_shot/one_shot_rule.hpp>
#include <troupe/collectives/operation/wire.hpp>

#include <limits>
#include <type_traits>

namespace troupe {

namespace {

constexpr std::uint64_t offer_magic = 0x5445454D52555254U;        // "TRURMEET"
constexpr std::uint64_t confirmation_magic = 0x4B454F4D52555254U; // "TRURMOEK"
constexpr std::uint64_t any_size = std::uint64_t{1} << 40U;       // of bytes

std::string_view view_of(const join_digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

void name_field(wire_writer& io, const meeting_name& value) {
  io.raw(view_of(value));
}
void name_field(wire_reader& io, meeting_name& value) {
  for (std::uint8_t& one : value) one = io.u8();
}

/// Transfers a number between 0 and \p most, whose type may be signed.
template <class Wire, class Value>
void number_field(Wire& io, Value& value, std::uint64_t most) {
  auto plain = static_cast<std::uint64_t>(value);
  io.field(plain, most);
  if constexpr (!std::is_const_v<Value>) value = static_cast<Value>(plain);
}

void magic_field(wire_writer& io, std::uint64_t magic) {
  io.varint(magic);
}
void magic_field(wire_reader& io, std::uint64_t magic) {
  if (io.varint() != magic) io.refuse("it is of another kind or protocol");
}

// Each lists the fields of a message for both directions: \p Wire is a wire_writer or a wire_reader.

template <class Wire, class Offer>
void offer_fields(Wire& io, Offer& what) {
  constexpr std::uint64_t any = std::numeric_limits<std::uint32_t>::max();
  magic_field(io, offer_magic);
  number_field(io, what.version, any);
  name_field(io, what.name);
  number_field(io, what.self, most_one_shot_ranks - 1);
  number_field(io, what.world_size, most_one_shot_ranks);
  number_field(io, what.layout.ranks, any);
  number_field(io, what.layout.blocks, any);
  number_field(io, what.layout.lines_per_block, any);
  number_field(io, what.part_bytes, any_size);
  number_field(io, what.blocks, any);
  number_field(io, what.scratch_bytes, any_size);
  io.text(what.gpu, most_gpu_name);
  io.text(what.why, most_meeting_text);
}

template <class Wire, class Confirmation>
void confirmation_fields(Wire& io, Confirmation& what) {
  magic_field(io, confirmation_magic);
  io.text(what.why, most_meeting_text);
}

template <class Wire, class Answer>
void answer_fields(Wire& io, Answer& what) {
  io.field(what.kind, meeting_answer::form::broken);
  number_field(io, what.blocks, std::numeric_limits<std::uint32_t>::max());
  io.list(what.seats, most_one_shot_ranks, 2, [&](auto& one) {
    io.text(one.gpu, most_gpu_name);
    number_field(io, one.scratch_bytes, any_size);
  });
  io.text(what.why, most_meeting_text);
}

template <class Message, class Fields>
std::optional<Message> decode(std::string_view bytes, std::string_view what, Fields fields, error& why) {
  wire_reader io{bytes};
  Message made;
  fields(io, made);
  if (io.ok() && !io.at_end()) io.refuse("bytes follow its end");
  why = io.failure(what);
  if (why) return std::nullopt;
  return made;
}

} // namespace

meeting_name name_of_formation(const unique_id& id) {
  return digest_of("troupe meeting 1" + std::string{reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size()});
}

meeting_name name_of_derived(const meeting_name& from, std::uint8_t kind, std::uint64_t ordinal, int color) {
  wire_writer io{"troupe derived 1"};
  io.raw(view_of(from));
  io.u8(kind);
  io.varint(ordinal);
  io.signed_varint(color);
  return digest_of(io.view());
}

std::string encode(const meeting_offer& what) {
  wire_writer io;
  offer_fields(io, what);
  return io.take();
}

std::string encode(const meeting_confirmation& what) {
  wire_writer io;
  confirmation_fields(io, what);
  return io.take();
}

std::string encode(const meeting_answer& what) {
  wire_writer io;
  answer_fields(io, what);
  return io.take();
}

std::optional<meeting_offer> decode_meeting_offer(std::string_view bytes, error& why) {
  auto made = decode<meeting_offer>(
      bytes, "an offer of scratch", [](auto& io, auto& what) { offer_fields(io, what); }, why);
  if (made && (made->world_size < 2 || made->self >= made->world_size)) {
    why = {.code = errc::internal, .text = "an offer of scratch is of a rank that does not exist"};
    return std::nullopt;
  }
  return made;
}

std::optional<meeting_confirmation> decode_meeting_confirmation(std::string_view bytes, error& why) {
  return decode<meeting_confirmation>(
      bytes, "a confirmation of scratch", [](auto& io, auto& what) { confirmation_fields(io, what); }, why);
}

std::optional<meeting_answer> decode_meeting_answer(std::string_view bytes, error& why) {
  return decode<meeting_answer>(
      bytes, "an answer of the meeting service", [](auto& io, auto& what) { answer_fields(io, what); }, why);
}

} // namespace troupe
