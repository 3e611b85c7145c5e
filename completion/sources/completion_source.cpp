#include <troupe/completion/sources/completion_source.hpp>

#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/stream.hpp>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

namespace {

constexpr std::uint32_t sequence_bits = 24;
constexpr std::uint32_t sequence_mask = (1U << sequence_bits) - 1;
constexpr std::size_t words_per_line = slot_table::line_bytes / sizeof(std::uint32_t);

} // namespace

std::uint32_t slot::value_for(std::uint64_t sequence) const noexcept {
  return (std::uint32_t{generation_} << sequence_bits) | (static_cast<std::uint32_t>(sequence) & sequence_mask);
}

bool slot::reached(std::uint64_t sequence) const noexcept {
  const std::uint32_t seen = std::atomic_ref{*word_}.load(std::memory_order_acquire);
  if (seen >> sequence_bits != generation_) return false;
  // Cyclic comparison: the word may be ahead of \p sequence.
  return ((seen - static_cast<std::uint32_t>(sequence)) & sequence_mask) <= sequence_mask / 2;
}

slot_table::slot_table(const std::shared_ptr<device>& where, std::size_t slot_count)
  : where_{where}, generations_(slot_count, 0) {
  free_.reserve(slot_count);
  for (std::size_t i = slot_count; i > 0; --i) free_.push_back(i - 1);
  words_ =
      static_cast<std::uint32_t*>(where->api().allocate_pinned(slot_count * line_bytes)); // last: nothing throws now
}

slot_table::~slot_table() {
  if (free_.size() == generations_.size())
    return_or_report("the completion slots", [this] { where_->api().free_pinned(words_); });
}

slot slot_table::acquire() {
  const std::lock_guard lock{mutex_};
  if (free_.empty())
    throw exception{errc::out_of_memory,
                    "all " + std::to_string(generations_.size()) +
                        " completion slots of this runtime are in use: each rank of each world and sub-world holds one "
                        "until the world has stopped, and streams that hang keep theirs. Stop worlds that are no "
                        "longer needed, or use another runtime"};
  const std::size_t index = free_.back();
  free_.pop_back();
  const slot fresh{&words_[index * words_per_line], ++generations_[index]};
  std::atomic_ref{*fresh.word()}.store(fresh.value_for(0), std::memory_order_release);
  return fresh;
}

void slot_table::release(const slot& used) noexcept {
  const std::lock_guard lock{mutex_};
  const auto word = static_cast<std::size_t>(used.word() - words_);
  free_.push_back(word / words_per_line);
}

namespace {

/// What the host functions of one stream use.
struct host_marks {
  std::atomic<std::uint64_t> done{0};
  std::function<void()> on_done;
};

/// Keeps \p marks for the rest of the process, because a stream that did not drain may still use them.
void leave_behind(std::unique_ptr<host_marks> marks) {
  static std::mutex mutex;
  static auto* const left = new std::vector<std::unique_ptr<host_marks>>;
  const std::lock_guard lock{mutex};
  left->push_back(std::move(marks));
}

/// Signals completion by host functions in the stream, which a thread of the driver calls.
class host_function_source final : public completion_source {
public:
  explicit host_function_source(std::function<void()> on_done) { marks_->on_done = std::move(on_done); }
  ~host_function_source() override {
    if (armed_ && !drained_) leave_behind(std::move(marks_));
  }

  void prepare(const std::shared_ptr<device>&) override {}
  void arm(stream_ref stream, std::uint64_t) override {
    armed_ = true;
    device& where = stream.where();
    // The calls happen in stream order and without gaps, so their count is the sequence.
    where.api().call(
        where.id(), stream.native(),
        [](void* of) {
          auto& marks = *static_cast<host_marks*>(of);
          marks.done.fetch_add(1, std::memory_order_release);
          if (marks.on_done) marks.on_done();
        },
        marks_.get());
  }

  [[nodiscard]] bool reached(std::uint64_t sequence) override {
    return marks_->done.load(std::memory_order_acquire) >= sequence;
  }
  [[nodiscard]] bool rings() const noexcept override { return marks_->on_done != nullptr; }
  [[nodiscard]] bool calls_driver() const noexcept override { return false; }

  void drained() noexcept override { drained_ = true; }

private:
  std::unique_ptr<host_marks> marks_ = std::make_unique<host_marks>(); ///< The driver's threads hold its address.
  bool armed_ = false;
  bool drained_ = false;
};

/// Signals completion by events without timing, which the poller queries through the driver.
class event_source final : public completion_source {
public:
  explicit event_source(std::shared_ptr<device> where) : device_{std::move(where)} {}

  void prepare(const std::shared_ptr<device>&) override {}
  void arm(stream_ref stream, std::uint64_t sequence) override {
    const std::lock_guard lock{mutex_};
    event mark = spare_.empty() ? event{device_} : std::move(spare_.back());
    if (!spare_.empty()) spare_.pop_back();
    mark.record(stream);
    armed_.emplace_back(sequence, std::move(mark));
  }

  [[nodiscard]] bool reached(std::uint64_t sequence) override {
    const std::lock_guard lock{mutex_};
    while (done_ < sequence && !armed_.empty() && armed_.front().second.reached()) {
      done_ = armed_.front().first;
      spare_.push_back(std::move(armed_.front().second));
      armed_.pop_front();
    }
    return done_ >= sequence;
  }

  void drained() noexcept override {}

private:
  std::shared_ptr<device> device_;
  std::mutex mutex_;
  std::deque<std::pair<std::uint64_t, event>> armed_;
  std::vector<event> spare_;
  std::uint64_t done_ = 0;
};

} // namespace

completion_strategy choose_strategy(completion_strategy asked, driver& api, device_id id) {
  if (asked == completion_strategy::automatic)
    return api.has_word_operations(id) ? completion_strategy::flag : completion_strategy::event;
  if (asked == completion_strategy::flag && !api.has_word_operations(id))
    throw exception{errc::unsupported, "the streams of device " + to_string(id) +
                                           " cannot write words, which completion by flag needs: choose auto or event"};
  return asked;
}

std::unique_ptr<completion_source> make_completion_source(completion_strategy strategy,
                                                          const std::shared_ptr<device>& where,
                                                          std::shared_ptr<slot_table> slots,
                                                          std::function<void()> on_done) {
  switch (choose_strategy(strategy, where->api(), where->id())) {
    case completion_strategy::flag: return std::make_unique<flag_source>(std::move(slots));
    case completion_strategy::event: return std::make_unique<event_source>(where);
    case completion_strategy::host_fn: return std::make_unique<host_function_source>(std::move(on_done));
    case completion_strategy::automatic: break;
  }
  throw exception{errc::invalid_argument, "unknown completion strategy"};
}

// A stream that did not drain may still write, so its slot is never reused.
flag_source::~flag_source() {
  if (drained_ || !armed_) slots_->release(slot_);
}

void flag_source::prepare(const std::shared_ptr<device>& where) {
  side_stream_.emplace(where);
}

void flag_source::arm(stream_ref stream, std::uint64_t sequence) {
  armed_ = true;
  // The word must never decrease. A write in the stream would overtake one that still waits in the side stream, so the
  // stream itself is used only after all earlier writes have been seen.
  if (!side_stream_ || slot_.reached(sequence - 1)) return write(stream, sequence);
  side_stream_->mark.record(stream);
  side_stream_->writer.ref().wait(side_stream_->mark);
  write(side_stream_->writer, sequence);
  side_mark_ = sequence;
}

completion_word flag_source::word_for(std::uint64_t sequence) {
  // As in arm(), a write must not overtake one that still waits in the side stream. Those in the stream itself are in
  // order, and a launch that writes its word delays nothing behind it.
  if (side_mark_ != 0 && !slot_.reached(side_mark_)) return {};
  side_mark_ = 0;
  armed_ = true;
  return {slot_.word(), slot_.value_for(sequence)};
}

void flag_source::drained() noexcept {
  if (!armed_) return; // nothing was written, and prepare() may still run
  try {
    // The stream is empty, but its last write may still wait in the side stream.
    if (side_stream_) side_stream_->writer.ref().synchronize();
    drained_ = true;
  } catch (...) { // a failed device: the slot is not reused
  }
}

void flag_source::write(stream_ref stream, std::uint64_t sequence) const {
  device& where = stream.where();
  where.api().write_word(where.id(), stream.native(), slot_.word(), slot_.value_for(sequence));
}

} // namespace troupe
