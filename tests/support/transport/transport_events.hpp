/// Records the events of listeners and dialers for tests.
#pragma once

#include <troupe/processes/transport/transport_options.hpp>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tests {

/// Receives events. Threads: any. Copies share the recorded events.
class transport_events {
public:
  [[nodiscard]] transport_event_sink sink() const {
    return [all = all_](const transport_event& event) {
      const std::scoped_lock lock{all->mutex};
      all->events.push_back(event);
      all->changed.notify_all();
    };
  }

  /// Waits for an event of \p kind and returns the first one. Empty if none arrives within ten seconds.
  [[nodiscard]] std::optional<transport_event> first(transport_event_kind kind) const {
    std::unique_lock lock{all_->mutex};
    std::optional<transport_event> found;
    all_->changed.wait_for(lock, std::chrono::seconds{10}, [&] {
      for (const transport_event& one : all_->events)
        if (!found && one.kind == kind) found = one;
      return found.has_value();
    });
    return found;
  }

  /// Returns whether \p count events of \p kind arrive within ten seconds.
  [[nodiscard]] bool comes_to(transport_event_kind kind, std::size_t count) const {
    std::unique_lock lock{all_->mutex};
    return all_->changed.wait_for(lock, std::chrono::seconds{10}, [&] { return of(kind) >= count; });
  }

  [[nodiscard]] std::size_t count(transport_event_kind kind) const {
    const std::scoped_lock lock{all_->mutex};
    return of(kind);
  }

  /// Returns the texts of all events, one event per line.
  [[nodiscard]] std::string all_text() const {
    const std::scoped_lock lock{all_->mutex};
    std::string text;
    for (const transport_event& one : all_->events)
      text += std::string{to_string(one.kind)} + " " + one.peer + " " + one.text + "\n";
    return text;
  }

private:
  struct shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<transport_event> events;
  };

  [[nodiscard]] std::size_t of(transport_event_kind kind) const {
    std::size_t found = 0;
    for (const transport_event& one : all_->events) found += one.kind == kind ? 1 : 0;
    return found;
  }

  std::shared_ptr<shared> all_ = std::make_shared<shared>();
};

} // namespace troupe::tests
