/// The messages between the controller of a world and the order service of another host
/// (docs/design/0077-order-per-host.md).
#pragma once

#include <troupe/collectives/progress/absence_report.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A message with batches of several ranks of one host, and with facts about these ranks.
///
/// To the host: the controller's decisions. Those of one position of the common order are in one message, or in several
/// parts of which all but the last have `is_complete == false`. The host's service inserts all parts into the order of
/// its host at one place, so all ranks of the host follow them at the same place (ORD-3).
/// To the controller: the requests of worlds that span hosts, losses of ranks, and reports of late ranks.
struct host_frame {
  struct rank_batch {
    rank of{0};
    std::string bytes{};
  };
  struct rank_loss {
    rank of{0};
    error why{};
  };

  std::vector<rank_batch> batches{};
  bool is_complete = true;         ///< If false, another part of the message follows.
  error closed{};                  ///< To the host: if set, nothing more is decided in this epoch.
  std::vector<rank_loss> losses{}; ///< To the controller.
  std::vector<std::shared_ptr<const absence_report>> reports{}; ///< To the controller.

  [[nodiscard]] bool empty() const noexcept { return batches.empty() && !closed && losses.empty() && reports.empty(); }
};

[[nodiscard]] std::string encode(const host_frame& frame);
/// Errors: internal (\p bytes cannot be read, or name a rank beyond \p world_size), returned in \p why.
[[nodiscard]] host_frame decode_host_frame(std::string_view bytes, int world_size, error& why);

} // namespace troupe
