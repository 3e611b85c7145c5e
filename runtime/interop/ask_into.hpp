/// Sends requests whose answers go to a reply promise. Futures, coroutines and senders are built on it.
#pragma once

#include <troupe/collectives/operation/request.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <cstdint>

namespace troupe {

class world;

/// Asks all ranks, as world::ask() does. Never blocks. \p to is delivered once, when the GPUs are done or with the
/// error. The delivering thread is often the poller's, so the promise must return quickly. Threads: any.
void ask_into(const world& where, world_request asked, reply_promise&& to);
/// Asks one rank (SPMD), as world::ask() does. \p client: see rank_lane::client(); 0: no particular client. Errors,
/// thrown: invalid_argument (\p whom is in another process); the caller then still owns \p to.
void ask_into(const world& where, rank whom, rank_request asked, reply_promise&& to, std::uint64_t client = 0);

/// Asks rank \p whom to withdraw the request at \p position of lane \p which in epoch \p of, as rank_lane::cancel()
/// does. The request is answered with errc::cancelled if it still waits for its peers, else with its outcome. Call it
/// after the request has been asked for. Threads: any.
void take_back(const world& where, rank whom, lane which, std::uint64_t position, epoch of) noexcept;

} // namespace troupe
