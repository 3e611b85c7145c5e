/// What guards told, kept for tests.
#pragma once

#include <troupe/actors/transport/proxy_options.hpp>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace troupe::tests {

/// Takes a guard's events. Threads: any. Copies share what they took.
class proxy_events {
public:
  [[nodiscard]] proxy_event_sink sink() const {
    return [all = all_](const proxy_event& event) {
      const std::scoped_lock lock{all->guard};
      all->events.push_back(event);
      all->changed.notify_all();
    };
  }

  /// The first event of \p kind, once it is there; nothing after ten seconds without.
  [[nodiscard]] std::optional<proxy_event> first(proxy_event_kind kind) const {
    std::unique_lock lock{all_->guard};
    std::optional<proxy_event> found;
    all_->changed.wait_for(lock, std::chrono::seconds{10}, [&] {
      for (const proxy_event& one : all_->events)
        if (!found && one.kind == kind) found = one;
      return found.has_value();
    });
    return found;
  }

  /// Whether \p count events of \p kind come within ten seconds.
  [[nodiscard]] bool comes_to(proxy_event_kind kind, std::size_t count) const {
    std::unique_lock lock{all_->guard};
    return all_->changed.wait_for(lock, std::chrono::seconds{10}, [&] { return of(kind) >= count; });
  }

  [[nodiscard]] std::size_t count(proxy_event_kind kind) const {
    const std::scoped_lock lock{all_->guard};
    return of(kind);
  }

  /// All their words, one event a line.
  [[nodiscard]] std::string all_text() const {
    const std::scoped_lock lock{all_->guard};
    std::string text;
    for (const proxy_event& one : all_->events)
      text += std::string{to_string(one.kind)} + " " + one.peer + " " + one.text + "\n";
    return text;
  }

private:
  struct shared {
    std::mutex guard;
    std::condition_variable changed;
    std::vector<proxy_event> events;
  };

  [[nodiscard]] std::size_t of(proxy_event_kind kind) const {
    std::size_t found = 0;
    for (const proxy_event& one : all_->events) found += one.kind == kind ? 1 : 0;
    return found;
  }

  std::shared_ptr<shared> all_ = std::make_shared<shared>();
};

} // namespace troupe::tests
