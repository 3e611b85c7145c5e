/// Defines what a controller keeps in its store, so that another one can take its world over.
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>
#include <troupe/processes/control/controller_terms.hpp>
#include <troupe/processes/transport/shared_memory/shared_ring.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The decisions of a controller, all of them in one value that each decision replaces. A store has it before it takes
/// effect (docs/design/0119-controller-store.md).
struct control_record {
  /// A process that may serve.
  struct holder {
    process_identity who{};
    int place = 0;
    rank self{0};                        ///< For a member: its rank.
    std::uint64_t session = 0;           ///< Its session with the controller that has decided this; not kept.
    std::optional<ring_session> nonce{}; ///< That of its connection to the gate of its host.
  };

  std::uint64_t incarnation = 0; ///< The number of the controller that has decided this, counted from 1.
  int world_size = 0;
  epoch of{};                   ///< The latest epoch that has begun; 0: none.
  int size = 0;                 ///< Its number of ranks when it began.
  epoch latest{};               ///< The latest whose number has been used.
  std::vector<holder> ranks{};  ///< The members of `of`, by rank, without those that have finished their work.
  std::vector<holder> others{}; ///< Processes that are no members, and may serve an earlier epoch under their leases.
  nanoseconds longest_lease{};  ///< No lease that has been granted is longer.
  bool is_finishing = false;    ///< Some ranks have finished their work.
  bool is_over = false;         ///< The world has ended or is about to, because of `why`.
  error why{};                  ///< Code and text only.
};

/// Returns \p one as a JSON object, which operators may read.
[[nodiscard]] std::string encode(const control_record& one);
/// Errors: internal (\p text is no record, or one of another version of troupe), returned in \p why.
[[nodiscard]] std::optional<control_record> decode_control_record(std::string_view text, error& why);

} // namespace troupe
