/// Turns of a world over processes: places in the order that all ranks share, and the splits and captures that begin
/// there.
#pragma once

#include <troupe/collectives/pipeline/plans/capture_comparison.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/processes/order/codec/request_codec.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// An answer for one rank.
struct turn_answer {
  /// Kind of the answer.
  enum class form : std::uint8_t { turn, capture };

  rank to{};
  form kind = form::turn;
  std::uint64_t number = 0; ///< The number of the rank's turn, or the place of the capture.
  std::size_t agreed = 0;   ///< For a capture: the number of collectives to launch.
  error why{};              ///< Set if the turn is refused, or if the capture has failed.
  /// For a turn: the groups of a split, or null. All ranks' answers to one turn share it.
  std::shared_ptr<const std::vector<rank_group>> split{};
  /// For a split: for each group the commits that its ranks know (common_commits()). All ranks' answers share it.
  std::shared_ptr<const std::vector<told_commits>> told{};
};

/// Grants a turn when all ranks have asked for it, and compares what they launch in captures. The k-th requests of all
/// ranks with the same name, kind and groups are one turn. A state machine without threads or clock. Answers must be
/// sent in the order in which they are returned.
class turn_table {
public:
  using answers = std::vector<turn_answer>;

  /// Begins an epoch of \p world_size ranks. A rank may have \p most turns pending.
  void open(int world_size, std::size_t most);

  /// Handles a request of \p from for a turn.
  void ask(rank from, turn_terms asked, time_point now, answers& out);
  /// Handles a record of a capture. Errors: internal (the capture does not exist, or the rank waits in it already). A
  /// record of a capture that has failed is ignored.
  [[nodiscard]] error take(rank from, request_record& record, answers& out);

  /// Refuses all turns, also later ones, and fails all captures with \p why: a rank has left.
  void close(const error& why, answers& out);
  /// Refuses turns that not all ranks have asked for in time, and fails captures that take too long.
  void expire(time_point now, answers& out);
  /// Returns the time before which expire() does nothing.
  [[nodiscard]] time_point next_due() const noexcept { return due_; }

private:
  struct pending_turn {
    std::uint64_t number = 0;
    time_point deadline{};
    nanoseconds capture_limit{0};
    std::vector<told_commits> told{};
  };
  struct named_turn {
    turn_terms of;
    std::vector<std::deque<pending_turn>> ranks;
  };
  struct member {
    std::vector<operation> launch{}; ///< Held while the rank waits for its peers.
    bool waits = false;
  };
  struct open_capture {
    capture_comparison all;
    std::vector<member> ranks;
    time_point deadline;
  };

  [[nodiscard]] static std::string key_of(const turn_terms& asked);
  /// Returns for each group of a split the commits that the first turns of its ranks report.
  [[nodiscard]] static std::vector<told_commits> commits_in(const named_turn& ready);
  void refuse_late(named_turn& one, time_point now, answers& out);
  void grant(named_turn& ready, time_point now, answers& out);
  /// Answers the ranks that need not wait any more. Returns whether the capture has ended.
  [[nodiscard]] bool settle(std::uint64_t place, open_capture& one, answers& out) const;
  void find_due();

  int world_size_ = 0;
  std::size_t most_ = 0;
  error closed_{};
  std::vector<std::uint64_t> asked_;        ///< Number of turns, by rank.
  std::vector<std::size_t> pending_;        ///< Number of turns that wait, by rank.
  std::map<std::string, named_turn> turns_; ///< By key_of().
  std::uint64_t granted_ = 0;
  std::map<std::uint64_t, open_capture> captures_; ///< By place.
  time_point due_ = time_point::max();
};

} // namespace troupe
