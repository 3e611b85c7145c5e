/// A backend that asks a fault_injector before everything that its communicators do.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/faults/fault_injector.hpp>

#include <memory>

namespace troupe {

/// Its communicators are \p real's. Worlds of one rank have none, so nothing goes wrong there.
[[nodiscard]] std::shared_ptr<backend> make_faulty_backend(std::shared_ptr<backend> real,
                                                           std::shared_ptr<fault_injector> injector);

/// Who wants to know whose requests launches are, with what it lives in; null: nobody, or there is no \p injector.
[[nodiscard]] std::shared_ptr<launch_observer> observer_of(const std::shared_ptr<fault_injector>& injector);

} // namespace troupe
