/// Flight records of one process or several, read back and put on one clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace troupe::program {

/// Nanoseconds on the clock of the first record.
using trace_time = std::int64_t;

/// One request at one rank; what is not known is missing.
struct traced_request {
  std::uint64_t ticket = 0;
  std::uint64_t epoch = 0;
  bool of_world = false;
  std::string what{"a request whose beginning is no longer known"}; ///< "all_reduce of 1024 f32, sum"
  std::string lane{};
  std::uint64_t position = 0;
  bool needs_all_ranks = false;
  std::size_t bytes = 0;
  std::string site{}; ///< "serve.cpp:42"
  std::optional<trace_time> asked{}, matched{}, launch_began{}, launched{}, finished{}, replied{};
  std::uint64_t launch = 0;
  std::size_t fused = 0;
  std::string result{}; ///< Of an error; empty of a success and of what is not over.
  /// When the GPU began with it: behind its launch and behind what ran before it on the rank's stream. Worked out.
  std::optional<trace_time> began{};

  /// "all_reduce"
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
  std::vector<traced_request> requests{}; ///< In the order of asking.

  /// "rank 0 of world 1"
  [[nodiscard]] std::string name() const;
};

struct flight_trace {
  std::string about{};
  std::vector<traced_rank> ranks{};
  std::vector<std::string> remarks{}; ///< What to know before times of several hosts are compared.

  /// Requests that are one collective of several ranks: rank and place in it, of each. Those of one rank are left out.
  struct part {
    std::size_t rank = 0;
    std::size_t request = 0;
  };
  [[nodiscard]] std::vector<std::vector<part>> collectives() const;
  [[nodiscard]] const traced_request& at(part one) const { return ranks[one.rank].requests[one.request]; }
};

/// Processes of one machine share a clock. Those of others are compared by their hosts' clocks at first, and then by
/// the collectives that they finished together. Errors: invalid_argument, naming the file and what is wrong with it.
[[nodiscard]] flight_trace read_flight_records(const std::vector<std::filesystem::path>& files);

} // namespace troupe::program
