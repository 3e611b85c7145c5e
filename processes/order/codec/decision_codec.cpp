#include <troupe/collectives/order/codec/report_codec.hpp>
#include <troupe/processes/order/codec/decision_codec.hpp>
#include <troupe/processes/order/codec/request_codec.hpp>

#include <memory>
#include <type_traits>
#include <utility>

namespace troupe {

namespace {

using decision_form = decision_record::form;

// The first byte of a record: three bits are its form, the other bits belong to a release.
constexpr std::uint8_t form_bits = 0x07;
constexpr std::uint8_t is_in_step = 0x08; ///< The number follows that of the last release.
constexpr std::uint8_t has_position = 0x10;
constexpr std::uint8_t joins_previous = 0x20;
constexpr std::uint8_t has_value = 0x40; ///< It is an agree.

enum class report_kind : std::uint8_t { none, here, as_before };

/// Lists the fields after the first byte of a record that is neither a release nor a refusal, for both directions. The
/// record is const if Wire is a wire_writer.
template <class Wire, class Record>
void decision_fields(Wire& wire, Record& one, int world_size) {
  wire.field(one.world);
  switch (one.kind) {
    case decision_form::turn:
      wire.field(one.number);
      wire.list(one.opened, most_split_groups, 6, [&](auto& opened) {
        wire.field(opened.number);
        wire.field(opened.group);
        points_field(wire, opened.resume, world_size);
        commits_field(wire, opened.told);
      });
      return failure_field(wire, one.why);
    case decision_form::capture:
      wire.field(one.number);
      wire.field(one.agreed);
      return failure_field(wire, one.why);
    case decision_form::message: wire.field(one.from); return wire.field(one.message, longest_message_bytes);
    case decision_form::ending: return failure_field(wire, one.why);
    case decision_form::closed:
    case decision_form::release:
    case decision_form::refusal: return;
  }
}

} // namespace

void decision_writer::release(std::uint64_t number, const std::optional<std::uint64_t>& position, bool joins,
                              std::string_view value) {
  if (!joins) begin_record();
  const bool is_next = number == released_ + 1;
  released_ = number;
  out_.u8(static_cast<std::uint8_t>((is_next ? is_in_step : 0) | (position ? has_position : 0) |
                                    (joins ? joins_previous : 0) | (value.empty() ? 0 : has_value)));
  if (!is_next) out_.varint(number);
  if (position) out_.varint(*position);
  out_.raw(value);
}

void decision_writer::refuse(std::uint64_t number, const error& why, const std::shared_ptr<absence_report>& absence) {
  begin_record();
  out_.field(decision_form::refusal);
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

bool decision_writer::add(const decision_record& one) {
  const bool begins_batch = begin_record();
  out_.field(one.kind);
  decision_fields(out_, one, {}); // the size matters to the reader only
  return begins_batch;
}

bool decision_writer::begin_record() {
  if (out_.size_bytes() < full_batch_bytes) return false;
  full_bytes_ += out_.size_bytes();
  full_.emplace_back(out_.view());
  out_.clear();
  return true;
}

bool decision_writer::take(std::string& into) {
  if (empty()) return false;
  must_send_ = false;
  ++batches_;
  const bool is_last = full_.empty(); // records follow a full batch
  // Only the last of several batches completes the decisions that were passed on.
  if (!passed_on_ || is_last) sent_passed_on_ = passed_on_.value_or(batches_);
  sent_seen_ = seen_;
  const batch_header header{.epoch = epoch_, .number = batches_, .seen = seen_, .controller_batch = sent_passed_on_};
  header.write_before(is_last ? out_.view() : full_.front(), into);
  if (is_last) {
    out_.clear(); // and keeps its memory
  } else {
    full_bytes_ -= full_.front().size();
    full_.pop_front();
  }
  return true;
}

bool decision_reader::next(wire_reader& in, decision_record& into) {
  if (!in.ok() || in.at_end()) return false;
  const std::uint8_t head = in.u8();
  into.kind = static_cast<decision_form>(head & form_bits);
  const auto marks = static_cast<std::uint8_t>(head & ~form_bits);
  if ((marks & ~(into.kind == decision_form::release ? is_in_step | has_position | joins_previous | has_value : 0)) !=
      0)
    in.refuse("a record has unknown flags");
  if (into.kind > decision_form::ending) in.refuse("a record has an unknown kind");
  if (into.kind == decision_form::release) {
    into.number = (marks & is_in_step) != 0 ? released_ + 1 : in.varint();
    released_ = into.number;
    into.position.reset();
    if ((marks & has_position) != 0) into.position = in.varint();
    into.joins = (marks & joins_previous) != 0;
    into.value = nullptr;
    if ((marks & has_value) != 0) {
      auto read = std::make_shared<agreed_value>();
      agreed_field(in, *read);
      into.value = std::move(read);
    }
  } else if (into.kind == decision_form::refusal) {
    into.number = in.varint();
    into.why = read_error(in);
    const auto kind = in.one_of(report_kind::as_before);
    if (kind == report_kind::here) reported_ = read_report(in, world_size_);
    if (kind == report_kind::as_before && !reported_) in.refuse("a report is missing");
    into.absence = kind == report_kind::none ? nullptr : reported_;
    into.absence_is_new = kind == report_kind::here;
  } else {
    decision_fields(in, into, world_size_);
  }
  return in.ok();
}

} // namespace troupe
