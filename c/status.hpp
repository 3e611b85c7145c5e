/// Makes statuses of the states and events of worlds, and passes events to a client's callback.
#pragma once

#include "boundary.hpp"

#include <functional>

namespace troupe::c {

/// Returns a listener that calls \p heard. \p client is held as long as the listener.
[[nodiscard]] std::function<void(const world_event&)> make_listener(troupe_status_callback heard, void* user,
                                                                    const client_pointer& client);
/// Calls \p heard with \p now, or with NULL if there is no memory for it.
void tell(troupe_status_callback heard, void* user, const world_event& now) noexcept;

/// Stores \p now in \p made. Returns TROUPE_OK if nothing is left to wait for, else TROUPE_WAITING.
troupe_code store_awaited(world_event now, std::uint64_t after, troupe_status** made);

} // namespace troupe::c
