/// A controller that dies: another one takes its world over, whose processes go on meanwhile under their leases
/// (docs/design/0119-controller-store.md).
#include "processes/launch/captured_lines.hpp"
#include "support/comes_true.hpp"
#include "support/store_server.hpp"

#include <troupe/processes/controller.hpp>
#include <troupe/processes/launch/process_supervisor.hpp>
#include <troupe/processes/membership/order_host.hpp>
#include <troupe/processes/store/memory_store.hpp>
#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/runtime.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::tests::takeover_test {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using steady = std::chrono::steady_clock;

constexpr std::size_t count = 64;
constexpr const char* secret = "a secret of these tests";

configuration settings_of(const std::string& addresses, int place, const std::string& name) {
  configuration made;
  made.backend = backend_choice::mock;
  made.profile = latency_profile::frugal;
  made.limits.one_shot_bytes = 0;
  made.mock.devices = 1;
  made.log_level = "off";
  made.control = {.address = addresses, .patience = 60s};
  made.control.assignment = {.token = secret, .name = name, .place = place};
  made.deadlines.abort = 5s;
  return made;
}

/// Asks a rank for sums, one after the other, and repeats what a fault refuses in the next epoch. \p pause is between
/// two sums.
class asking {
public:
  explicit asking(world& where, nanoseconds pause = nanoseconds{0})
    : pause_{pause}, thread_{[this, &where] { run(where); }} {}
  ~asking() {
    is_over_ = true;
    thread_.join();
  }

  std::atomic<std::uint64_t> done{0};
  [[nodiscard]] std::vector<error> refused() {
    const std::lock_guard lock{mutex_};
    return refused_;
  }

private:
  void run(world& where) {
    const rank self = where.local_ranks().front();
    const buffer memory = where.allocate(self, count * sizeof(float));
    epoch acknowledged{};
    std::optional<rank_lane> mine;
    look_pause pause;
    while (!is_over_) {
      const world_event now = where.status();
      if (now.phase != world_phase::ready) {
        pause();
        continue;
      }
      if (!mine || now.epoch != acknowledged) {
        mine.emplace(where, where.local_ranks().front(), lane::named("takeover"));
        mine->acknowledge(acknowledged = now.epoch);
      }
      try {
        static_cast<void>(mine->all_reduce(memory, memory, count, dtype::f32, reduction::sum, {.deadline = 5s}).get());
        ++done;
        if (pause_ > nanoseconds{0}) std::this_thread::sleep_for(pause_);
      } catch (const exception& failure) {
        const std::lock_guard lock{mutex_};
        if (!is_over_) refused_.push_back(failure.why()); // else its peers do not ask any more
      }
    }
  }

  const nanoseconds pause_;
  std::atomic<bool> is_over_{false};
  std::mutex mutex_;
  std::vector<error> refused_;
  std::thread thread_;
};

/// A process of the world: here a runtime of this process.
struct member {
  explicit member(configuration settings)
    : rt{std::move(settings)}, formed{std::async(std::launch::async, [this] { return rt.form_world(); })} {}
  world& in() {
    if (!its) its = formed.get();
    return *its;
  }
  [[nodiscard]] bool is_ready(epoch at_least) {
    return comes_true([&] {
      const world_event now = in().status();
      return now.phase == world_phase::ready && now.epoch >= at_least;
    });
  }

  runtime rt;
  std::future<world> formed;
  std::optional<world> its;
};

/// Two addresses of controllers with one store, and the order service of the host.
struct two_controllers {
  explicit two_controllers(nanoseconds suspicion) : suspicion_{suspicion} {}

  [[nodiscard]] std::string addresses() const {
    return "127.0.0.1:" + std::to_string(ports[0]) + ",127.0.0.1:" + std::to_string(ports[1]);
  }
  [[nodiscard]] std::unique_ptr<controller> start(std::size_t which, std::shared_ptr<controller_store> store,
                                                  std::atomic<bool>& is_elected) const {
    controller_options options{.terms = {.world_size = 2}, .port = ports.at(which), .store = std::move(store)};
    options.terms.recovery.policy = recovery_policy::shrink;
    options.terms.token = secret;
    options.terms.suspicion = suspicion_;
    return std::make_unique<controller>(std::move(options),
                                        controller::hooks{.elected = [&is_elected](bool is) { is_elected = is; }});
  }
  [[nodiscard]] std::unique_ptr<order_host> start_service() const {
    return std::make_unique<order_host>(control_settings{.address = addresses(), .patience = 60s}, secret,
                                        wait_profile{}, sequencer_limits{});
  }

  const nanoseconds suspicion_;
  std::array<std::uint16_t, 2> ports{free_port(), free_port()};
};

std::string text_of(const std::vector<error>& all) {
  std::string text;
  for (const error& one : all) text += to_string(one) + "\n";
  return text;
}

bool is_rejected_or_unknown(const error& why) {
  return why.code == errc::communicator_failed || why.code == errc::rebuilding || why.code == errc::stale_epoch;
}

} // namespace

TEST_CASE("a world whose controller hands over goes on in the same epoch, and no request is refused",
          "[processes][takeover]") {
  const two_controllers at{10s};
  const auto shared = std::make_shared<memory_store_state>();
  std::atomic<bool> first_leads{false}, second_leads{false};
  auto first = at.start(0, std::make_shared<memory_store>(shared), first_leads);
  REQUIRE(comes_true([&] { return first_leads.load(); }));
  const auto second = at.start(1, std::make_shared<memory_store>(shared), second_leads);
  const auto service = at.start_service();
  member one{settings_of(at.addresses(), 0, "0")}, other{settings_of(at.addresses(), 1, "1")};
  REQUIRE(one.is_ready(epoch{1}));
  REQUIRE(other.is_ready(epoch{1}));
  {
    asking a{one.in()}, b{other.in()};
    REQUIRE(comes_true([&] { return a.done > 100; }));
    first.reset();
    REQUIRE(comes_true([&] { return second_leads.load(); }));
    const auto before = a.done.load();
    REQUIRE(comes_true([&] { return a.done > before + 100; }));
    CHECK(text_of(a.refused()) == "");
    CHECK(text_of(b.refused()) == "");
  }
  CHECK(one.in().status().epoch.value() == 1);
  // The successor grants the leases: the world goes on for longer than the last one of the first controller.
  const auto until = steady::now() + 11s;
  asking a{one.in(), 1ms}, b{other.in(), 1ms};
  REQUIRE(comes_true([&] { return steady::now() > until; }));
  CHECK(text_of(a.refused()) == "");
  CHECK(one.in().status().epoch.value() == 1);
  CHECK(one.in().status().phase == world_phase::ready);
}

TEST_CASE("a world whose store is lost goes on until its leases end, is then closed with the reason, and comes back",
          "[processes][takeover][MEM-1]") {
  const two_controllers at{3s};
  const auto shared = std::make_shared<memory_store_state>();
  std::atomic<bool> first_leads{false};
  const auto first = at.start(0, std::make_shared<memory_store>(shared), first_leads);
  REQUIRE(comes_true([&] { return first_leads.load(); }));
  const auto service = at.start_service();
  member one{settings_of(at.addresses(), 0, "0")}, other{settings_of(at.addresses(), 1, "1")};
  REQUIRE(one.is_ready(epoch{1}));
  REQUIRE(other.is_ready(epoch{1}));
  asking a{one.in()}, b{other.in()};
  REQUIRE(comes_true([&] { return a.done > 100; }));
  shared->cut(true);
  const auto cut = steady::now();
  REQUIRE(comes_true([&] { return !first_leads.load(); }));
  const auto after = a.done.load();
  REQUIRE(comes_true([&] { return a.done > after + 20; })); // it serves on without a controller
  REQUIRE(comes_true([&] { return !a.refused().empty(); }));
  CHECK(steady::now() - cut < 20s);
  CHECK(is_rejected_or_unknown(a.refused().front()));
  REQUIRE(comes_true([&] { return one.in().status().phase != world_phase::ready; }));
  // One of the two is the first to close, and its peer may hear of that before its own lease ends.
  CHECK_THAT(to_string(one.in().status().reason) + to_string(other.in().status().reason), ContainsSubstring("lease"));
  const auto closed = a.done.load();
  std::this_thread::sleep_for(500ms); // nothing is served: there is no event to wait for
  CHECK(a.done == closed);
  shared->cut(false);
  REQUIRE(one.is_ready(epoch{2}));
  REQUIRE(other.is_ready(epoch{2}));
  REQUIRE(comes_true([&] { return a.done > closed; }));
}

namespace {

/// A run of this program as a rank, or of the program troupe. Its lines are read.
class child {
public:
  explicit child(launch::process_spec spec) {
    const auto made = supervisor_.start(std::move(spec), {});
    number_ = made.number;
    pid_ = made.pid;
  }
  void kill(int signal) { supervisor_.kill(number_, signal); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::string await(const std::string& part) { return lines_.await(part); }
  [[nodiscard]] std::string await_error(const std::string& part) { return errors_.await(part); }

private:
  captured_lines lines_;
  captured_lines errors_;
  launch::process_number number_{};
  pid_t pid_ = 0;
  launch::process_supervisor supervisor_{{.output = lines_.native(), .errors = errors_.native()}}; ///< Goes first.
};

launch::process_spec controller_spec(const store_server& store, std::uint16_t port, int size) {
  return {.program = troupe_program(),
          .arguments = {"controller", "-n", std::to_string(size), "--port", std::to_string(port), "--policy", "shrink",
                        "--store", store.url("world")},
          .environment = {{"TROUPE_JOIN_TOKEN", secret}}};
}

launch::process_spec rank_spec(const std::string& addresses, int place) {
  return {.program = launch::own_program(),
          .arguments = {"[.rank-of-takeover]"},
          .environment = {{"TROUPE_TEST_ADDRESSES", addresses}, {"TROUPE_TEST_PLACE", std::to_string(place)}}};
}

/// Reads what a rank says about itself until it has said \p part.
struct rank_words {
  explicit rank_words(const std::string& addresses, int place) : of{rank_spec(addresses, place)} {}
  /// Returns the number of requests that it had done when it said the next time how many.
  std::uint64_t done() {
    const std::string line = of.await("did ");
    REQUIRE_FALSE(line.empty());
    return std::stoull(line.substr(line.find("did ") + 4));
  }
  /// Returns whether it does more requests than it has done now, within a minute.
  bool serves() {
    const std::uint64_t before = done();
    for (int i = 0; i < 600; ++i)
      if (done() > before) return true;
    return false;
  }
  /// Returns how it names the next epoch that is ready.
  std::string next_epoch() {
    for (;;) {
      std::string said = of.await("ready");
      if (said.empty() || (said.starts_with("epoch ") && said.find("not ready") == std::string::npos)) return said;
    }
  }
  child of;
};

} // namespace

// Not a test: the rank that the tests below start.
TEST_CASE("a rank of a takeover", "[.rank-of-takeover]") {
  const auto* const addresses = std::getenv("TROUPE_TEST_ADDRESSES");
  const auto* const place = std::getenv("TROUPE_TEST_PLACE");
  REQUIRE(addresses != nullptr);
  REQUIRE(place != nullptr);
  member self{settings_of(addresses, std::atoi(place), place)};
  asking load{self.in(), 1ms};
  std::size_t told = 0;
  world_event last{};
  // For at most two minutes: its parent kills it.
  for (int i = 0; i < 1200; ++i) {
    const world_event now = self.in().status();
    if (now.epoch != last.epoch || now.phase != last.phase)
      std::printf("epoch %llu %s %d\n", static_cast<unsigned long long>(now.epoch.value()),
                  now.phase == world_phase::ready ? "ready" : "not ready", now.world_size);
    last = now;
    const auto refused = load.refused();
    for (; told < refused.size(); ++told) std::printf("refused %s\n", to_string(refused[told]).c_str());
    std::printf("did %llu\n", static_cast<unsigned long long>(load.done.load()));
    std::fflush(stdout);
    std::this_thread::sleep_for(100ms);
  }
}

TEST_CASE("a controller that is killed under load is succeeded by one that stood by, which then handles a loss",
          "[processes][takeover][MEM-1]") {
  const char* const kind = GENERATE("etcd", "kubernetes");
  const auto store = start_store(kind);
  const std::uint16_t ports[] = {free_port(), free_port()};
  const std::string addresses = "127.0.0.1:" + std::to_string(ports[0]) + ",127.0.0.1:" + std::to_string(ports[1]);
  std::optional<child> first;
  first.emplace(controller_spec(*store, ports[0], 3));
  REQUIRE_FALSE(first->await("elected").empty());
  child second{controller_spec(*store, ports[1], 3)};
  REQUIRE_FALSE(second.await("standing by").empty());
  const order_host service{{.address = addresses, .patience = 60s}, secret, wait_profile{}, sequencer_limits{}};
  rank_words ranks[] = {rank_words{addresses, 0}, rank_words{addresses, 1}, rank_words{addresses, 2}};
  for (auto& one : ranks) REQUIRE_FALSE(one.of.await("epoch 1 ready 3").empty());
  REQUIRE(ranks[0].serves());
  first->kill(SIGKILL);
  const auto killed = steady::now();
  std::string said;
  for (std::string line; line.find("elected") == std::string::npos;) {
    line = second.await("");
    REQUIRE_FALSE(line.empty());
    const auto after = std::chrono::duration_cast<std::chrono::milliseconds>(steady::now() - killed);
    said += std::to_string(after.count()) + " ms: " + line + "\n";
  }
  const auto took = steady::now() - killed;
  CAPTURE(kind, said);
  CHECK(took < 9s); // the lease
  // They served all the time: the first word that is neither is a failure.
  std::string line;
  std::uint64_t before = ranks[0].done(), after = before;
  for (int i = 0; i < 30; ++i) { // three seconds in the hands of the successor
    line = ranks[0].of.await("");
    REQUIRE_THAT(line, !ContainsSubstring("refused"));
    REQUIRE_THAT(line, !ContainsSubstring("epoch"));
    if (line.starts_with("did ")) after = std::stoull(line.substr(4));
  }
  CHECK(after > before);
  // A loss right after costs one epoch.
  ranks[2].of.kill(SIGKILL);
  for (auto* const one : {&ranks[0], &ranks[1]}) REQUIRE(one->next_epoch() == "epoch 2 ready 2");
  CHECK(ranks[0].serves());
  for (int i = 0; i < 20; ++i) CHECK_FALSE(ranks[0].of.await("").starts_with("epoch "));
}

TEST_CASE("a controller that Kubernetes does not know or allow anything says so, and is elected when it may be",
          "[processes][takeover][kubernetes]") {
  kubernetes_server store;
  const bool is_known = GENERATE(false, true);
  store.fault(is_known ? R"({"verb": "create", "status": 403, "count": 8})"
                       : R"({"verb": "get", "status": 401, "count": 8})");
  child one{controller_spec(store, free_port(), 1)};
  const std::string why = one.await_error("is not elected: cannot");
  CHECK_THAT(why, ContainsSubstring(is_known ? "verbs [get, create, update]" : "--store-token"));
  CHECK_FALSE(one.await("elected").empty());
}

} // namespace troupe::tests::takeover_test
