/// Memory of a simulated run, with known contents, in blocks that report their release.
#pragma once

#include <troupe/device/memory/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

namespace troupe::simulation {

constexpr std::uint64_t unwritten = 0xEEEEEEEEEEEEEEEEU; ///< Marks outputs that have not been written.
constexpr std::size_t element_bytes = sizeof(std::uint64_t);

/// Returns the memory as elements. The mock's device memory is host memory.
[[nodiscard]] inline std::span<std::uint64_t> elements(std::byte* first, std::size_t count) {
  return {reinterpret_cast<std::uint64_t*>(first), count};
}

/// A range of memory as an operand. Threads: the run's.
class watched_block final : public memory_block {
public:
  /// \p under is the buffer that contains it, and is held as long as this. Empty: the memory outlives the run's work.
  watched_block(std::shared_ptr<device> where, std::byte* first, std::size_t count, buffer under,
                std::function<void()> on_release)
    : memory_block{std::move(where), memory_kind::device, first, count * element_bytes},
      under_{std::move(under)},
      on_release_{std::move(on_release)} {}
  ~watched_block() override {
    if (on_release_) on_release_();
  }
  void note_use(stream_ref stream) override {
    if (under_) under_.note_use(stream);
  }

private:
  buffer under_;
  std::function<void()> on_release_;
};

} // namespace troupe::simulation
