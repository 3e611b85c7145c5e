/// The actor that users ask: it gathers their requests and takes them through the model together, on all ranks.
#pragma once

#include "compute.hpp"
#include "model.hpp"

#include <troupe/troupe.hpp>

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <semaphore>
#include <vector>

struct prompt;
struct generated;
struct gathered;
struct start_asking;

TROUPE_LOCAL_TYPES_AFTER(serving, troupe)
TROUPE_LOCAL_TYPE(serving, prompt)
TROUPE_LOCAL_TYPE(serving, generated)
TROUPE_LOCAL_TYPE(serving, gathered)
TROUPE_LOCAL_TYPE(serving, start_asking)
TROUPE_LOCAL_TYPES_END(serving)

struct prompt {
  std::vector<int> tokens;
  std::size_t length = 0; ///< Of the answer, prompt included.
};
struct generated {
  std::vector<int> tokens;
};
struct gathered {};     ///< To the batcher itself: who has come by now is served.
struct start_asking {}; ///< To a user.

using batcher_handle = troupe::compat::typed_actor<caf::result<generated>(prompt), caf::result<void>(gathered),
                                                   caf::result<void>(troupe::world_event)>;
using user_handle = troupe::compat::typed_actor<caf::result<void>(start_asking)>;

/// A queue of work on a device, and who does arithmetic in it.
struct seat {
  troupe::stream queue;
  std::unique_ptr<compute> maths;
};
/// Two for each device: what a fault leaves behind waits in one until it has been aborted, while the next epoch uses
/// the other. Made beforehand, for both queues and cuBLAS may wait for a device that hangs when they are made.
using seats = std::map<troupe::device_id, std::array<seat, 2>>;

struct seen_fault {
  troupe::time_point seen;
  std::size_t asked_again = 0; ///< Users' requests.
  std::optional<troupe::time_point> served_again{};
  troupe::epoch epoch{};
  std::size_t ranks = 0;
};

/// What the batcher says of itself, when it has ended.
struct batch_figures {
  std::size_t steps = 0;
  std::size_t tokens = 0;
  std::vector<seen_fault> faults;
};

struct batcher_terms {
  troupe::world where;
  const model* of = nullptr;
  seats* on = nullptr;
  troupe::nanoseconds gather{}; ///< How long the first of several waits for others.
  batch_figures* figures = nullptr;
  std::counting_semaphore<>* ended = nullptr;
};

/// Every prompt is answered once. What a fault takes is asked again in the next epoch, from its prompt.
[[nodiscard]] batcher_handle spawn_batcher(caf::actor_system& system, batcher_terms terms);
