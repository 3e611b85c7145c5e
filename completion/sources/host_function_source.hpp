/// Completion through a host function that the driver calls in stream order. The function only increments a counter: it
/// runs no user code and does not call the driver.
#pragma once

#include <troupe/completion/sources/completion_source.hpp>

#include <atomic>
#include <cstdint>
#include <memory>

namespace troupe {

/// Marks are functions that a thread of the driver calls.
class host_function_source final : public completion_source {
public:
  ~host_function_source() override;

  void prepare(const std::shared_ptr<device>&) override {}
  void arm(stream_ref stream, std::uint64_t sequence) override;
  [[nodiscard]] bool reached(std::uint64_t sequence) override;
  void drained() noexcept override { drained_ = true; }

private:
  using count = std::atomic<std::uint64_t>;

  std::unique_ptr<count> done_ = std::make_unique<count>(0); ///< The driver's threads hold its address.
  bool armed_ = false;
  bool drained_ = false;
};

} // namespace troupe
