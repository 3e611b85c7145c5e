/// Measures what one completion strategy costs and how soon a completion is seen, on one stream of one device, without
/// communicators, actors or poller.
#pragma once

#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/sources/completion_source.hpp>
#include <troupe/device/memory/buffer.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace troupe::program {

/// Every function takes \p count samples and returns them in microseconds. The stream is empty before and after it.
/// The measured operation is a fill of device memory. A gate is a word of pinned memory that the stream waits for:
/// work behind a gate is certainly not finished until the CPU writes that word.
///
/// Errors: the device's; deadline_exceeded when there was no progress for 30 seconds.
/// Threads: one, which spins.
class completion_probe {
public:
  /// The largest number of operations behind a closed gate. CUDA accepts 48 host functions there, and blocks the caller
  /// of the 64th: the CPU would then wait for itself.
  static constexpr std::size_t largest_depth = 48;

  completion_probe(std::shared_ptr<device> where, std::unique_ptr<completion_source> source,
                   std::size_t operation_bytes);
  completion_probe(const completion_probe&) = delete;
  completion_probe& operator=(const completion_probe&) = delete;
  ~completion_probe();

  /// Measures the call of arm() behind one operation, when everything earlier has been seen.
  [[nodiscard]] std::vector<double> arm_alone(std::size_t count);
  /// Measures the call of arm() behind an operation, with 1 to \p depth − 1 armed, unfinished operations before it.
  [[nodiscard]] std::vector<double> arm_behind(std::size_t count, std::size_t depth);
  /// Measures one check of an unfinished operation: each sample is the mean of \p looks checks in a row.
  [[nodiscard]] std::vector<double> look(std::size_t count, std::size_t looks);
  /// Measures the time from the CPU's write that opens the gate, with the completion mark next in the stream, until
  /// reached() returns true.
  [[nodiscard]] std::vector<double> release_to_seen(std::size_t count);
  /// Measures the time from before an operation is enqueued and armed until reached() returns true.
  [[nodiscard]] std::vector<double> enqueue_to_seen(std::size_t count);
  /// Measures the time per operation for \p depth operations behind a gate, from the opening of the gate to a word that
  /// the stream writes behind the last one. If \p armed, each operation is armed; otherwise none is.
  [[nodiscard]] std::vector<double> each_of_many(std::size_t count, std::size_t depth, bool armed);

private:
  enum class word : std::size_t { gate, entered, ended };

  [[nodiscard]] std::uint32_t* address(word which) const noexcept;
  [[nodiscard]] std::uint32_t value(word which) const noexcept;
  void operate() const;
  void arm() { source_->arm(work_, ++sequence_); }
  /// Makes the stream write a mark when it reaches this point, and then wait until open_gate().
  void close_gate();
  /// Returns when the device waits at the gate and has had time to fetch the work that was enqueued behind it.
  void await_gate();
  void open_gate() noexcept;
  /// Waits until the last armed operation is seen.
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

/// Uses no slot, no generation count and no second stream, so it shows what the hardware gives. The write delays the
/// operations that follow it in the stream.
class bare_word_source final : public completion_source {
public:
  explicit bare_word_source(const std::shared_ptr<device>& where)
    : memory_{allocate_pinned(where, sizeof(std::uint32_t))}, word_{memory_.host_span<std::uint32_t>().data()} {
    std::atomic_ref{*word_}.store(0, std::memory_order_relaxed);
  }

  void prepare(const std::shared_ptr<device>&) override {}
  void arm(stream_ref stream, std::uint64_t sequence) override {
    device& where = stream.where();
    where.api().write_word(where.id(), stream.native(), word_, static_cast<std::uint32_t>(sequence));
  }
  /// At most 2³¹ − 1 operations may be armed in all.
  [[nodiscard]] bool reached(std::uint64_t sequence) override {
    return std::atomic_ref{*word_}.load(std::memory_order_acquire) >= sequence;
  }
  void drained() noexcept override {}

private:
  buffer memory_;
  std::uint32_t* word_;
};

} // namespace troupe::program
