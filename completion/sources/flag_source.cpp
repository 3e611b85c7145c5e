#include <troupe/completion/sources/flag_source.hpp>

namespace troupe {

// A stream that did not drain may still write, so its slot is never reused.
flag_source::~flag_source() {
  if (drained_ || !armed_) slots_->release(slot_);
}

void flag_source::prepare(const std::shared_ptr<device>& where) {
  sideline_.emplace(where);
}

void flag_source::arm(stream_ref stream, std::uint64_t sequence) {
  armed_ = true;
  // The word must never decrease. A write in the stream would overtake one that still waits in the side stream, so the
  // stream itself is used only after all earlier writes have been seen.
  if (!sideline_ || slot_.reached(sequence - 1)) return write(stream, sequence);
  sideline_->mark.record(stream);
  sideline_->writer.ref().wait(sideline_->mark);
  write(sideline_->writer, sequence);
}

void flag_source::drained() noexcept {
  try {
    // The stream is empty, but its last write may still wait in the side stream.
    if (sideline_) sideline_->writer.ref().synchronize();
    drained_ = true;
  } catch (...) { // a failed device: the slot is not reused
  }
}

void flag_source::write(stream_ref stream, std::uint64_t sequence) const {
  device& where = stream.where();
  where.api().write_word(where.id(), stream.native(), slot_.word(), slot_.value_for(sequence));
}

} // namespace troupe
