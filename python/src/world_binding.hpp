/// What Python's World holds.
#pragma once

#include "operand.hpp"
#include "request.hpp"

#include <troupe/actors/world/world_event.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/runtime/world.hpp>

#include <pybind11/pybind11.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace troupe::python {

/// Threads: safe from any.
class event_queue {
public:
  void put(const world_event& one) {
    {
      const std::lock_guard lock{guard_};
      if (closed_) return;
      waiting_.push_back(one);
    }
    changed_.notify_all();
  }
  /// The next one; none: it is closed. Without the GIL.
  [[nodiscard]] std::optional<world_event> take() {
    std::unique_lock lock{guard_};
    changed_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
    if (waiting_.empty()) return {};
    std::optional<world_event> next{std::move(waiting_.front())};
    waiting_.pop_front();
    return next;
  }
  /// What waits can still be taken; no more comes.
  void close() {
    {
      const std::lock_guard lock{guard_};
      closed_ = true;
    }
    changed_.notify_all();
  }

private:
  std::mutex guard_;
  std::condition_variable changed_;
  std::deque<world_event> waiting_;
  bool closed_ = false;
};

/// Threads: those that hold the GIL.
class shown_world {
public:
  explicit shown_world(troupe::world of) : of_{std::move(of)} {}

  [[nodiscard]] troupe::world& of() noexcept { return of_; }
  [[nodiscard]] import_streams& streams() noexcept { return streams_; }
  /// The client of lane \p name at \p whom: one for all who ask by this world object.
  [[nodiscard]] request_address address_of(rank whom, const pybind11::object& name);
  /// Requests to \p whom in lane \p name, or in none, are for \p now from here on.
  void acknowledge(rank whom, const pybind11::object& name, epoch now);
  /// What waits for its peers there is taken back, and the lane is free for another client.
  void leave(rank whom, const std::string& name);

private:
  [[nodiscard]] const std::shared_ptr<epoch>& acknowledged(rank whom, const pybind11::object& name);

  troupe::world of_;
  import_streams streams_;
  std::map<std::pair<rank, std::string>, std::shared_ptr<rank_lane>> lanes_;
  /// By rank and lane, or none; 0: nothing yet.
  std::map<std::pair<rank, std::optional<std::string>>, std::shared_ptr<epoch>> acknowledged_;
};

[[nodiscard]] inline std::shared_ptr<shown_world> show(troupe::world of) {
  return {new shown_world{std::move(of)}, ends_in_real_time<shown_world>{}};
}

void bind_worlds(pybind11::module_& module);

} // namespace troupe::python
