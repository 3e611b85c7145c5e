/// What one rank of one world has been asked for lately, and what became of it: always written down, bounded, and read
/// when something has gone wrong or somebody asks.
#pragma once

#include <troupe/collectives/pipeline/pipeline_progress.hpp>
#include <troupe/collectives/recording/call_site.hpp>
#include <troupe/collectives/recording/request_tally.hpp>
#include <troupe/collectives/recording/ring_log.hpp>
#include <troupe/completion/poller/in_flight.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace troupe {

/// Names a request among those of its rank and world: ranks and worlds number their tickets apart.
struct flight_name {
  troupe::ticket ticket{};
  bool of_world = false;
  troupe::epoch epoch{};

  friend auto operator<=>(const flight_name&, const flight_name&) = default;
};

/// The life of one request at one rank, as far as it has come and is still known. Times are the process's steady clock.
struct flight {
  flight_name name;
  std::optional<operation_mark> what{}; ///< None where its beginning has been overwritten.
  std::uint64_t client = 0;
  std::size_t bytes = 0; ///< Of the buffers that it names.
  call_site site{};
  std::optional<time_point> asked{};        ///< Accepted by its actor.
  std::optional<time_point> matched{};      ///< All who take part had asked, and its turn had come.
  std::optional<time_point> launch_began{}; ///< The call that enqueued it.
  std::optional<time_point> launched{};     ///< That call has returned.
  std::optional<time_point> started{};      ///< Seen to run; most end before anybody looks.
  std::optional<time_point> finished{};     ///< Seen done on the GPU.
  std::optional<time_point> replied{};      ///< Answered. A part of a request to the world: handed to its answer.
  std::uint64_t launch = 0;                 ///< Its place among the rank's launches, from 1.
  std::size_t fused = 0;                    ///< Requests in that launch.
  errc result = errc::none;                 ///< Of its answer.
};

/// Who a line is about.
struct flight_place {
  std::uint64_t world = 0;
  rank self{};
  int world_size = 0; ///< In its latest epoch.
  device_id where{};

  friend bool operator==(const flight_place&, const flight_place&) = default;
};

/// Times in a request's life that its rank's threads note; not what they belong to.
struct flight_stations {
  time_point matched{};
  time_point launch_began{};
  time_point launched{};
  launch_place at{};
  std::size_t fused = 1;
};

/// Threads: every function by any. None waits, but follow() and progress() for each other.
class flight_line {
public:
  /// Keeps the last \p capacity requests; 0 keeps none, and only counts.
  flight_line(flight_place who, std::size_t capacity);

  void asked(flight_name name, const operation_sketch& what, std::uint64_t client, std::size_t bytes, call_site site,
             time_point when) noexcept;
  void launched(flight_name name, std::uint64_t position, const flight_stations& when) noexcept;
  /// Seen done on the GPU, and answered, unless it has been before.
  void finished(flight_name name, std::optional<time_point> started, time_point when) noexcept;
  void answered(flight_name name, errc result, time_point when) noexcept;

  [[nodiscard]] request_tally& tally() noexcept { return tally_; }
  [[nodiscard]] const request_tally& tally() const noexcept { return tally_; }
  [[nodiscard]] const flight_place& who() const noexcept { return who_; }
  /// Whether requests are written down, or counted alone.
  [[nodiscard]] bool records() const noexcept { return !asked_.keeps_nothing(); }
  /// Requests so far, kept or not.
  [[nodiscard]] std::uint64_t asked_in_all() const noexcept { return asked_.written(); }
  /// From now on progress() is that of \p present, the rank's in its latest epoch.
  void follow(std::weak_ptr<const progress_record> present);
  /// How far the rank has come in its latest epoch; none where that is over.
  [[nodiscard]] std::optional<pipeline_progress::counts> progress() const;
  /// What is known, in the order of asking; requests of which the beginning is no longer known come first.
  [[nodiscard]] std::vector<flight> read() const;

private:
  flight_place who_;
  request_tally tally_;
  ring_log<10> asked_;
  ring_log<7> launched_;
  ring_log<4> ended_; ///< Two for a request that was answered at its deadline.
  mutable std::mutex guard_;
  std::weak_ptr<const progress_record> present_; ///< Which holds the line.
};

} // namespace troupe
