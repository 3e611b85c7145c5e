#include <troupe/completion/sources/host_function_source.hpp>

#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// Keeps the counter for the rest of the process, because a stream that did not drain may still write to it.
void leave_behind(std::unique_ptr<std::atomic<std::uint64_t>> count) {
  static std::mutex guard;
  static auto* const left = new std::vector<std::unique_ptr<std::atomic<std::uint64_t>>>;
  const std::lock_guard lock{guard};
  left->push_back(std::move(count));
}

} // namespace

host_function_source::~host_function_source() {
  if (armed_ && !drained_) leave_behind(std::move(done_));
}

void host_function_source::arm(stream_ref stream, std::uint64_t) {
  armed_ = true;
  device& where = stream.where();
  // The calls happen in stream order and without gaps, so their count is the sequence.
  where.api().call(
      where.id(), stream.native(),
      [](void* done) { static_cast<count*>(done)->fetch_add(1, std::memory_order_release); }, done_.get());
}

bool host_function_source::reached(std::uint64_t sequence) {
  return done_->load(std::memory_order_acquire) >= sequence;
}

} // namespace troupe
