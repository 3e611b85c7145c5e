/// Binds worlds to Python: the object behind Python's World, and a queue of its events.
#pragma once

#include "operand.hpp"
#include "process_object.hpp"
#include "request.hpp"

#include <troupe/actors/world/world_event.hpp>
#include <troupe/device/time.hpp>
#include <troupe/processes/world_driver.hpp>
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

/// A queue of the events of a world or driver for a thread of Python. Threads: safe from any.
class event_queue {
public:
  void put(const world_event& one) {
    {
      const std::lock_guard lock{mutex_};
      if (closed_) return;
      waiting_.push_back(one);
    }
    changed_.notify_all();
  }
  /// Call before take(). Errors: unsupported (a fork, in which no thread puts events).
  void require_own() const { made_.require_own("this listener"); }
  /// Waits for the next event. Returns nothing once the queue is closed and empty. The caller must not hold the GIL.
  [[nodiscard]] std::optional<world_event> take() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
    if (waiting_.empty()) return {};
    std::optional<world_event> next{std::move(waiting_.front())};
    waiting_.pop_front();
    return next;
  }
  /// Accepts no more events. Those in the queue can still be taken. Does nothing in a fork.
  void close() {
    if (made_.is_inherited()) return;
    {
      const std::lock_guard lock{mutex_};
      closed_ = true;
    }
    changed_.notify_all();
  }

private:
  const home_process made_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<world_event> waiting_;
  bool closed_ = false;
};

/// The object behind Python's World. Threads: those that hold the GIL.
class shown_world {
public:
  explicit shown_world(troupe::world of) : of_{std::move(of)} {}

  [[nodiscard]] troupe::world& of() noexcept { return of_; }
  [[nodiscard]] import_streams& streams() noexcept { return streams_; }
  /// Returns the address of rank \p target in lane \p name. All requests through this object share one client per lane.
  [[nodiscard]] request_address address_of(rank target, const pybind11::object& name);
  /// Sets the epoch of later requests to \p target in lane \p name, or without a lane, to \p now.
  void acknowledge(rank target, const pybind11::object& name, epoch now);
  /// Cancels the requests in that lane that wait for their peers, and frees the lane for another client.
  void leave(rank target, const std::string& name);
  /// Registers \p what, a callable, for the ranks of this process.
  void register_function(std::string name, const pybind11::object& what);
  /// Returns the function registered through this object, or a placeholder for those of other processes.
  [[nodiscard]] std::shared_ptr<const rank_function> function(const std::string& name) const;

private:
  [[nodiscard]] const std::shared_ptr<epoch>& acknowledged(rank target, const pybind11::object& name);

  troupe::world of_;
  import_streams streams_;
  std::map<std::pair<rank, std::string>, std::shared_ptr<lane_client>> lanes_;
  /// The acknowledged epochs, by rank and lane, or without a lane. 0: none yet.
  std::map<std::pair<rank, std::optional<std::string>>, std::shared_ptr<epoch>> acknowledged_;
  std::map<std::string, std::shared_ptr<const rank_function>> functions_;
};

/// Returns the object behind Python's World. It is destroyed without the GIL: the last handle of a world waits for
/// requests, and these may call functions in Python.
[[nodiscard]] std::shared_ptr<shown_world> show(troupe::world of);

void bind_worlds(pybind11::module_& module);

} // namespace troupe::python
