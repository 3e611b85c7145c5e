/// The flight recorder: the latest requests of each rank of each world of a runtime, and their outcomes. Always on,
/// bounded, and read after a fault or on demand.
#pragma once

#include <troupe/collectives/operation/request.hpp>
#include <troupe/collectives/progress/progress_record.hpp>
#include <troupe/collectives/recording/request_tally.hpp>
#include <troupe/completion/poller/track.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace troupe {

/// A ring buffer of entries of \p Words words each. Writing never waits, neither for readers nor for other writers.
/// Entries that are overwritten during a read are omitted from it. If a writer is overtaken by the whole length of the
/// log, one entry may mix words of two entries; each word is intact.
/// Threads: write() and read() may be called from any thread.
template <std::size_t Words>
class ring_log {
public:
  using words = std::array<std::uint64_t, Words>;

  /// \p capacity is rounded up to a power of two; 0 keeps nothing.
  explicit ring_log(std::size_t capacity) {
    if (capacity == 0) return;
    capacity = std::bit_ceil(capacity);
    entries_ = std::make_unique<entry[]>(capacity);
    mask_ = capacity - 1;
  }

  [[nodiscard]] bool keeps_nothing() const noexcept { return entries_ == nullptr; }
  [[nodiscard]] std::size_t capacity() const noexcept { return entries_ ? mask_ + 1 : 0; }
  /// Returns the number of entries written so far, including overwritten ones.
  [[nodiscard]] std::uint64_t written() const noexcept { return next_.load(std::memory_order_relaxed); }

  void write(const words& what) noexcept {
    if (!entries_) return;
    const std::uint64_t number = next_.fetch_add(1, std::memory_order_relaxed);
    entry& to = entries_[number & mask_];
    // The version is odd during the write. Every word is stored with release order, so that a thread that reads a new
    // word also sees the odd version.
    to.version.store(2 * number + 1, std::memory_order_relaxed);
    for (std::size_t i = 0; i < Words; ++i) to.held[i].store(what[i], std::memory_order_release);
    to.version.store(2 * number + 2, std::memory_order_release);
    // The log is too long for a cache. Without the prefetch, a write would wait for its memory and delay the next
    // locked instruction.
    const char* const next = reinterpret_cast<const char*>(&entries_[(number + 1) & mask_]);
    for (std::size_t at = 0; at < sizeof(entry); at += alignof(entry)) __builtin_prefetch(next + at, 1);
  }

  /// Returns the kept entries, oldest first.
  [[nodiscard]] std::vector<words> read() const {
    std::vector<words> all;
    const std::uint64_t end = next_.load(std::memory_order_acquire);
    const std::uint64_t begin = end > capacity() ? end - capacity() : 0;
    all.reserve(static_cast<std::size_t>(end - begin));
    for (std::uint64_t number = begin; number < end; ++number) {
      const entry& from = entries_[number & mask_];
      const std::uint64_t version = from.version.load(std::memory_order_acquire);
      if (version != 2 * number + 2) continue;
      words seen{};
      for (std::size_t i = 0; i < Words; ++i) seen[i] = from.held[i].load(std::memory_order_acquire);
      if (from.version.load(std::memory_order_relaxed) == version) all.push_back(seen);
    }
    return all;
  }

private:
  struct alignas(64) entry {
    std::atomic<std::uint64_t> version{0}; ///< 2 n + 2 if this holds entry n; odd during a write.
    std::array<std::atomic<std::uint64_t>, Words> held{};
  };

  std::unique_ptr<entry[]> entries_;
  std::uint64_t mask_ = 0;
  alignas(64) std::atomic<std::uint64_t> next_{0};
};

/// Identifies a request among those of its rank and world. Ranks and worlds number their tickets separately.
struct flight_name {
  troupe::ticket ticket{};
  bool of_world = false;
  troupe::epoch epoch{};

  // NOLINTNEXTLINE(readability-implicit-bool-conversion): the generated code converts a bool
  friend auto operator<=>(const flight_name&, const flight_name&) = default;
};

/// The life of one request at one rank, as far as it is known. Times are those of the process's steady clock.
struct flight {
  flight_name name;
  std::optional<operation_mark> what{}; ///< nullopt if its beginning was overwritten.
  std::uint64_t client = 0;
  std::size_t bytes = 0; ///< Size of the buffers that it uses.
  call_site site{};
  std::optional<time_point> asked{};        ///< Accepted by its actor.
  std::optional<time_point> matched{};      ///< All participants had requested it; its place in the order was fixed.
  std::optional<time_point> launch_began{}; ///< Begin of the call that enqueued it.
  std::optional<time_point> launched{};     ///< End of that call.
  std::optional<time_point> started{};      ///< Seen to run; most requests end before they are seen running.
  std::optional<time_point> finished{};     ///< Seen done on the GPU.
  std::optional<time_point> replied{}; ///< Answered. For a part of a request to the world: handed to the common answer.
  std::uint64_t launch = 0;            ///< Its number among the rank's launches, from 1.
  std::size_t fused = 0;               ///< Requests in that launch.
  errc result = errc::none;            ///< The code of its answer.
};

/// The rank and world whose requests a flight_line records.
struct flight_place {
  std::uint64_t world = 0;
  rank self{};
  int world_size = 0; ///< Number of ranks of the world in the epochs that the line records.
  device_id where{};

  friend bool operator==(const flight_place&, const flight_place&) = default;
};

/// Times of a request that its rank's threads record, without the request's identity.
struct flight_timestamps {
  time_point matched{};
  time_point launch_began{};
  time_point launched{};
  launch_place at{};
  std::size_t fused = 1;
};

/// The records of one rank of one world. Threads: all functions may be called from any thread. None waits, except that
/// follow() and progress() wait for each other.
class flight_line {
public:
  /// Keeps the last \p capacity requests; 0 keeps none and only counts.
  flight_line(flight_place who, std::size_t capacity);

  void asked(flight_name name, const operation_sketch& what, std::uint64_t client, std::size_t bytes, call_site site,
             time_point when) noexcept;
  void launched(flight_name name, std::uint64_t position, const flight_timestamps& when) noexcept;
  /// Records that the request was seen done on the GPU. It thereby counts as answered, unless it was answered before.
  void finished(flight_name name, std::optional<time_point> started, time_point when) noexcept;
  void answered(flight_name name, errc result, time_point when) noexcept;

  [[nodiscard]] request_tally& tally() noexcept { return tally_; }
  [[nodiscard]] const request_tally& tally() const noexcept { return tally_; }
  [[nodiscard]] const flight_place& who() const noexcept { return who_; }
  /// Returns whether requests are recorded, or only counted.
  [[nodiscard]] bool records() const noexcept { return !asked_.keeps_nothing(); }
  /// Returns the number of requests so far, including overwritten ones.
  [[nodiscard]] std::uint64_t asked_in_all() const noexcept { return asked_.written(); }
  /// Makes progress() read \p present, the rank's progress in its latest epoch.
  void follow(std::weak_ptr<const progress_record> present);
  /// Returns the rank's progress in its latest epoch; nullopt if that epoch has ended.
  [[nodiscard]] std::optional<pipeline_progress::counts> progress() const;
  /// Returns the known requests in the order in which they were made. Requests whose beginning was overwritten come
  /// first.
  [[nodiscard]] std::vector<flight> read() const;

private:
  flight_place who_;
  request_tally tally_;
  ring_log<10> asked_;
  ring_log<7> launched_;
  ring_log<4> ended_; ///< A request that was answered at its deadline has two entries.
  mutable std::mutex mutex_;
  std::weak_ptr<const progress_record> present_; ///< Weak, because it holds this line.
};

/// Holds the lines of all ranks of all worlds of a runtime. Threads: all functions may be called from any thread.
class flight_recorder {
public:
  /// Creates a recorder whose lines keep the last \p requests requests. With 0, lines only count requests.
  explicit flight_recorder(std::size_t requests) : requests_{requests} {}
  /// Returns a recorder without lines: line_of() returns null.
  [[nodiscard]] static std::shared_ptr<flight_recorder> silent();

  /// Returns the line of \p who; null from a silent recorder. Epochs with equal \p who share one line, so a world that
  /// has shrunk has new lines.
  [[nodiscard]] std::shared_ptr<flight_line> line_of(const flight_place& who);
  /// Returns the lines of existing worlds, and of the last few worlds that have ended.
  [[nodiscard]] std::vector<std::shared_ptr<const flight_line>> lines() const;

private:
  std::size_t requests_;
  bool is_silent_ = false;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<flight_line>> lines_; ///< In the order of creation.
};

} // namespace troupe
