// An order service and three ranks in processes of their own, one of which is killed or stopped before a random access
// to the shared memory. Each point: all others go on or fail closed in time, nobody reads a torn record, and the orders
// that the ranks follow are one. TROUPE_CRASH_POINTS says how many points, TROUPE_FIRST_SEED which ones.
#include "processes/transport/forked_process.hpp"
#include "processes/transport/ring_rig.hpp"

#include <catch2/catch_test_macros.hpp>

#include <sys/mman.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>
#include <thread>

namespace troupe::tests::order_crash_test {

using namespace std::chrono_literals;

namespace {

constexpr epoch of{1};
constexpr int world_size = 3;
constexpr std::size_t lanes = 3, requests = 24;
constexpr nanoseconds request_deadline = 60ms;
constexpr nanoseconds hang = 20s;                                     ///< Nothing may take this long.
constexpr nanoseconds fence_of_rank = 100ms, fence_of_service = 30ms; ///< A side that has read nothing for this long.
constexpr nanoseconds short_patience = 200ms; ///< Of a rank that may hear nothing: its owner learns it by a heartbeat.

enum class victim : std::uint8_t { killed_rank, stopped_rank, killed_service, stopped_service };
enum class pause : std::uint8_t { short_one, long_one, until_others_end };

/// What happens at one point, all from its seed.
struct scenario {
  explicit scenario(std::uint64_t seed) : random{seed} {
    who = static_cast<victim>(random() % 4);
    if (who == victim::killed_rank || who == victim::stopped_rank)
      struck_rank = static_cast<int>(random() % world_size);
    is_stop = who == victim::stopped_rank || who == victim::stopped_service;
    step = static_cast<ring_step>(random() % (static_cast<unsigned>(ring_step::end_park) + 1));
    before = random() % (std::uint64_t{1} << (random() % 7));
    stop_for = static_cast<pause>(random() % 3);
    capacity_bytes = std::size_t{256} << (random() % 3);
    window = 1 + random() % requests;
  }
  [[nodiscard]] bool is_struck(int r) const { return r == struck_rank; }
  [[nodiscard]] ring_settings rings(nanoseconds behind) const {
    return {.capacity_bytes = capacity_bytes, .behind = behind};
  }

  std::mt19937_64 random;
  victim who{};
  int struck_rank = -1; ///< -1: the service.
  bool is_stop = false;
  ring_step step{};
  std::uint64_t before = 0;
  pause stop_for{};
  std::size_t capacity_bytes = 0;
  std::size_t window = 0; ///< A rank asks this far ahead of what is decided.
};

/// What processes say, in memory that they share.
struct rank_report {
  std::atomic<bool> is_done;
  std::size_t asked, decided, released;
  std::array<std::size_t, requests> order; ///< The released requests, as numbers that mean the same at all ranks.
  errc failure;
  bool is_wrong;
};
struct report {
  std::atomic<pid_t> service;
  std::atomic<bool> has_struck;
  std::array<rank_report, world_size> ranks;
  std::atomic<std::size_t> losses;
  std::array<std::pair<int, errc>, world_size> lost;
};

template <class Condition>
bool await(Condition holds) {
  const time_point until = steady_now() + hang;
  while (!holds() && steady_now() < until) std::this_thread::sleep_for(100us);
  return holds();
}

/// One point: its processes, and what they have said.
class point {
public:
  explicit point(const scenario& plan)
    : plan_{plan},
      said_{static_cast<report*>(
          ::mmap(nullptr, sizeof(report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))} {
    REQUIRE(static_cast<void*>(said_) != MAP_FAILED);
    for (int r = 0; r < world_size; ++r) start([&, r] { return ask(r); });
    start([&] { return serve(); });
    said_->service = processes_.back().pid();
  }
  point(const point&) = delete;
  point& operator=(const point&) = delete;
  ~point() {
    processes_.clear();
    ::munmap(said_, sizeof(report));
  }

  /// Lets it happen. Returns whether the access was reached.
  bool run() {
    INFO("waited 20 s for an end or a strike");
    REQUIRE(await([&] { return said_->has_struck || are_done(true); }));
    const bool has_struck = said_->has_struck;
    if (has_struck && plan_.is_stop) stop_for_a_while();
    REQUIRE(await([&] { return are_done(has_struck && plan_.who == victim::stopped_rank); }));
    if (has_struck && plan_.who == victim::killed_rank) {
      INFO("the service must report the loss");
      REQUIRE(await([&] { return said_->losses > 0; }));
    }
    while (!processes_.empty()) processes_.pop_back(); // the service first: the end of a rank would be a loss
    return has_struck;
  }
  void check() const {
    for (std::size_t i = 0; i < said_->losses; ++i) {
      const auto& [r, code] = said_->lost[i];
      CAPTURE(r, code);
      CHECK((code == errc::deadline_exceeded || (code == errc::rank_lost && plan_.who == victim::killed_rank)));
    }
    const rank_report* longest = said_->ranks.data();
    for (int r = 0; r < world_size; ++r) {
      const rank_report& one = said_->ranks[index(r)];
      CAPTURE(r, one.asked, one.decided, one.released, one.failure);
      CHECK_FALSE(one.is_wrong);
      CHECK((one.failure == errc::none || one.failure == errc::deadline_exceeded ||
             (one.failure == errc::rank_lost && plan_.who == victim::killed_service)));
      if (one.decided < one.asked && plan_.who == victim::killed_service) CHECK(one.failure != errc::none);
      if (one.decided < one.asked && plan_.struck_rank >= 0 && !plan_.is_struck(r))
        CHECK(has_lost(r, errc::deadline_exceeded));
      const std::size_t both = std::min(one.released, longest->released);
      CHECK(std::equal(one.order.begin(), one.order.begin() + both, longest->order.begin()));
      if (one.released > longest->released) longest = &one;
    }
  }
  /// Returns whether the other ranks were served to the end.
  [[nodiscard]] bool has_gone_on() const {
    for (int r = 0; r < world_size; ++r)
      if (!plan_.is_struck(r) && said_->ranks[index(r)].released < requests) return false;
    return true;
  }
  [[nodiscard]] bool has_fenced() const {
    const auto& all = said_->ranks;
    return has_lost(plan_.struck_rank, errc::deadline_exceeded) ||
           std::ranges::any_of(all, [](const rank_report& one) { return one.failure == errc::deadline_exceeded; });
  }

private:
  template <class Body>
  void start(Body body) {
    processes_.emplace_back([body]() noexcept {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      return body();
    });
  }
  static std::size_t index(int r) { return static_cast<std::size_t>(r); }

  void plan_strike(bool is_mine) const {
    if (!is_mine) return;
    planned_strike = {.signal = plan_.is_stop ? SIGSTOP : SIGKILL,
                      .step = plan_.step,
                      .before = plan_.before,
                      .has_struck = &said_->has_struck};
  }

  int serve() {
    order_service service{{.wait = {.spin = 0s}, .on_news = [&] {
                             for (const auto& one : service_->take_losses()) {
                               said_->lost[said_->losses] = {one.rank.value(), one.why.code};
                               ++said_->losses;
                             }
                           }}};
    service_ = &service;
    std::vector<order_route> routes;
    for (int r = 0; r < world_size; ++r)
      routes.push_back({.rings = ring_connection::offer(sockets_[index(r)].service, session_, rank{r},
                                                        peer_process{processes_[index(r)].pid()}, service.bell(),
                                                        plan_.rings(fence_of_rank))});
    service.open(of, std::move(routes));
    plan_strike(plan_.struck_rank < 0);
    service.run();
    return 0;
  }

  int ask(int r) {
    while (said_->service == 0) std::this_thread::yield();
    // A rank that gives up a service which only got no time on a processor tells nobody. Where the service must say
    // why a rank was not served, the rank therefore waits for it.
    const bool may_give_up = plan_.struck_rank < 0 || plan_.is_struck(r);
    ring_client client{ring_connection::accept(sockets_[index(r)].rank, session_, rank{r},
                                               peer_process{said_->service.load()}, handover_limit(),
                                               plan_.rings(may_give_up ? fence_of_service : hang)),
                       of, world_size};
    // The same requests in each lane at all ranks, and the lanes in an order of this rank's own.
    std::vector<std::size_t> mine(requests);
    for (std::size_t i = 0; i < requests; ++i) mine[i] = i % lanes;
    std::mt19937_64 random = plan_.random;
    random.discard(index(r));
    std::ranges::shuffle(mine, std::mt19937_64{random()});
    std::array<std::size_t, lanes> next{};
    for (std::size_t& one : mine) one = one * requests + next[one]++;

    rank_report& into = said_->ranks[index(r)];
    std::vector<bool> is_decided(requests);
    std::size_t refused = 0;
    const auto read = [&] {
      client.read();
      const auto note = [&](std::uint64_t number) {
        into.is_wrong = into.is_wrong || number == 0 || number > into.asked || is_decided[number - 1];
        if (into.is_wrong) return false;
        is_decided[number - 1] = true;
        ++into.decided;
        return true;
      };
      while (into.released < client.released.size()) {
        const std::uint64_t number = client.released[into.released];
        if (!note(number)) return;
        into.order[into.released++] = mine[number - 1];
      }
      while (refused < client.refused.size())
        if (!note(client.refused[refused++].first)) return;
      into.is_wrong = into.is_wrong || client.is_wrong();
    };
    const bool may_hear_nothing = plan_.is_stop && (plan_.struck_rank < 0 || plan_.is_struck(r));
    const auto await_decided = [&](std::size_t count) {
      const time_point until = steady_now() + (may_hear_nothing ? short_patience : hang / 2);
      for (read(); into.decided < count && !into.is_wrong && !client.link().failure(); read()) {
        const time_point now = steady_now();
        if (now >= until) return false;
        static_cast<void>(client.link().receiving().wait({.spin = 0s}, now + 1ms, 1ms));
      }
      return into.decided >= count;
    };
    plan_strike(plan_.is_struck(r));
    while (into.asked < requests && refused == 0) {
      if (into.asked >= plan_.window && !await_decided(into.asked + 1 - plan_.window)) break;
      static const std::array names{lane::named("a"), lane::named("b"), lane::named("c")};
      const std::size_t one = mine[into.asked++];
      if (client.ask(all_reduce{.send = {}, .recv = {}, .count = one}, request_deadline, names[one / requests])) break;
    }
    await_decided(into.asked);
    into.failure = client.link().failure().code;
    into.is_done = true;
    for (;;) ::pause(); // its end would be a loss
  }

  [[nodiscard]] bool are_done(bool with_struck) const {
    for (int r = 0; r < world_size; ++r)
      if ((with_struck || !plan_.is_struck(r)) && !said_->ranks[index(r)].is_done) return false;
    return true;
  }
  [[nodiscard]] bool has_lost(int r, errc code) const {
    const auto* const first = said_->lost.data();
    return std::find(first, first + said_->losses, std::pair{r, code}) != first + said_->losses;
  }

  void stop_for_a_while() {
    const forked_process& struck = processes_[index(plan_.struck_rank < 0 ? world_size : plan_.struck_rank)];
    siginfo_t seen{};
    REQUIRE(await([&] {
      REQUIRE(::waitid(P_PID, static_cast<id_t>(struck.pid()), &seen, WSTOPPED | WNOHANG | WNOWAIT) == 0);
      return seen.si_pid == struck.pid();
    }));
    if (plan_.stop_for == pause::until_others_end) REQUIRE(await([&] { return are_done(false); }));
    if (plan_.stop_for != pause::short_one) {
      const auto longest = plan_.stop_for == pause::long_one ? request_deadline : fence_of_rank * 3 / 2;
      std::this_thread::sleep_for(longest * (plan_.random() % 100) / 100);
    }
    struck.kill(SIGCONT);
  }

  scenario plan_;
  report* said_;
  std::array<ring_sockets, world_size> sockets_;
  ring_session session_ = ring_session::make();
  std::deque<forked_process> processes_; ///< Ranks, service.
  order_service* service_ = nullptr;     ///< In its process.
};

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
  const char* const given = std::getenv(variable); // NOLINT(concurrency-mt-unsafe): nobody sets it
  return given == nullptr ? otherwise : std::strtoull(given, nullptr, 10);
}

} // namespace

TEST_CASE("when a process is killed or stopped before any access to the rings, the others go on or fail closed",
          "[collectives][order][ORD-1][TIM-1][FLT-1]") {
  const std::uint64_t points = number_from("TROUPE_CRASH_POINTS", 60);
  std::uint64_t seed = number_from("TROUPE_FIRST_SEED", 1);
  constexpr std::array names{"killed rank", "stopped rank", "killed service", "stopped service"};
  struct tally {
    std::size_t struck = 0, went_on = 0, fenced = 0;
  };
  std::array<tally, names.size()> of_victim;
  std::array<std::size_t, static_cast<std::size_t>(ring_step::end_park) + 1> of_step{};
  for (std::uint64_t struck = 0, attempts = 0; struck < points; ++seed, ++attempts) {
    const scenario plan{seed};
    CAPTURE(seed, names[static_cast<std::size_t>(plan.who)], plan.struck_rank, static_cast<int>(plan.step), plan.before,
            plan.window, plan.capacity_bytes);
    REQUIRE(attempts < points * 10);
    point one{plan};
    const bool has_struck = one.run();
    one.check();
    if (!has_struck) continue;
    ++struck;
    tally& into = of_victim[static_cast<std::size_t>(plan.who)];
    ++into.struck;
    into.went_on += one.has_gone_on() ? 1 : 0;
    into.fenced += one.has_fenced() ? 1 : 0;
    ++of_step[static_cast<std::size_t>(plan.step)];
  }
  for (std::size_t i = 0; i < names.size(); ++i)
    std::printf("%s: %zu points, %zu went on, %zu failed closed, %zu fenced\n", names[i], of_victim[i].struck,
                of_victim[i].went_on, of_victim[i].struck - of_victim[i].went_on, of_victim[i].fenced);
  std::printf("points by step:");
  for (const std::size_t one : of_step) std::printf(" %zu", one);
  std::printf("\n");
  if (points >= 1000) CHECK(std::ranges::count(of_step, 0U) == 0);
}

} // namespace troupe::tests::order_crash_test
