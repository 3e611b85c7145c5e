/// Reads flight records of one or several processes, converts their times to one clock, and writes Chrome's trace event
/// format, which viewers (Perfetto) open.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace troupe::program {

/// Nanoseconds on the clock of the first record.
using trace_time = std::int64_t;

/// One request at one rank. Unknown values are empty.
struct traced_request {
  std::uint64_t ticket = 0;
  std::uint64_t epoch = 0;
  bool of_world = false;
  std::string what{"a request whose beginning is no longer known"}; ///< E.g. "all_reduce of 1024 f32, sum".
  std::string lane{};
  std::uint64_t position = 0;
  bool needs_all_ranks = false;
  std::size_t bytes = 0;
  std::string site{}; ///< E.g. "serve.cpp:42".
  std::optional<trace_time> asked{}, matched{}, launch_began{}, launched{}, finished{}, replied{};
  std::uint64_t launch = 0;
  std::size_t fused = 0;
  std::string result{}; ///< The error; empty for a success and for a request that is not over.
  /// The computed time when the GPU began the request: after its launch and after earlier work on the rank's stream.
  std::optional<trace_time> began{};

  /// Returns the name of the operation, e.g. "all_reduce".
  [[nodiscard]] std::string operation() const;
  [[nodiscard]] bool is_over() const { return finished.has_value() || !result.empty(); }
};

/// One rank of one world.
struct traced_rank {
  std::string host{};
  int pid = 0;
  std::uint64_t world = 0;
  int rank = 0;
  int world_size = 0;
  int device = 0;
  std::uint64_t asked_in_all = 0;
  std::vector<traced_request> requests{}; ///< In the order in which they were sent.

  /// Returns e.g. "rank 0 of world 1".
  [[nodiscard]] std::string name() const;
};

struct flight_trace {
  std::string about{};
  std::vector<traced_rank> ranks{};
  std::vector<std::string> remarks{}; ///< Notes to read before times of several hosts are compared.

  /// Returns the requests that are one collective of several ranks: for each part, its rank and its place there.
  /// Requests that concern only one rank are left out.
  struct part {
    std::size_t rank = 0;
    std::size_t request = 0;
  };
  [[nodiscard]] std::vector<std::vector<part>> collectives() const;
  [[nodiscard]] const traced_request& at(part one) const { return ranks[one.rank].requests[one.request]; }
};

/// Reads the records. Processes of one machine share a clock. Processes of other machines are first aligned by their
/// hosts' clocks, and then by the collectives that they finished together. Errors: invalid_argument, whose text names
/// the file and its error.
[[nodiscard]] flight_trace read_flight_records(const std::vector<std::filesystem::path>& files);

/// Returns a document with one process per rank, which has three rows: the lifetimes of its requests, its launcher's
/// calls, and its GPU. Arrows join the parts of a collective on the GPUs. Times are in microseconds from the first
/// request on.
[[nodiscard]] nlohmann::ordered_json trace_events(const flight_trace& trace);

} // namespace troupe::program
