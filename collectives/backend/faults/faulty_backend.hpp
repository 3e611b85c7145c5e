/// A backend that calls a fault_injector before every call of its communicators.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/faults/fault_injector.hpp>

#include <memory>

namespace troupe {

/// Wraps the communicators of \p real. Worlds of one rank have no communicator of a backend, so no faults occur there.
[[nodiscard]] std::shared_ptr<backend> make_faulty_backend(std::shared_ptr<backend> real,
                                                           std::shared_ptr<fault_injector> injector);

/// Returns the injector's launch observer, sharing ownership of the injector. Null if there is no \p injector or it has
/// no observer.
[[nodiscard]] std::shared_ptr<launch_observer> observer_of(const std::shared_ptr<fault_injector>& injector);

} // namespace troupe
