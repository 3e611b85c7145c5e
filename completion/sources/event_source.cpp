#include <troupe/completion/sources/event_source.hpp>

namespace troupe {

void event_source::arm(stream_ref stream, std::uint64_t sequence) {
  const std::lock_guard lock{guard_};
  event mark = spare_.empty() ? event{device_} : std::move(spare_.back());
  if (!spare_.empty()) spare_.pop_back();
  mark.record(stream);
  armed_.emplace_back(sequence, std::move(mark));
}

bool event_source::reached(std::uint64_t sequence) {
  const std::lock_guard lock{guard_};
  while (done_ < sequence && !armed_.empty() && armed_.front().second.reached()) {
    done_ = armed_.front().first;
    spare_.push_back(std::move(armed_.front().second));
    armed_.pop_front();
  }
  return done_ >= sequence;
}

} // namespace troupe
