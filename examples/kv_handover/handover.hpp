/// Disaggregated serving in small: prefill ranks make the blocks of a request's KV cache, decode ranks receive them.
/// Many requests are on their way at once, each in a lane of its own, so that their blocks interleave as they come.
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
  int prefill_ranks = 1; ///< Ranks 0 to this - 1 prefill, the others decode.
  int slots = 8;         ///< Requests on their way at once.
  int blocks = 16;       ///< Of each request; slots times blocks must stay within limits.lead.
  std::size_t block_elements = 16384;
};

/// What has been seen.
struct handover_figures {
  std::size_t admitted = 0;
  std::size_t arrived = 0;
  std::size_t wrong = 0; ///< Of those that arrived.
  std::size_t asked_again = 0;
  std::vector<double> took_ms; ///< From the first block that was made until the last was verified.
};

/// Both halves of it, turn by turn; never waits. In a server they are actors or processes of their own, which tell each
/// other in which lane a request goes, and in which epoch.
class handover {
public:
  /// \p where has more ranks than prefill.
  handover(troupe::world where, handover_shape shape);

  /// Does what can be done now; \p admit: new requests begin in free slots. A fault's epoch takes what is on its way,
  /// which begins again in the next. Throws the world's error when that has failed for good.
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
    troupe::buffer made{};    ///< What the blocks should be, in host memory.
    troupe::buffer source{};  ///< On the prefill rank.
    troupe::buffer target{};  ///< On the decode rank.
    troupe::buffer arrived{}; ///< In host memory again.
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
  std::map<troupe::rank, troupe::stream> kernels_; ///< One of our own on each prefill rank's device.
  std::mt19937 draw_{5};
  handover_figures figures_;
};
