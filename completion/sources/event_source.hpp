/// Completion through an event without timing behind each operation.
#pragma once

#include <troupe/completion/sources/completion_source.hpp>
#include <troupe/device/event.hpp>

#include <deque>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

/// Marks are events without timing, which the poller queries through the driver.
class event_source final : public completion_source {
public:
  explicit event_source(std::shared_ptr<device> where) : device_{std::move(where)} {}

  void prepare(const std::shared_ptr<device>&) override {}
  void arm(stream_ref stream, std::uint64_t sequence) override;
  [[nodiscard]] bool reached(std::uint64_t sequence) override;
  void drained() noexcept override {}

private:
  std::shared_ptr<device> device_;
  std::mutex guard_;
  std::deque<std::pair<std::uint64_t, event>> armed_;
  std::vector<event> spare_;
  std::uint64_t done_ = 0;
};

} // namespace troupe
