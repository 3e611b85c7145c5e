/// The options of `troupe stress order`, and the worlds in which its clients ask.
#pragma once

#include <troupe/program/stress/stress_client.hpp>
#include <troupe/program/support/runtime_options.hpp>

#include <troupe/collectives/operation/rank_group.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe::program {

struct order_options {
  runtime_options runtime;
  std::size_t clients = 64;
  std::size_t lanes = 2;
  std::size_t requests = 100'000;
  std::size_t largest = 64;
  std::size_t world_every = 8;
  std::size_t pending = 0;
  std::uint64_t seed = 1;
  bool plans = true;
  bool splits = true;
  bool processes = false;
  std::size_t drivers = 0;
  std::string judged;
  std::string logs; ///< In the process of one rank: the folder to which it writes its ledger, or its receipts.

  std::size_t kills = 0;
  std::size_t stops = 0;
  std::chrono::nanoseconds suspicion = std::chrono::seconds{1};
  std::chrono::nanoseconds between = std::chrono::milliseconds{300};
  std::chrono::nanoseconds patience = std::chrono::minutes{1};
  bool loses_processes = false; ///< In the process of one rank: it goes on after losses, and keeps receipts.

  /// The kinds of worlds: the whole, one of its halves, and all its ranks in reverse order.
  [[nodiscard]] std::size_t kinds() const { return splits ? 3 : 1; }
  [[nodiscard]] bool asks_in(std::size_t client, std::size_t kind) const { return client % kinds() == kind; }
  [[nodiscard]] bool asks_world(std::size_t client) const {
    return world_every > 0 && client % world_every == world_every - 1;
  }
  /// Returns the value of limits.lead at which no request is refused, because a client sends a whole step at once.
  [[nodiscard]] std::size_t lead() const { return clients * lanes * stress_window * requests_of_a_step; }
  /// With a limit of pending requests, every other client requests credit before it begins.
  [[nodiscard]] bool asks_credit(std::size_t client) const { return pending > 0 && client % 2 == 0; }
  /// While processes are lost, every other client of each world is a thread, with one lane.
  [[nodiscard]] bool is_thread(std::size_t client) const { return client / kinds() % 2 == 1; }
  [[nodiscard]] std::size_t lanes_through_losses(std::size_t client) const { return is_thread(client) ? 1 : lanes; }
};

/// The steps of a lane between two commits, in a run whose processes are lost.
inline constexpr std::size_t steps_between_commits = 16;

using stress_scenes = std::vector<std::unique_ptr<stress_scene>>;

/// Returns the groups that a run splits off a world of \p ranks ranks.
[[nodiscard]] std::vector<rank_group> stress_groups(int ranks);
/// Returns the kind of the world with this name.
[[nodiscard]] std::size_t stress_kind(const std::string& name);
/// Splits \p whole, and prepares each world that has ranks in this process. \p receipts: stress_scene::receipts.
[[nodiscard]] stress_scenes make_scenes(const order_options& options, const world& whole, ordering order,
                                        receipt_log* receipts = nullptr);

/// A new folder for the logs of a run. Removed with its contents.
class log_folder {
public:
  /// Errors: missing.
  log_folder();
  log_folder(const log_folder&) = delete;
  log_folder& operator=(const log_folder&) = delete;
  ~log_folder();
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

private:
  std::string path_;
};

} // namespace troupe::program
