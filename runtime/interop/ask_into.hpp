/// Asking with an answer of one's own making: what futures, coroutines and senders are made of.
#pragma once

#include <troupe/collectives/operation/request.hpp>
#include <troupe/completion/reply/reply_promise.hpp>

#include <cstdint>

namespace troupe {

class world;

/// Asks all ranks, as world::ask() does. Never blocks. \p to is delivered once, when the GPUs are done, or with the
/// error; by the thread that finds out, often the poller's, which must be given back at once.
/// Threads: any.
void ask_into(const world& where, world_request asked, reply_promise&& to);
/// Asks one rank (SPMD), as world::ask() does. \p client: see rank_lane::client(); 0: nobody in particular.
/// Errors: invalid_argument, thrown (\p whom lives in another process); \p to is then the caller's still.
void ask_into(const world& where, rank whom, rank_request asked, reply_promise&& to, std::uint64_t client = 0);

/// Asks for the request at \p position of \p which in epoch \p of, of rank \p whom, to be taken back, as
/// rank_lane::cancel() does: it is answered with errc::cancelled if it waits for its peers still, and has its outcome
/// else. Threads: any; after the request has been asked for.
void take_back(const world& where, rank whom, lane which, std::uint64_t position, epoch of) noexcept;

} // namespace troupe
