/// Measures how long each registration takes that ranks repeat while they form.
#pragma once

#include <troupe/actors/world/restoration.hpp>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <vector>

namespace troupe {

/// Collects the times of all ranks. Threads: safe from any.
class restored_registrations {
public:
  explicit restored_registrations(std::size_t count) : spans_(count) {}

  /// Records that one rank took from \p began until \p ended for registration number \p which.
  void note(std::size_t which, time_point began, time_point ended) {
    const std::lock_guard lock{guard_};
    span& all = spans_[which];
    all.began = std::min(all.began, began);
    all.ended = std::max(all.ended, ended);
  }

  /// Returns the result. Call it after all ranks have finished.
  [[nodiscard]] restoration parts() const {
    const std::lock_guard lock{guard_};
    restoration made;
    for (const span& one : spans_)
      made.push_back({.kind = restored_kind::registration,
                      .number = made.size(),
                      .state = restored_state::back,
                      .took = one.ended - one.began});
    return made;
  }

private:
  struct span {
    time_point began = time_point::max();
    time_point ended = time_point::min();
  };

  mutable std::mutex guard_;
  std::vector<span> spans_;
};

} // namespace troupe
