/// Detects that the work before a point in a stream has finished: by a word that the GPU writes, an event, or a host
/// function.
#pragma once

#include <troupe/completion/completion_settings.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace troupe {

class slot_table;

/// The word of one stream. It counts the stream's finished operations and contains a generation, so that a late write
/// by the previous stream of the word is never taken for progress of the current one.
class slot {
public:
  slot(std::uint32_t* word, std::uint8_t generation) noexcept : word_{word}, generation_{generation} {}

  [[nodiscard]] std::uint32_t* word() const noexcept { return word_; }
  /// Returns the value that the GPU writes when operation \p sequence (from 1) is done.
  [[nodiscard]] std::uint32_t value_for(std::uint64_t sequence) const noexcept;
  /// Returns whether operation \p sequence is done. Fewer than 2²³ operations may be in flight.
  [[nodiscard]] bool reached(std::uint64_t sequence) const noexcept;

private:
  std::uint32_t* word_;
  std::uint8_t generation_;
};

/// A fixed number of slots, each on its own cache line. Threads: all functions may be called from any thread.
class slot_table {
public:
  static constexpr std::size_t line_bytes = 64;

  slot_table(const std::shared_ptr<device>& where, std::size_t slot_count);
  slot_table(const slot_table&) = delete;
  slot_table& operator=(const slot_table&) = delete;
  /// Never frees the memory if a slot was not returned, because its stream may still write.
  ~slot_table();

  /// Returns a slot of a new generation with no finished operations. Errors: out_of_memory if all slots are in use.
  [[nodiscard]] slot acquire();
  /// Returns a slot to the table. Call it only when the stream can no longer write to the slot. The slot of a hanging
  /// stream is never returned.
  void release(const slot& used) noexcept;

private:
  std::shared_ptr<device> where_;
  std::mutex mutex_;
  std::vector<std::size_t> free_;
  std::vector<std::uint8_t> generations_;
  std::uint32_t* words_ = nullptr; ///< In pinned memory.
};

/// The source of completions of one stream. Operations are numbered from 1 in stream order.
/// Threads: arm() is called on the launcher, reached() on the poller, and on the launcher if the source rings().
class completion_source {
public:
  completion_source() = default;
  completion_source(const completion_source&) = delete;
  completion_source& operator=(const completion_source&) = delete;
  virtual ~completion_source() = default;

  /// Creates the required objects on the device, before the first arm(). Called on a thread that may block.
  virtual void prepare(const std::shared_ptr<device>& where) = 0;
  /// Enqueues the completion signal of operation \p sequence. Sequences are armed in order, without gaps except those
  /// that a launch signals itself.
  virtual void arm(stream_ref stream, std::uint64_t sequence) = 0;
  /// Returns the word that a launch may write itself, instead of arm() for operation \p sequence. Null if only arm()
  /// can signal it. Call in place of arm() or just before it. The word counts as armed from now on, because a launch
  /// that fails may have enqueued its write.
  [[nodiscard]] virtual completion_word word_for([[maybe_unused]] std::uint64_t sequence) { return {}; }
  /// Returns whether \p sequence is done. Throws the device's error if there is one.
  [[nodiscard]] virtual bool reached(std::uint64_t sequence) = 0;
  /// Returns whether the function that make_completion_source() was given is called when an operation is done.
  [[nodiscard]] virtual bool rings() const noexcept { return false; }
  /// Returns whether reached() calls the driver, which may block.
  [[nodiscard]] virtual bool calls_driver() const noexcept { return true; }
  /// States that the stream has drained and is not armed any more, so the resources of the source may be reused. Called
  /// on a thread that may block, after the last arm(). If there was none, prepare() may run at the same time.
  virtual void drained() noexcept = 0;
};

/// Returns the concrete strategy for \p asked on device \p id, never automatic. Errors: unsupported (flag, without word
/// operations).
[[nodiscard]] completion_strategy choose_strategy(completion_strategy asked, driver& api, device_id id);

/// Creates a source for a stream of \p where. \p on_done is called when an operation is done if the source rings(): on
/// any thread, also after the end of the source; it must not block, throw or call the driver.
/// Errors: those of choose_strategy() and of the device.
[[nodiscard]] std::unique_ptr<completion_source> make_completion_source(completion_strategy strategy,
                                                                        const std::shared_ptr<device>& where,
                                                                        std::shared_ptr<slot_table> slots,
                                                                        std::function<void()> on_done = {});

/// Detects completion by a word that the GPU writes. A write in the stream itself is seen earliest, but delays all
/// later work in the stream, by 4 to 5 µs on an H200. Recording an event causes no delay. Therefore the stream itself
/// writes only if no earlier operation is in flight. Otherwise a separate stream of the source waits for an event and
/// then writes. (docs/design/0005-completion-marks.md)
class flag_source final : public completion_source {
public:
  explicit flag_source(std::shared_ptr<slot_table> slots) : slots_{std::move(slots)}, slot_{slots_->acquire()} {}
  ~flag_source() override;

  void prepare(const std::shared_ptr<device>& where) override;
  void arm(stream_ref stream, std::uint64_t sequence) override;
  [[nodiscard]] completion_word word_for(std::uint64_t sequence) override;
  [[nodiscard]] bool reached(std::uint64_t sequence) override { return slot_.reached(sequence); }
  [[nodiscard]] bool calls_driver() const noexcept override { return false; }
  void drained() noexcept override;

private:
  void write(stream_ref stream, std::uint64_t sequence) const;

  struct side_stream {
    explicit side_stream(const std::shared_ptr<device>& where) : writer{where}, mark{where} {}
    stream writer;
    event mark; ///< One event is enough: a wait refers to the last record before the wait was enqueued.
  };

  std::shared_ptr<slot_table> slots_;
  slot slot_;
  std::optional<side_stream> side_stream_;
  /// The last operation whose word the side stream writes; 0 once that has been seen. Accessed only by the launcher.
  std::uint64_t side_mark_ = 0;
  bool armed_ = false;
  bool drained_ = false;
};

} // namespace troupe
