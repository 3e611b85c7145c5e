/// Servers whose ranks each decide the next step by what they see themselves: the patterns in which published serving
/// engines have hung. Each can be served with and without an agree, in the simulator and in any other world.
/// (docs/guide/serving.md)
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/completion/reply/outcome.hpp>
#include <troupe/device/enum_names.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/memory/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe::simulation {

using troupe::to_string;

enum class decision_pattern : std::uint8_t {
  own_clocks,   ///< Each rank's clock decides which requests have timed out (sglang#27221, sglang#37143).
  free_blocks,  ///< Each rank's count of free KV blocks decides how many requests fit (TensorRT-LLM#14020).
  cancellation, ///< A cancel reaches the ranks before or after a step (TensorRT-LLM#15356).
  pipeline_end, ///< The stages of a pipeline see a request end at different steps (sglang#34572).
};

/// What a rank decides by, or has decided: numbers whose meaning depends on the pattern.
using decision = std::vector<std::int64_t>;

/// A drawn server of one pattern. Everything that a rank sees is part of it, its clock included, so that all worlds
/// give the same course. Until difference_at() all ranks decide alike by themselves; there they do not.
/// Threads: safe from any, because it does not change.
class deciding_server {
public:
  /// The elements (i64) that the input and the output of a rank need.
  static constexpr std::size_t most_elements = 256;
  /// The memory of one rank, of most_elements each, zeroed before the first step.
  struct memory {
    buffer input, output;
  };
  /// What a decision leads to.
  struct step {
    std::optional<operation> work{}; ///< Empty: the rank asks for nothing.
    bool is_last = false;            ///< The rank then waits for the next user.
  };

  deciding_server() = default;
  deciding_server(const deciding_server&) = delete;
  deciding_server& operator=(const deciding_server&) = delete;
  virtual ~deciding_server() = default;

  /// Returns the rule by which the ranks agree.
  [[nodiscard]] virtual agreement rule() const = 0;
  /// Returns what \p self sees at step \p at.
  [[nodiscard]] virtual decision see(rank self, int at) const = 0;
  /// Writes the input of \p self for step \p at by \p made and returns the request.
  [[nodiscard]] virtual step begin(rank self, int at, const decision& made, const memory& on) const = 0;
  /// Returns what the request of begin() must leave at the beginning of memory::output.
  [[nodiscard]] virtual std::vector<std::int64_t> expect(rank self, int at, const decision& made) const = 0;
  /// Returns the first step at which ranks see what leads to different requests.
  [[nodiscard]] int difference_at() const noexcept { return difference_at_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }

protected:
  int ranks_ = 0;
  int difference_at_ = 0;
};

/// Draws a server of \p ranks ranks, at least 2 and at most 16, from \p seed.
[[nodiscard]] std::unique_ptr<deciding_server> draw_server(decision_pattern pattern, int ranks, std::uint64_t seed);

/// Who takes the decisions.
enum class decided_by : std::uint8_t { each_rank, agree };

/// What one rank has done.
struct rank_course {
  std::vector<decision> decisions{}; ///< Of the steps that it has begun.
  std::size_t right = 0;             ///< The requests that have succeeded with the expected output.
  std::size_t wrong = 0;             ///< The requests that have succeeded with another one.
  error why{};                       ///< Why it has stopped. errc::none: it has served to the end.
};

/// Sends a request of step \p at to a rank in its lane and waits for the outcome.
using rank_client = std::function<outcome(operation what, int at)>;
/// Serves as rank \p self of \p server until the end, or until a request fails.
[[nodiscard]] rank_course serve(const deciding_server& server, decided_by how, rank self,
                                const deciding_server::memory& on, const rank_client& ask);

struct decisions_result {
  std::vector<rank_course> ranks{};
  std::vector<std::string> findings{}; ///< Violations, such as a request that was not answered in time (TIM-1).
  std::string trace{};
};

/// Runs \p pattern in a simulated world of one process or, with \p over_processes, of one process per rank. The same
/// arguments give the same result (DET-1). Threads: any; several may run at a time.
[[nodiscard]] decisions_result simulate_decisions(decision_pattern pattern, decided_by how, int ranks,
                                                  std::uint64_t seed, bool over_processes);

} // namespace troupe::simulation
