/// What happens in one simulated run: who asks for what and when, and which faults come. All of it follows from a seed
/// and is plain data, so that a run that fails can be shortened and played again.
#pragma once

#include <troupe/actors/world/recovery_ladder.hpp>
#include <troupe/collectives/order/fusion_plan.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/completion/sources/completion_source.hpp>
#include <troupe/device/identity.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace troupe::simulation {

enum class fault_kind : std::uint8_t {
  withheld,     ///< A rank's launches reach its device no more: to the peers it never comes.
  refused,      ///< A launch call fails.
  stuck_launch, ///< A launch call does not return for long.
  slow_rank,    ///< Launches of one rank take longer: reported, not killed.
  asynchronous, ///< The communicator reports an error by itself.
  device,       ///< The device reports an error that is not sticky.
  sticky,       ///< The device poisons the process.
  failed_init,  ///< A rank cannot form its communicator.
  stuck_init,   ///< A rank's forming does not return for long.
  slow_abort,   ///< An abort takes long, perhaps past its deadline.
  ended_actor,  ///< A rank's actor is killed.
  ended_client, ///< A client dies with requests pending.
  jump,         ///< The machine sleeps: the clock jumps.
  // Only where there are actors:
  killed_world,  ///< The world's actor is killed.
  dropped_world, ///< Nobody keeps a handle to the world.
};
/// Those of every simulation.
inline constexpr std::array all_fault_kinds{fault_kind::withheld,   fault_kind::refused,      fault_kind::stuck_launch,
                                            fault_kind::slow_rank,  fault_kind::asynchronous, fault_kind::device,
                                            fault_kind::sticky,     fault_kind::failed_init,  fault_kind::stuck_init,
                                            fault_kind::slow_abort, fault_kind::ended_actor,  fault_kind::ended_client,
                                            fault_kind::jump};
[[nodiscard]] std::string_view to_string(fault_kind kind) noexcept;
/// "all", or names with commas between. Errors: invalid_argument, naming the choices.
[[nodiscard]] std::vector<fault_kind> parse_fault_kinds(std::string_view names);

struct planned_fault {
  std::size_t number = 0; ///< Its name.
  fault_kind kind{};
  nanoseconds at{};   ///< From then on it hits its rank at the first occasion.
  rank where{};       ///< In the first epoch, as all ranks here.
  nanoseconds span{}; ///< Of what takes long.
};

enum class operation_kind : std::uint8_t {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  group, ///< Of two all_reduces, one of the first element and one of the rest.
  barrier,
  exchange,     ///< A group of two: every rank sends to the next and receives from the one before, in a circle.
  transfer,     ///< A send of root's and a recv of the next rank's; nobody else takes part.
  copy,         ///< By each rank for itself: of what the rank before it has, to its own memory.
  registration, ///< No operation: the world is asked to register memory.
  capture,      ///< Nor this: the world is asked to capture a plan.
  replay,       ///< Of such a plan.
};
inline constexpr std::size_t operation_kind_count = static_cast<std::size_t>(operation_kind::replay) + 1;
[[nodiscard]] std::string_view to_string(operation_kind kind) noexcept;

struct planned_request {
  std::size_t number = 0; ///< Its name.
  /// Asked by each rank's client in this lane; none: of the world.
  std::optional<std::size_t> lane{};
  nanoseconds at{};
  nanoseconds jitter{}; ///< By as much ranks may be late.
  operation_kind what{};
  std::size_t count = 1;
  rank root{}; ///< Where it has left: another.
  nanoseconds deadline{};
  std::optional<rank> silent{};      ///< From here on it does not ask in the lane, as long as the epoch lasts.
  std::optional<rank> disagreeing{}; ///< It asks for one element less.
  std::optional<rank> cancelling{};  ///< It takes its request back.
  bool retry_safe = false;           ///< Marked so,
  std::optional<rank> unmarked{};    ///< but not by this rank's client.
  std::optional<rank> foreign{};     ///< Its memory is said to be another device's. Of requests to the world.
  /// The registration whose memory it is on, where that is done by then; of a replay: the capture whose plan it is.
  std::optional<std::size_t> source{};
  /// On registered memory: once it is done, its place is free for others. Of a replay: its client keeps the plan no
  /// longer than until it has asked.
  bool gives_back = false;
  bool of_requests = false; ///< Of a capture: its plan is of requests alone, not of a function.
  bool throws = false;      ///< Of a capture: its function may throw.
};

/// How long everything may take. Far shorter than in life, so that a run ends soon.
struct simulated_limits {
  nanoseconds hang{std::chrono::milliseconds{50}};
  nanoseconds launch{std::chrono::milliseconds{50}};
  nanoseconds form{std::chrono::milliseconds{200}};
  nanoseconds abort{std::chrono::milliseconds{100}};
  nanoseconds drain{std::chrono::milliseconds{300}};
  nanoseconds release{std::chrono::milliseconds{100}};
};

struct scenario {
  std::uint64_t seed = 0;
  int ranks = 0;
  std::size_t lanes = 0;
  completion_strategy strategy{};
  fusion fused{};
  simulated_limits limits{};
  recovery_terms recovery{};
  nanoseconds length{};    ///< Within which everything is asked.
  bool stops_busy = false; ///< It is stopped when the last has been asked, not answered.
  std::vector<planned_request> requests{};
  std::vector<planned_fault> faults{};
};

[[nodiscard]] scenario draw_scenario(std::uint64_t seed, int ranks, const std::vector<fault_kind>& kinds);

/// Numbers from a seed, the same everywhere.
class dice {
public:
  explicit dice(std::uint64_t seed) noexcept : state_{seed} {}
  [[nodiscard]] std::uint64_t next() noexcept;
  /// Below \p end, which is not 0.
  [[nodiscard]] std::size_t below(std::size_t end) noexcept { return static_cast<std::size_t>(next() % end); }
  [[nodiscard]] bool one_in(std::size_t many) noexcept { return below(many) == 0; }
  [[nodiscard]] nanoseconds within(nanoseconds longest) noexcept {
    return nanoseconds{static_cast<nanoseconds::rep>(next() % static_cast<std::uint64_t>(longest.count() + 1))};
  }

private:
  std::uint64_t state_;
};

/// One number of three, the same everywhere.
[[nodiscard]] std::uint64_t mix(std::uint64_t a, std::uint64_t b, std::uint64_t c = 0) noexcept;

} // namespace troupe::simulation
