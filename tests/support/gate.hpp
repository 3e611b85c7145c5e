/// Makes "not done yet" deterministic in tests: work behind a gate has certainly not run before open().
#pragma once

#include <troupe/device/device.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/stream.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace troupe::tests {

/// A word in pinned memory that tests and devices share.
class shared_word {
public:
  explicit shared_word(const std::shared_ptr<device>& where, std::uint32_t first = 0)
    : memory_{allocate_pinned(where, sizeof(std::uint32_t))} {
    set(first);
  }
  [[nodiscard]] std::uint32_t* address() const { return memory_.host_span<std::uint32_t>().data(); }
  [[nodiscard]] std::uint32_t get() const { return std::atomic_ref{*address()}.load(std::memory_order_acquire); }
  void set(std::uint32_t value) const { std::atomic_ref{*address()}.store(value, std::memory_order_release); }
  /// Waits without a time limit; the test's own limit ends a hang.
  void await(std::uint32_t value) const {
    while (get() != value) std::this_thread::yield();
  }

private:
  buffer memory_;
};

/// Holds streams until it is opened. The destructor opens it.
class gate {
public:
  explicit gate(std::shared_ptr<device> where) : device_{std::move(where)}, word_{device_} {}
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;
  /// After a test that failed half-way, neither hangs nor frees the word while a device still polls it.
  ~gate() {
    open();
    try {
      const auto last = std::chrono::steady_clock::now() + std::chrono::seconds{1};
      while (!std::ranges::all_of(passed_, [](const shared_event& one) { return one->reached(); })) {
        if (std::chrono::steady_clock::now() > last) throw exception{errc::deadline_exceeded, "a gate is still in use"};
        std::this_thread::yield();
      }
    } catch (...) {
      static_cast<void>(new shared_word{word_}); // leaked on purpose
    }
  }

  void hold(stream_ref stream) {
    device_->api().wait_word(device_->id(), stream.native(), word_.address(), 1);
    passed_.push_back(record_event(device_, stream));
  }
  void open() const noexcept { word_.set(1); }

private:
  std::shared_ptr<device> device_;
  shared_word word_;
  std::vector<shared_event> passed_;
};

} // namespace troupe::tests
