#include <troupe/collectives/order/distributed/codec/decision_codec.hpp>
#include <troupe/collectives/order/distributed/codec/report_codec.hpp>
#include <troupe/collectives/order/distributed/codec/request_codec.hpp>

#include <limits>
#include <utility>

namespace troupe {

namespace {

// The first byte of a record: three bits are its kind, the other bits belong to a release.
enum class decision_kind : std::uint8_t { release, refusal, turn, capture, closed, message };
constexpr std::uint8_t decision_kind_bits = 0x07;
constexpr std::uint8_t is_in_step = 0x08; ///< The number follows that of the last release.
constexpr std::uint8_t has_position = 0x10;
constexpr std::uint8_t joins_previous = 0x20;

enum class report_kind : std::uint8_t { none, here, as_before };

std::uint8_t head_of(decision_kind kind, std::uint8_t bits = 0) {
  return static_cast<std::uint8_t>(static_cast<std::uint8_t>(kind) | bits);
}

} // namespace

void decision_writer::release(std::uint64_t number, const std::optional<std::uint64_t>& position, bool joins) {
  if (!joins) begin_record();
  const bool is_next = number == released_ + 1;
  released_ = number;
  out_.u8(head_of(decision_kind::release,
                  static_cast<std::uint8_t>((is_next ? is_in_step : 0) | (position ? has_position : 0) |
                                            (joins ? joins_previous : 0))));
  if (!is_next) out_.varint(number);
  if (position) out_.varint(*position);
}

void decision_writer::refuse(std::uint64_t number, const error& why, const std::shared_ptr<absence_report>& absence) {
  begin_record();
  out_.u8(head_of(decision_kind::refusal));
  out_.varint(number);
  write_error(out_, why);
  const std::size_t before = out_.size_bytes();
  const auto write_kind = [&](report_kind kind) { out_.u8(static_cast<std::uint8_t>(kind)); };
  if (!absence) {
    write_kind(report_kind::none);
  } else if (absence == reported_) {
    write_kind(report_kind::as_before);
  } else {
    write_kind(report_kind::here);
    if (write_report(out_, *absence)) {
      reported_ = absence;
    } else {
      out_.cut(before);
      write_kind(report_kind::none);
    }
  }
}

void decision_writer::turn(std::uint64_t world, std::uint64_t number, const error& why,
                           std::span<const opened_world> opened) {
  begin_record();
  out_.u8(head_of(decision_kind::turn));
  out_.varint(world);
  out_.varint(number);
  out_.varint(opened.size());
  for (const opened_world& one : opened) {
    out_.varint(one.number);
    out_.varint(one.group);
    out_.flag(one.resume != nullptr);
    if (one.resume) write_points(out_, *one.resume);
  }
  finish(why);
}

void decision_writer::closed(std::uint64_t world) {
  begin_record();
  out_.u8(head_of(decision_kind::closed));
  out_.varint(world);
}

bool decision_writer::message(std::uint64_t world, process_address from, std::string_view bytes) {
  const bool begins_batch = begin_record();
  out_.u8(head_of(decision_kind::message));
  out_.varint(world);
  out_.signed_varint(from.value());
  out_.bytes(bytes);
  return begins_batch;
}

void decision_writer::capture(std::uint64_t world, std::uint64_t place, std::size_t agreed, const error& why) {
  begin_record();
  out_.u8(head_of(decision_kind::capture));
  out_.varint(world);
  out_.varint(place);
  out_.varint(agreed);
  finish(why);
}

void decision_writer::finish(const error& why) {
  out_.flag(static_cast<bool>(why));
  if (why) write_error(out_, why);
}

bool decision_writer::begin_record() {
  if (out_.size_bytes() < full_batch_bytes) return false;
  full_.push_back(out_.take());
  return true;
}

std::string decision_writer::take() {
  if (full_.empty() && out_.empty() && !owes_) return {};
  owes_ = false;
  wire_writer whole;
  whole.reserve(32 + (full_.empty() ? out_.size_bytes() : full_.front().size()));
  ++batches_;
  // A batch that others follow does not contain all that was passed on.
  const bool is_last = full_.empty() || (full_.size() == 1 && out_.empty());
  if (!passed_on_ || is_last) told_passed_on_ = passed_on_.value_or(batches_);
  batch_header{.epoch = epoch_, .number = batches_, .seen = seen_, .controller_batch = told_passed_on_}.write(whole);
  if (full_.empty()) {
    whole.raw(out_.view());
    out_.clear();
  } else {
    whole.raw(full_.front());
    full_.pop_front();
  }
  return whole.take();
}

bool decision_reader::next(wire_reader& in, decision_record& into) {
  if (!in.ok() || in.at_end()) return false;
  const std::uint8_t head = in.u8();
  const auto kind = static_cast<decision_kind>(head & decision_kind_bits);
  const auto marks = static_cast<std::uint8_t>(head & ~decision_kind_bits);
  if ((marks & ~(kind == decision_kind::release ? is_in_step | has_position | joins_previous : 0)) != 0)
    in.refuse("a record has unknown marks");
  switch (kind) {
    case decision_kind::release:
      into.kind = decision_record::form::release;
      into.number = (marks & is_in_step) != 0 ? released_ + 1 : in.varint();
      released_ = into.number;
      into.position.reset();
      if ((marks & has_position) != 0) into.position = in.varint();
      into.joins = (marks & joins_previous) != 0;
      break;
    case decision_kind::refusal:
      into.kind = decision_record::form::refusal;
      into.number = in.varint();
      into.why = read_error(in);
      into.absence.reset();
      into.absence_is_new = false;
      switch (in.one_of(report_kind::as_before)) {
        case report_kind::none: break;
        case report_kind::here:
          reported_ = into.absence = read_report(in, world_size_);
          into.absence_is_new = true;
          break;
        case report_kind::as_before:
          if (!reported_) in.refuse("a report is missing");
          into.absence = reported_;
          break;
      }
      break;
    case decision_kind::turn:
      into.kind = decision_record::form::turn;
      into.world = in.varint();
      into.number = in.varint();
      into.opened.clear();
      for (std::size_t left = in.count(most_split_groups, 3); left > 0 && in.ok(); --left) {
        opened_world& one = into.opened.emplace_back();
        one.number = in.varint();
        one.group = in.varint();
        if (in.flag()) one.resume = std::make_shared<const resume_points>(read_points(in, world_size_));
      }
      into.why = in.flag() ? read_error(in) : error{};
      break;
    case decision_kind::capture:
      into.kind = decision_record::form::capture;
      into.world = in.varint();
      into.number = in.varint();
      into.agreed = in.varint();
      into.why = in.flag() ? read_error(in) : error{};
      break;
    case decision_kind::closed:
      into.kind = decision_record::form::closed;
      into.world = in.varint();
      break;
    case decision_kind::message:
      into.kind = decision_record::form::message;
      into.world = in.varint();
      into.from = process_address{
          static_cast<int>(in.signed_varint(std::numeric_limits<int>::min(), std::numeric_limits<int>::max()))};
      into.message = in.bytes(longest_message_bytes);
      break;
    default: in.refuse("a record has an unknown kind");
  }
  return in.ok();
}

} // namespace troupe
