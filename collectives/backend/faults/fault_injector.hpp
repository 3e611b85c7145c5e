/// Lets tests, the simulator and demonstrations make a rank's communicator fail, on the mock and on GPUs alike.
#pragma once

#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/stream.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace troupe {

class backend;
class launch_observer;

/// Identifies the communicator that is about to make a call.
struct fault_place {
  troupe::rank rank; ///< The rank in that formation: a world that has shrunk renumbers its ranks.
  std::uint64_t formation =
      0;              ///< Index of the formation in the backend, from 0. A split communicator has its parent's index.
  device_id device{}; ///< The rank's device; it does not change when ranks are renumbered.
  std::uint64_t split = 0; ///< Identifies a split communicator among those of its backend; 0: not split.
};

/// Injects faults into a communicator's calls. Its functions are called before each call, and after the end of an
/// abort. If a function throws, the call throws the same exception. If a function blocks, the call hangs until the
/// injector's owner ends it. Threads: those of the communicator's functions; several concurrently.
class fault_injector {
public:
  fault_injector() = default;
  fault_injector(const fault_injector&) = delete;
  fault_injector& operator=(const fault_injector&) = delete;
  virtual ~fault_injector() = default;

  virtual void before_init([[maybe_unused]] const fault_place& who) {}
  /// If it returns false, none of \p all is launched, although the caller sees success. The launch never reaches the
  /// peers, and its completion does not mean success.
  [[nodiscard]] virtual bool before_launch([[maybe_unused]] const fault_place& who,
                                           [[maybe_unused]] std::span<const operation* const> all) {
    return true;
  }
  /// Called if before_launch() withheld a launch: the injector may enqueue other work into \p into.
  virtual void in_place_of_launch([[maybe_unused]] const fault_place& who, [[maybe_unused]] stream_ref into) {}
  /// Called before \p region is registered with the communicator, which then waits for the other ranks to register
  /// theirs.
  virtual void before_register([[maybe_unused]] const fault_place& who,
                               [[maybe_unused]] const registered_region& region) {}
  virtual void before_check([[maybe_unused]] const fault_place& who) {}
  virtual void before_abort([[maybe_unused]] const fault_place& who) {}
  virtual void after_abort([[maybe_unused]] const fault_place& who) {}
  virtual void before_destroy([[maybe_unused]] const fault_place& who) {}

  /// Returns the observer that is notified of the requests of each launch, or null, which is the default. It lives as
  /// long as the injector.
  [[nodiscard]] virtual launch_observer* observer() noexcept { return nullptr; }
};

/// Wraps the communicators of \p real. Worlds of one rank have no communicator of a backend, so no faults occur there.
[[nodiscard]] std::shared_ptr<backend> make_faulty_backend(std::shared_ptr<backend> real,
                                                           std::shared_ptr<fault_injector> injector);
/// The same, with the injector that \p injector returns when a communicator is created.
[[nodiscard]] std::shared_ptr<backend> make_faulty_backend(std::shared_ptr<backend> real,
                                                           std::function<std::shared_ptr<fault_injector>()> injector);

/// Returns the injector's launch observer, sharing ownership of the injector. Null if there is no \p injector or it has
/// no observer.
[[nodiscard]] std::shared_ptr<launch_observer> observer_of(const std::shared_ptr<fault_injector>& injector);

} // namespace troupe
