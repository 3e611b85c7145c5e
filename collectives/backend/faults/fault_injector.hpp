/// Where tests, the simulator and demonstrations make a rank's communicator go wrong, on the mock and on GPUs alike.
#pragma once

#include <troupe/collectives/backend/registered_region.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/stream.hpp>

#include <cstdint>
#include <span>

namespace troupe {

class launch_observer;

/// Who is about to do something.
struct fault_place {
  troupe::rank rank; ///< In that formation: a world that has shrunk numbers its ranks anew.
  std::uint64_t formation =
      0;              ///< The how many-th of the backend, from 0; those that are split off count as their parent.
  device_id device{}; ///< Where the rank lives, whatever its number.
};

/// Asked before each call of a communicator, and told of an abort's end. What a function throws is what the call
/// throws; one that blocks is a call that hangs, until the owner of the injector ends it. Threads: those of the
/// communicator's functions; several at a time.
class fault_injector {
public:
  fault_injector() = default;
  fault_injector(const fault_injector&) = delete;
  fault_injector& operator=(const fault_injector&) = delete;
  virtual ~fault_injector() = default;

  virtual void before_init([[maybe_unused]] const fault_place& who) {}
  /// False: nothing of \p all is launched, though the caller is told that it is: to its peers this rank never comes,
  /// and its own completion means nothing.
  [[nodiscard]] virtual bool before_launch([[maybe_unused]] const fault_place& who,
                                           [[maybe_unused]] std::span<const operation* const> all) {
    return true;
  }
  /// Nothing of what before_launch() has withheld goes into \p into; something else may.
  virtual void in_place_of_launch([[maybe_unused]] const fault_place& who, [[maybe_unused]] stream_ref into) {}
  /// \p region is registered with the communicator, which waits for the others to do the same.
  virtual void before_register([[maybe_unused]] const fault_place& who,
                               [[maybe_unused]] const registered_region& region) {}
  virtual void before_check([[maybe_unused]] const fault_place& who) {}
  virtual void before_abort([[maybe_unused]] const fault_place& who) {}
  virtual void after_abort([[maybe_unused]] const fault_place& who) {}
  virtual void before_destroy([[maybe_unused]] const fault_place& who) {}

  /// Who wants to know whose requests launches are; it lives as long as the injector. Most do not.
  [[nodiscard]] virtual launch_observer* observer() noexcept { return nullptr; }
};

} // namespace troupe
