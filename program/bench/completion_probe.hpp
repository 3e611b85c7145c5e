/// What one completion strategy costs and how soon it is seen, on one stream of one device, without communicators,
/// actors or poller.
#pragma once

#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/sources/completion_source.hpp>
#include <troupe/device/memory/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe::program {

/// Every function takes \p count samples and returns them in microseconds; the stream is empty before and after.
/// The operation is a fill of device memory. A gate is a word of pinned memory that the stream waits for, so what is
/// behind it is certainly not done until the CPU writes it.
///
/// Errors: the device's; deadline_exceeded when nothing has moved for 30 seconds.
/// Threads: one, which spins.
class completion_probe {
public:
  /// Behind a closed gate CUDA takes 48 host functions, and holds the caller of the 64th: the CPU would wait for
  /// itself.
  static constexpr std::size_t largest_depth = 48;

  completion_probe(std::shared_ptr<device> where, std::unique_ptr<completion_source> source,
                   std::size_t operation_bytes);
  completion_probe(const completion_probe&) = delete;
  completion_probe& operator=(const completion_probe&) = delete;
  ~completion_probe();

  /// The call of arm() behind one operation, everything earlier seen.
  [[nodiscard]] std::vector<double> arm_alone(std::size_t count);
  /// The call of arm() behind an operation, with 1 to \p depth − 1 armed operations not done in front of it.
  [[nodiscard]] std::vector<double> arm_behind(std::size_t count, std::size_t depth);
  /// One look at an operation that is not done: the mean of \p looks in a row.
  [[nodiscard]] std::vector<double> look(std::size_t count, std::size_t looks);
  /// From the CPU's write that opens the gate, with the mark next in the stream, to reached() being true.
  [[nodiscard]] std::vector<double> release_to_seen(std::size_t count);
  /// From before an operation is enqueued and armed to reached() being true.
  [[nodiscard]] std::vector<double> enqueue_to_seen(std::size_t count);
  /// Time for each of \p depth operations enqueued behind a gate, from its opening to a word that the stream writes
  /// behind the last; with each operation armed, or none.
  [[nodiscard]] std::vector<double> each_of_many(std::size_t count, std::size_t depth, bool armed);

private:
  enum class word : std::size_t { gate, entered, ended };

  [[nodiscard]] std::uint32_t* address(word which) const noexcept;
  [[nodiscard]] std::uint32_t value(word which) const noexcept;
  void operate() const;
  void arm() { source_->arm(work_, ++sequence_); }
  /// Holds the stream until open_gate(), and marks when it has come there.
  void close_gate();
  /// Returns when the device waits at the gate and has had time to take what was enqueued behind it.
  void await_gate();
  void open_gate() noexcept;
  /// Until the last armed operation is seen.
  void await_seen();
  void await_word(word which, std::uint32_t expected);
  template <class Done>
  void spin_until(Done done) const;

  std::shared_ptr<device> device_;
  stream work_;
  buffer words_;
  buffer operated_on_;
  std::unique_ptr<completion_source> source_;
  std::uint64_t sequence_ = 0;
  std::uint32_t gates_ = 0;
  std::uint32_t ends_ = 0;
};

} // namespace troupe::program
