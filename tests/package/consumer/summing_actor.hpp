/// An actor of our own, with a message of its own, that asks a world.
#pragma once

#include <troupe/actors.hpp>

#include <cstddef>
#include <future>
#include <vector>

/// Before the first troupe::runtime: CAF 1.x must know our messages.
void register_summing_messages();

/// Sums \p values over the ranks, in place, in an actor. The future throws troupe::exception on an error.
[[nodiscard]] std::future<troupe::completion> sum_with_actor(caf::actor_system& system, const troupe::world& where,
                                                             std::vector<troupe::buffer> values, std::size_t count);
