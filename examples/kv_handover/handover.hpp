/// Simplified disaggregated serving: prefill ranks make the blocks of a request's KV cache, decode ranks receive them.
/// Many requests are in transfer at once, each in a lane of its own, so that their blocks interleave in any order.
#pragma once

#include <troupe/troupe.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <map>
#include <random>
#include <vector>

struct handover_shape {
  int prefill_ranks = 1; ///< Ranks 0 to prefill_ranks - 1 prefill, the others decode.
  int slots = 8;         ///< The number of requests in transfer at once.
  int blocks = 16;       ///< Blocks of each request; slots times blocks must stay within limits.lead.
  std::size_t block_elements = 16384;
};

/// The results of a run.
struct handover_figures {
  std::size_t admitted = 0;
  std::size_t arrived = 0;
  std::size_t wrong = 0; ///< Requests that arrived with wrong values.
  std::size_t asked_again = 0;
  std::vector<double> took_ms; ///< Times from the first block made until the last block verified, by request.
};

/// Runs the prefill side and the decode side on one thread, which never waits. In a server they are separate actors or
/// processes, which tell each other the lane and the epoch of a request.
class handover {
public:
  /// \p where must have more ranks than \p shape has prefill ranks.
  handover(troupe::world where, handover_shape shape);

  /// Does the work that is possible without waiting. If \p admit is true, new requests begin in free slots. A fault
  /// fails the transfers of its epoch, which restart in the next epoch. Throws the world's error when the world has
  /// failed permanently.
  void turn(bool admit);
  [[nodiscard]] bool idle() const;
  [[nodiscard]] const handover_figures& figures() const noexcept { return figures_; }

private:
  /// A slot, and the request in it.
  struct transfer {
    troupe::lane lane{};
    bool open = false;
    std::uint64_t request = 0;
    troupe::rank from{}, to{};
    troupe::time_point began{};
    troupe::epoch epoch{};
    troupe::buffer made{};    ///< The expected blocks, in host memory.
    troupe::buffer source{};  ///< The blocks on the prefill rank's device.
    troupe::buffer target{};  ///< The blocks on the decode rank's device.
    troupe::buffer arrived{}; ///< The received blocks, copied back to host memory.
    int sent = 0, received = 0;
    bool fetched = false;
    bool lost = false;
    std::vector<std::future<troupe::completion>> open_replies{};
  };

  void admit(transfer& one, troupe::epoch now);
  void begin(transfer& one, troupe::epoch now);
  void send_next(transfer& one);
  void receive_next(transfer& one);
  void look(transfer& one);
  void ask(transfer& one, troupe::rank whom, troupe::operation what);
  [[nodiscard]] troupe::buffer block(const troupe::buffer& all, int number) const;

  troupe::world world_;
  handover_shape shape_;
  std::vector<transfer> slots_;
  std::map<troupe::rank, troupe::stream> kernels_; ///< The example's own stream on each prefill rank's device.
  std::mt19937 draw_{5};
  handover_figures figures_;
};
