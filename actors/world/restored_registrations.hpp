/// How long each registration takes that ranks make again while they form.
#pragma once

#include <troupe/actors/world/restoration.hpp>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <vector>

namespace troupe {

/// Threads: safe from any.
class restored_registrations {
public:
  explicit restored_registrations(std::size_t count) : spans_(count) {}

  /// One rank has registered the \p which th between \p began and \p ended.
  void note(std::size_t which, time_point began, time_point ended) {
    const std::lock_guard lock{guard_};
    span& all = spans_[which];
    all.began = std::min(all.began, began);
    all.ended = std::max(all.ended, ended);
  }

  /// Once all ranks have.
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
