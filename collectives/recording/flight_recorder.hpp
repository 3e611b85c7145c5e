/// All lines of a runtime's flight recorder: one for each rank of each of its worlds.
#pragma once

#include <troupe/collectives/recording/flight_line.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// Threads: every function by any.
class flight_recorder {
public:
  /// Each line keeps the last \p requests. 0: lines only count.
  explicit flight_recorder(std::size_t requests) : requests_{requests} {}
  /// Returns a recorder without lines: line_of() returns null.
  [[nodiscard]] static std::shared_ptr<flight_recorder> silent();

  /// Returns the line of \p who, the same one in each of its epochs; null from a silent recorder.
  [[nodiscard]] std::shared_ptr<flight_line> line_of(const flight_place& who);
  /// Returns the lines of worlds that live, and of the last few that have ended.
  [[nodiscard]] std::vector<std::shared_ptr<const flight_line>> lines() const;

private:
  std::size_t requests_;
  bool is_silent_ = false;
  mutable std::mutex guard_;
  std::vector<std::shared_ptr<flight_line>> lines_; ///< In the order of creation.
};

} // namespace troupe
