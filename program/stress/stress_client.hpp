/// Defines the clients of a stress run: drivers, and actors that send requests to one rank or to the whole world. Their
/// requests are a function of the seed alone, so that every rank's client knows them without communication.
#pragma once

#include <troupe/program/conform/conform_image.hpp>
#include <troupe/program/conform/conform_pieces.hpp>
#include <troupe/program/stress/receipts.hpp>

#include <troupe/completion/reply/outcome.hpp>
#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/world.hpp>

#include <caf/fwd.hpp>
#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <cstdint>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

/// Identifies one operation at all its participants.
struct stress_step {
  std::size_t client = 0;
  std::size_t lane = 0; ///< The index among the client's lanes, from 0.
  std::size_t index = 0;

  friend auto operator<=>(const stress_step&, const stress_step&) = default;
};

/// The steps of a script that are decided by the order, or with which clients continue after a fault.
struct stress_decisions {
  std::size_t agree_percent = 0;        ///< Share of the agrees among the operations.
  std::optional<std::uint64_t> stamp{}; ///< If set, each agree has a value of its own; differs between worlds.
  std::size_t commit_every = 0;         ///< Each n-th step of a lane is a commit with its number; 0: none.
};

class stress_script {
public:
  /// \p largest is the largest element count of a rank's part.
  stress_script(int ranks, std::uint64_t seed, std::size_t largest, const stress_decisions& decisions = {});

  /// Returns the operation with the memory of all its ranks. Ranks without a step in it take no part. A rank with
  /// several steps sends them as one group. It depends on the epoch \p in, so that no result of another one is right.
  [[nodiscard]] conform_piece piece_of(const stress_step& step, epoch in = {}) const;
  /// Returns whether the step is a commit, whose number is that of the step.
  [[nodiscard]] bool is_commit(const stress_step& step) const;
  /// Returns the operation that the plan of a client's lane consists of.
  [[nodiscard]] conform_piece planned_piece(std::size_t client, std::size_t lane) const;
  /// Returns whether a step replays the plan of its lane.
  [[nodiscard]] bool is_replay(const stress_step& step) const;
  [[nodiscard]] std::size_t room_bytes() const;

private:
  [[nodiscard]] conform_piece piece_of(const stress_step& step, epoch in, std::size_t agree_percent) const;

  int ranks_;
  std::uint64_t seed_;
  std::size_t largest_;
  stress_decisions decisions_;
};

/// The counts of requests and results in a run, or in a part of it.
struct stress_totals {
  std::size_t asked = 0;
  std::size_t answered = 0;
  std::size_t failed = 0;
  std::size_t refused = 0;  ///< Refused requests, which are sent again.
  std::size_t ended = 0;    ///< Requests that ended with their epoch.
  std::size_t verified = 0; ///< Ranks' parts that were checked, over all operations.
  std::size_t wrong = 0;
  std::string first{}; ///< The first failure.

  stress_totals& operator+=(const stress_totals& more);
};

/// Records requests, replies and launches, and compares the orders of launches. Threads: safe from any, except
/// disorder(), which must be called after all recording.
class stress_ledger {
public:
  explicit stress_ledger(std::size_t ranks) : logs_(ranks) {}
  /// Writes each failure to \p to, too. Call it before the clients begin.
  void write_to(receipt_log& to) { receipts_ = &to; }

  void asked() { add({.asked = 1}); }
  void answered() { add({.answered = 1}); }
  /// Records \p launch, the position of \p self's part of the operation in the order of the rank's launches.
  void launched(rank self, const stress_step& step, std::uint64_t launch);
  void answered(const error& failure) { add({.answered = 1, .failed = 1, .first = to_string(failure)}); }
  /// Records a request that was refused as busy, or that was behind a refused one. It is sent again.
  void refused() { add({.answered = 1, .refused = 1}); }
  /// Records a request that ended with its epoch.
  void ended() { add({.answered = 1, .ended = 1}); }
  /// Records that one part was checked. \p fault is empty if all elements were correct.
  void verified(const stress_step& step, const std::string& fault);

  [[nodiscard]] stress_totals sum() const;
  /// Describes in one line what two ranks launched in different orders. Returns an empty string if all agree. \p
  /// compared is set to the number of operations compared, over all pairs of ranks.
  [[nodiscard]] std::string disorder(std::size_t& compared);
  /// Returns how many parts of operations a rank has launched more than once, counted by their extra launches.
  [[nodiscard]] std::size_t doubled();

  /// Returns everything, for add_report() in another process of the same run. Errors of add_report(): json::exception.
  [[nodiscard]] nlohmann::json report() const;
  void add_report(const nlohmann::json& report);

private:
  struct entry {
    stress_step step;
    std::uint64_t launch = 0;
  };
  /// The log of one rank.
  struct log {
    std::mutex mutex;
    std::vector<entry> entries;
  };
  void add(const stress_totals& more);
  void sort();

  mutable std::mutex mutex_;
  stress_totals totals_;
  std::vector<log> logs_;
  receipt_log* receipts_ = nullptr;
};

/// The task of a client; the same for all ranks.
struct stress_task {
  std::size_t client = 0;
  std::size_t lanes = 1;
  std::size_t steps = 1; ///< The number of steps in each lane.
  std::uint64_t seed = 0;
  epoch in{};                       ///< The epoch of its requests.
  std::vector<std::size_t> first{}; ///< For each lane the first step; if empty, 0.
  credit under{};                   ///< The credit that covers its requests; if empty, the shared quota does.
};

/// A rank's memory for one step at a time.
struct stress_slot {
  stress_slot(const world& where, rank owner, memory_kind kind, std::size_t size_bytes)
    : image{where, owner, kind, size_bytes} {}

  /// Places the ranges of \p self. Returns the memory of each range of \p piece; empty for those of other ranks.
  std::vector<buffer> fill(const conform_piece& piece, rank self, known_values& values);
  /// Describes the first range with a wrong element. Returns an empty string if there is none.
  [[nodiscard]] std::string find_fault();

  conform_image image;
  std::vector<std::size_t> placed{};
  bool busy = false;
};

/// The plan of a client's lane, and its memory at the ranks of this process.
struct stress_plan {
  std::map<rank, stress_slot> slots{};
  std::shared_ptr<captured_plan> plan{};
};

/// Data that all clients in one world share. Must outlive them.
struct stress_scene {
  std::string name;     ///< The world's name: "whole", or that of the group that was split off.
  std::size_t kind = 0; ///< Client i sends requests in the worlds of kind (i modulo the number of kinds).
  world where;
  stress_script script;
  stress_ledger ledger;
  known_values values;
  bool bounded = false; ///< True if requests may be refused as busy; they are then sent again.
  /// In a run whose processes are lost: where clients record what they receive. Else null.
  receipt_log* receipts = nullptr;
  std::map<std::pair<std::size_t, std::size_t>, stress_plan> plans{}; ///< By client and lane.
};

/// Returns the name of a client's lane.
[[nodiscard]] std::string stress_lane_name(std::size_t client, std::size_t lane);
/// Returns whether \p code is one with which requests may end because their epoch does.
[[nodiscard]] bool may_end_with_epoch(errc code) noexcept;
/// Compares the value of an agree with what the script says. Returns the fault; an empty string if there is none.
[[nodiscard]] std::string find_value_fault(const std::optional<agreed_value>& expected, const completion& reply);
/// Returns whether the order has refused an agree at all ranks, which then all go on behind it.
[[nodiscard]] bool is_refused_for_all(const error& why) noexcept;
/// Records what the reply to \p step has brought, if it must survive this process (stress_scene::receipts).
void keep_receipt(const stress_scene& scene, rank self, const stress_step& step, epoch in, bool is_agree,
                  const outcome& result);

/// Captures the plan of lane \p lane of client \p client. All processes of the world must capture the same plans in the
/// same order.
void capture_stress_plan(stress_scene& scene, std::size_t client, std::size_t lane);

/// The number of steps of a lane that have memory of their own, so that several can be in progress.
inline constexpr std::size_t stress_window = 3;
inline constexpr std::size_t requests_of_a_step = 3; ///< The maximum at each rank.

/// Spawns an actor that sends \p self its part of each step of the task: a copy of the inputs to the device, the
/// operation, and a copy of the results back. All three go into the lane together, so that the lane's order is tested
/// too. If \p self is empty, it sends the parts of all ranks to the world, one request at a time, with one step of a
/// lane in progress. Then the actor verifies the memory. Between steps, each actor chooses the lane and the waiting
/// time at random. Counts \p ended down when everything is finished, or at the first failure. Where requests may be
/// refused as busy, a lane has one step in progress, whose requests name their positions: the requests behind a refused
/// one are refused too, and all of them are sent again.
void spawn_stress_client(caf::actor_system& system, const stress_task& task, std::optional<rank> self,
                         stress_scene& scene, std::latch& ended);

// Drivers: processes without a rank that send requests to all ranks beside the ranks' own clients.

/// The memory of one rank that drivers use: exported by name. Each driver has its own part of it.
class stress_driver_memory {
public:
  /// The names of the memory end with \p suffix.
  stress_driver_memory(const world& where, rank self, std::size_t drivers, const std::string& suffix = {});
  stress_driver_memory(const stress_driver_memory&) = delete;
  stress_driver_memory& operator=(const stress_driver_memory&) = delete;
  ~stress_driver_memory();

  /// Waits until all drivers have ended.
  void await_drivers() const;

private:
  world where_;
  std::size_t drivers_;
  buffer ended_; ///< One number for each driver, 1 when it has ended.
  std::vector<remote_buffer> exported_;
};
/// Returns the suffix of the names of the memory for one epoch. Work of an ended epoch may still write to its own.
[[nodiscard]] std::string stress_memory_suffix(epoch of);

/// Runs driver number \p number, until about \p requests parts of requests have been answered. \p settings name the
/// controller. Its requests are copies into the ranks' memory, sums, and copies out, several in flight.
[[nodiscard]] stress_totals run_stress_driver(const configuration& settings, std::size_t number, std::size_t requests,
                                              std::uint64_t seed);
/// Runs a driver until the end of the world, through all its epochs. It sends the same requests, and agrees; \p
/// receipts are what it receives and hears. The ranks export memory for each epoch.
[[nodiscard]] stress_totals run_driver_through_losses(const configuration& settings, std::uint64_t seed,
                                                      receipt_log& receipts);

} // namespace troupe::program
