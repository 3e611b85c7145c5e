/// The protocol of a single-producer single-consumer ring of records in memory that two processes share, and of the
/// doorbell that wakes a parked reader. The accesses to memory are a template parameter, so that tests can enumerate
/// the interleavings of all loads and stores and end either side at each of them (docs/design/0068-order-rings.md).
///
/// A ring is an array of 64-bit words. A record is its sequence word, a header word and the payload, padded to whole
/// words. The sequence word of the record that begins at word p, counted from the first word ever written, is p + 1.
/// The word behind the last record is zero. A record may wrap at any word.
///
/// Neither side trusts the other. Each keeps its own position in private memory and never reads it back. It checks the
/// bounds of each value that it reads from the other side before it uses the value. It copies a record, then checks it.
#pragma once

#include <troupe/device/time.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

/// Names each access of the protocol to shared memory. Ignored by the real memory.
enum class ring_step : std::uint8_t {
  read_consumed, ///< Writer: the reader's position.
  clear_next,    ///< Writer: zeroes the sequence word behind the new record.
  write_payload, ///< Writer: one word of the payload.
  write_header,  ///< Writer: length and check.
  publish,       ///< Writer: the sequence word, after everything else.
  fence,         ///< Writer: between what it has published and its loads of "parked".
  read_parked,   ///< Writer: whether the reader is parked.
  count_ring,    ///< Writer: changes the word on which the reader sleeps.
  wake,          ///< Writer: wakes the sleeping reader.
  read_sequence, ///< Reader: whether there is a record.
  read_header,   ///< Reader: length and check.
  read_payload,  ///< Reader: one word of the payload.
  consume,       ///< Reader: the record is copied, and its words may be written again.
  read_rings,    ///< Reader: the value on which it will sleep.
  announce_park, ///< Reader: it is about to sleep.
  check_news,    ///< Reader: the last check before it sleeps.
  sleep,         ///< Reader: sleeps unless the word has changed.
  end_park       ///< Reader: it is awake.
};

/// What one side found in shared memory that the other side cannot have written there by the protocol.
enum class ring_fault : std::uint8_t {
  none,
  sequence, ///< A sequence word is neither zero nor that of the next record.
  length,   ///< A record is longer than the limit.
  check,    ///< A record is not what its writer wrote: it is torn, overwritten or forged.
  consumed  ///< The reader claims to have read what was not written, or less than before.
};

/// Returns what is wrong, as the end of a sentence that begins with the name of the ring.
[[nodiscard]] std::string_view describe(ring_fault fault) noexcept;

/// Where the words of a ring are.
struct ring_layout {
  static constexpr std::size_t consumed = 8;     ///< The only word that the reader writes, in a cache line of its own.
  static constexpr std::size_t first_data = 16;  ///< The words before are the header and the reader's cache line.
  static constexpr std::size_t record_words = 2; ///< Words of a record without payload.

  std::uint64_t capacity_words = 0; ///< A power of two.
  std::uint64_t seed = 0;           ///< Mixed into the check of each record: distinct for each ring.
  std::size_t most_bytes = 0;       ///< Limit of a record's payload.

  [[nodiscard]] std::size_t word(std::uint64_t position) const noexcept {
    return first_data + static_cast<std::size_t>(position & (capacity_words - 1));
  }
  /// Returns the words of a record of this many bytes.
  [[nodiscard]] static constexpr std::uint64_t words_of(std::uint64_t payload_bytes) noexcept {
    return record_words + (payload_bytes + 7) / 8;
  }
};

/// Mixes the words of a record into 32 bits that tell a torn or overwritten record from one that was written. It is not
/// a signature: a process that may write the ring can forge records.
class record_check {
public:
  record_check(std::uint64_t seed, std::uint64_t position, std::uint64_t length) noexcept : mixed_{seed} {
    add(position);
    add(length);
  }
  void add(std::uint64_t word) noexcept {
    mixed_ = (mixed_ ^ word) * 0x9E3779B97F4A7C15U;
    mixed_ ^= mixed_ >> 32U;
  }
  [[nodiscard]] std::uint32_t value() const noexcept {
    return static_cast<std::uint32_t>((mixed_ * 0xD6E8FEB86659FD93U) >> 32U);
  }

private:
  std::uint64_t mixed_;
};

/// The result of a write.
enum class ring_write : std::uint8_t {
  written,
  full,  ///< The reader has not read enough yet. Nothing was written.
  forged ///< See fault(). Nothing was written, and nothing more will be.
};

/// The result of a read.
enum class ring_read : std::uint8_t {
  empty,
  last,      ///< A record that ends a message.
  continued, ///< A record whose message continues in the next one.
  forged     ///< See fault(). Nothing more is read.
};

/// Writes records into a ring. Threads: one at a time. \p Access: see shared_words.
template <class Access>
class ring_writer {
public:
  ring_writer(Access memory, const ring_layout& layout) : memory_{memory}, layout_{layout} {}

  /// Writes one record; \p continues says that the message continues in the next one. \p payload must not exceed
  /// layout.most_bytes.
  [[nodiscard]] ring_write write(std::string_view payload, bool continues) {
    const std::uint64_t words = ring_layout::words_of(payload.size());
    // One word more, because the sequence word of the next record is zeroed before this record is published.
    if (!has_room(words + 1)) return fault_ == ring_fault::none ? ring_write::full : ring_write::forged;
    memory_.store(layout_.word(position_ + words), 0, std::memory_order_relaxed, ring_step::clear_next);
    const std::uint64_t length = payload.size() << 1U | (continues ? 1U : 0U);
    record_check check{layout_.seed, position_, length};
    std::uint64_t at = position_ + ring_layout::record_words;
    for (std::size_t from = 0; from < payload.size(); from += 8, ++at) {
      std::uint64_t word = 0;
      if (payload.size() - from >= 8)
        std::memcpy(&word, payload.data() + from, 8);
      else
        std::memcpy(&word, payload.data() + from, payload.size() - from);
      check.add(word);
      memory_.store(layout_.word(at), word, std::memory_order_relaxed, ring_step::write_payload);
    }
    memory_.store(layout_.word(position_ + 1), length << 32U | check.value(), std::memory_order_relaxed,
                  ring_step::write_header);
    // Release: a reader that sees this word also sees the record and the zero behind it.
    memory_.store(layout_.word(position_), position_ + 1, std::memory_order_release, ring_step::publish);
    position_ += words;
    return ring_write::written;
  }

  /// Returns the reader's position at the last look().
  [[nodiscard]] std::uint64_t read_words() const noexcept { return consumed_; }
  /// Reads the reader's position. Returns whether it has changed since the last call.
  bool look() {
    // Acquire: the reader's copies come before the stores into the words that it has read.
    const std::uint64_t seen = memory_.load(ring_layout::consumed, std::memory_order_acquire, ring_step::read_consumed);
    if (seen < consumed_ || seen > position_) {
      fault_ = ring_fault::consumed;
      return false;
    }
    return seen != std::exchange(consumed_, seen);
  }
  [[nodiscard]] ring_fault fault() const noexcept { return fault_; }
  [[nodiscard]] std::size_t most_bytes() const noexcept { return layout_.most_bytes; }

private:
  [[nodiscard]] bool has_room(std::uint64_t words) {
    const auto fits = [&] { return layout_.capacity_words - (position_ - consumed_) >= words; };
    if (fault_ != ring_fault::none) return false;
    if (fits()) return true;
    look();
    return fault_ == ring_fault::none && fits();
  }

  Access memory_;
  ring_layout layout_;
  std::uint64_t position_ = 0;
  std::uint64_t consumed_ = 0; ///< As last seen.
  ring_fault fault_ = ring_fault::none;
};

/// Reads records from a ring. Threads: one at a time.
template <class Access>
class ring_reader {
public:
  ring_reader(Access memory, const ring_layout& layout) : memory_{memory}, layout_{layout} {}

  /// Appends the payload of the next record to \p into. If it is empty or forged, \p into does not change.
  [[nodiscard]] ring_read read(std::string& into) {
    if (fault_ != ring_fault::none) return ring_read::forged;
    // Acquire: the record, and the zero behind it, were written before this word.
    const std::uint64_t sequence =
        memory_.load(layout_.word(position_), std::memory_order_acquire, ring_step::read_sequence);
    if (sequence == 0) return ring_read::empty;
    if (sequence != position_ + 1) return refuse(ring_fault::sequence);
    const std::uint64_t header =
        memory_.load(layout_.word(position_ + 1), std::memory_order_relaxed, ring_step::read_header);
    const std::uint64_t length = header >> 32U; // read once: the writer cannot change it after the check
    const auto size = static_cast<std::size_t>(length >> 1U);
    if (size > layout_.most_bytes) return refuse(ring_fault::length);
    const std::size_t before = into.size();
    into.resize(before + size);
    record_check check{layout_.seed, position_, length};
    std::uint64_t at = position_ + ring_layout::record_words;
    for (std::size_t to = 0; to < size; to += 8, ++at) {
      const std::uint64_t word = memory_.load(layout_.word(at), std::memory_order_relaxed, ring_step::read_payload);
      check.add(word);
      std::memcpy(into.data() + before + to, &word, size - to >= 8 ? 8 : size - to);
    }
    // From here on, only the copy is used.
    if (check.value() != static_cast<std::uint32_t>(header)) {
      into.resize(before);
      return refuse(ring_fault::check);
    }
    position_ += ring_layout::words_of(size);
    // Release: the copies come before the writer's next stores into these words.
    memory_.store(ring_layout::consumed, position_, std::memory_order_release, ring_step::consume);
    return (length & 1U) != 0 ? ring_read::continued : ring_read::last;
  }

  /// Returns whether read() would find something. Sequentially consistent, for doorbell_sleeper::park().
  [[nodiscard]] bool has_news() {
    return fault_ != ring_fault::none ||
           memory_.load(layout_.word(position_), std::memory_order_seq_cst, ring_step::check_news) != 0;
  }
  [[nodiscard]] ring_fault fault() const noexcept { return fault_; }

private:
  ring_read refuse(ring_fault fault) noexcept {
    fault_ = fault;
    return ring_read::forged;
  }

  Access memory_;
  ring_layout layout_;
  std::uint64_t position_ = 0;
  ring_fault fault_ = ring_fault::none;
};

/// Where the words of a doorbell are.
struct doorbell_layout {
  static constexpr std::size_t parked = 8; ///< Written by the reader alone.
  static constexpr std::size_t rings = 16; ///< Counted up by writers. The reader sleeps on its lower half.
  static constexpr std::size_t words = 24;
};

/// The side of a doorbell that a writer uses.
template <class Access>
class doorbell_caller {
public:
  explicit doorbell_caller(Access memory) : memory_{memory} {}

  /// Wakes the reader if it is parked. Call it after a write. The writer has a fence between its write and its load of
  /// "parked", and the reader sets "parked" before it looks for news. So either the writer sees that the reader is
  /// parked, or the reader sees the news. If a writer's process ends after it has published but before it wakes the
  /// reader, the reader sleeps until its time limit, and other writers still find "parked" set. Costs a fence and one
  /// load while the reader is awake.
  void ring() {
    fence();
    ring_after_fence();
  }
  /// The two steps of ring(). A fence waits until all writes before it have reached the other cores. A writer of
  /// several rings therefore writes into all of them, calls fence() once, and then ring_after_fence() for each bell.
  void fence() { memory_.fence(ring_step::fence); }
  void ring_after_fence() {
    if (memory_.load(doorbell_layout::parked, std::memory_order_relaxed, ring_step::read_parked) == 0) return;
    memory_.add(doorbell_layout::rings, 1, ring_step::count_ring);
    memory_.wake(doorbell_layout::rings, ring_step::wake);
  }

private:
  Access memory_;
};

/// The side of a doorbell that its owner uses, the reader of one ring or several.
template <class Access>
class doorbell_sleeper {
public:
  explicit doorbell_sleeper(Access memory) : memory_{memory} {}

  /// Sleeps until a writer rings or until \p at_most has passed, unless \p has_news() returns true. \p has_news() must
  /// read with sequential consistency. May also return earlier. Returns what \p has_news() returned.
  template <class HasNews>
  bool park(HasNews has_news, nanoseconds at_most) {
    // Acquire: a value that this park's writers have changed must not be read before "parked" is set.
    const std::uint64_t rings = memory_.load(doorbell_layout::rings, std::memory_order_acquire, ring_step::read_rings);
    memory_.store(doorbell_layout::parked, 1, std::memory_order_seq_cst, ring_step::announce_park);
    const bool found = has_news();
    if (!found) memory_.sleep(doorbell_layout::rings, rings, at_most, ring_step::sleep);
    memory_.store(doorbell_layout::parked, 0, std::memory_order_relaxed, ring_step::end_park);
    return found;
  }

private:
  Access memory_;
};

} // namespace troupe
