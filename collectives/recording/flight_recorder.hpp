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
  /// Each line keeps the last \p requests; 0: lines count, and keep none.
  explicit flight_recorder(std::size_t requests) : requests_{requests} {}
  /// One that nobody gets a line of.
  [[nodiscard]] static std::shared_ptr<flight_recorder> silent();

  /// The line of \p who, the same in each of its epochs; none of a silent one.
  [[nodiscard]] std::shared_ptr<flight_line> line_of(const flight_place& who);
  /// Of worlds that live, and of those that have ended the last few.
  [[nodiscard]] std::vector<std::shared_ptr<const flight_line>> lines() const;

private:
  std::size_t requests_;
  bool is_silent_ = false;
  mutable std::mutex guard_;
  std::vector<std::shared_ptr<flight_line>> lines_; ///< In the order of their making.
};

} // namespace troupe
