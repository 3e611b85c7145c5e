/// What Python's World holds.
#pragma once

#include "event_queue.hpp"
#include "operand.hpp"
#include "request.hpp"

#include <troupe/runtime/world.hpp>

#include <pybind11/pybind11.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace troupe::python {

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
void bind_runtimes(pybind11::module_& module);
void bind_testing(pybind11::module_& module);

} // namespace troupe::python
