/// How an asyncio loop hears of replies: a descriptor that it watches, and a list of who has been answered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

namespace troupe::python {

/// The poller writes to the descriptor, which takes no GIL, once for all replies that come until the loop looks: a
/// burst of replies wakes the loop once. Threads: safe from any.
class loop_mailbox {
public:
  loop_mailbox();
  loop_mailbox(const loop_mailbox&) = delete;
  loop_mailbox& operator=(const loop_mailbox&) = delete;
  ~loop_mailbox();

  /// One more put() will come, for which there is room from now on.
  void expect();
  /// That one, or it will not come.
  void put(std::uint64_t who) noexcept;
  void expect_no_more() noexcept;
  /// All since the last time; the descriptor is quiet again.
  [[nodiscard]] std::vector<std::uint64_t> take();
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

private:
  std::mutex guard_;
  std::vector<std::uint64_t> come_;
  std::size_t expected_ = 0;
  int descriptor_;
};

} // namespace troupe::python
