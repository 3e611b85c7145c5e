#include <troupe/program/bench/completion_probe.hpp>
#include <troupe/program/bench/frame/report.hpp>

#include <troupe/completion/poller/wake_signal.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/memory/memory_pool.hpp>

#include <algorithm>
#include <atomic>
#include <utility>

namespace troupe::program {

namespace {

using steady = std::chrono::steady_clock;

constexpr std::size_t line_bytes = 64;
constexpr std::size_t word_count = 3;

double since(time_point began) {
  return in_microseconds(steady::now() - began);
}

} // namespace

completion_probe::completion_probe(std::shared_ptr<device> where, std::unique_ptr<completion_source> source,
                                   std::size_t operation_bytes)
  : device_{std::move(where)},
    work_{device_},
    words_{allocate_pinned(device_, word_count * line_bytes)},
    operated_on_{memory_pool::create(device_)->allocate(operation_bytes)},
    source_{std::move(source)} {
  std::ranges::fill(words_.host_span<std::uint32_t>(), 0U);
  source_->prepare(device_);
}

completion_probe::~completion_probe() {
  open_gate();
  return_or_report("a probe's stream", [&] { work_.ref().synchronize(); });
  source_->drained();
}

std::vector<double> completion_probe::arm_alone(std::size_t count) {
  std::vector<double> samples;
  samples.reserve(count);
  while (samples.size() < count) {
    operate();
    const time_point began = steady::now();
    arm();
    samples.push_back(since(began));
    await_seen();
  }
  return samples;
}

std::vector<double> completion_probe::arm_behind(std::size_t count, std::size_t depth) {
  std::vector<double> samples;
  samples.reserve(count);
  while (samples.size() < count) {
    close_gate();
    operate();
    arm();
    for (std::size_t in_flight = 1; in_flight < depth && samples.size() < count; ++in_flight) {
      operate();
      const time_point began = steady::now();
      arm();
      samples.push_back(since(began));
    }
    open_gate();
    await_seen();
  }
  return samples;
}

std::vector<double> completion_probe::look(std::size_t count, std::size_t looks) {
  std::vector<double> samples;
  samples.reserve(count);
  close_gate();
  operate();
  arm();
  std::size_t seen = 0;
  while (samples.size() < count) {
    const time_point began = steady::now();
    for (std::size_t i = 0; i < looks; ++i) seen += source_->reached(sequence_) ? 1U : 0U;
    samples.push_back(since(began) / static_cast<double>(looks));
  }
  open_gate();
  await_seen();
  if (seen > 0)
    throw exception{errc::internal, "an operation behind a closed gate was seen finished " + std::to_string(seen) +
                                        " times: the driver's wait_word() did not hold its stream"};
  return samples;
}

std::vector<double> completion_probe::release_to_seen(std::size_t count) {
  std::vector<double> samples;
  samples.reserve(count);
  while (samples.size() < count) {
    close_gate();
    arm();
    await_gate();
    const time_point began = steady::now();
    open_gate();
    await_seen();
    samples.push_back(since(began));
  }
  return samples;
}

std::vector<double> completion_probe::enqueue_to_seen(std::size_t count) {
  std::vector<double> samples;
  samples.reserve(count);
  while (samples.size() < count) {
    const time_point began = steady::now();
    operate();
    arm();
    await_seen();
    samples.push_back(since(began));
  }
  return samples;
}

std::vector<double> completion_probe::each_of_many(std::size_t count, std::size_t depth, bool armed) {
  std::vector<double> samples;
  samples.reserve(count);
  while (samples.size() < count) {
    close_gate();
    for (std::size_t i = 0; i < depth; ++i) {
      operate();
      if (armed) arm();
    }
    device_->api().write_word(device_->id(), work_.ref().native(), address(word::ended), ++ends_);
    await_gate();
    const time_point began = steady::now();
    open_gate();
    await_word(word::ended, ends_);
    samples.push_back(since(began) / static_cast<double>(depth));
    await_seen();
  }
  return samples;
}

std::uint32_t* completion_probe::address(word which) const noexcept {
  return reinterpret_cast<std::uint32_t*>(words_.data() + static_cast<std::size_t>(which) * line_bytes);
}

std::uint32_t completion_probe::value(word which) const noexcept {
  return std::atomic_ref{*address(which)}.load(std::memory_order_acquire);
}

void completion_probe::operate() const {
  work_.ref().fill(operated_on_.data(), 1, operated_on_.size_bytes());
}

void completion_probe::close_gate() {
  const native_stream native = work_.ref().native();
  device_->api().write_word(device_->id(), native, address(word::entered), ++gates_);
  device_->api().wait_word(device_->id(), native, address(word::gate), gates_);
}

void completion_probe::await_gate() {
  // The device fetches new work on its own, a microsecond or two after the call. No interface reports when it has.
  constexpr std::chrono::microseconds taking{20};
  await_word(word::entered, gates_);
  const time_point until = steady::now() + taking;
  while (steady::now() < until) spin_pause();
}

void completion_probe::open_gate() noexcept {
  std::atomic_ref{*address(word::gate)}.store(gates_, std::memory_order_release);
}

void completion_probe::await_seen() {
  spin_until([&] { return source_->reached(sequence_); });
}

void completion_probe::await_word(word which, std::uint32_t expected) {
  spin_until([&] { return value(which) == expected; });
}

template <class Done>
void completion_probe::spin_until(Done done) const {
  constexpr std::chrono::seconds limit{30};
  constexpr std::uint64_t looks_between = 1U << 16U;
  std::optional<time_point> began;
  for (std::uint64_t looks = 1; !done(); ++looks) {
    spin_pause();
    if (looks % looks_between != 0) continue;
    static_cast<void>(work_.ref().idle()); // Throws if the device has failed, because its marks would never arrive.
    const time_point now = steady::now();
    if (now - began.value_or(now) > limit)
      throw exception{errc::deadline_exceeded,
                      "the device has not finished for 30 seconds: check whether other work keeps it busy"};
    if (!began) began = now;
  }
}

} // namespace troupe::program
