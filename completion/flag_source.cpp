#include <troupe/completion/flag_source.hpp>

namespace troupe {

// A stream that did not drain may still write: its slot is given up for good rather than shared.
flag_source::~flag_source() {
  if (drained_) slots_->release(slot_);
}

void flag_source::arm(stream_ref stream, std::uint64_t sequence) {
  device& where = stream.where();
  where.api().write_word(where.id(), stream.native(), slot_.word(), slot_.value_for(sequence));
}

} // namespace troupe
