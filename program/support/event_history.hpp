/// What a world told about itself, and when.
#pragma once

#include <troupe/runtime/world.hpp>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace troupe::program {

struct logged_event {
  time_point at;
  world_event event;
};

/// Listens for as long as the world lives. Threads: safe from any.
class event_history {
public:
  explicit event_history(world& where) {
    where.on_event([into = events_](const world_event& event) { into->add(event); });
  }

  /// Forgets what was.
  void clear() { events_->clear(); }
  [[nodiscard]] std::vector<logged_event> all() const;
  /// The first event that \p wanted says yes to, now or within \p at_most.
  [[nodiscard]] std::optional<logged_event> await(const std::function<bool(const world_event&)>& wanted,
                                                  nanoseconds at_most) const;

private:
  struct record {
    void add(const world_event& event);
    void clear();

    std::mutex guard;
    std::condition_variable changed;
    std::vector<logged_event> all;
  };
  std::shared_ptr<record> events_ = std::make_shared<record>();
};

} // namespace troupe::program
