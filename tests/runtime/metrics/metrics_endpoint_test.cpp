/// A runtime's metrics, read over HTTP as Prometheus does.

#include "support/few_descriptors_left.hpp"
#include "support/metric_scrape.hpp"
#include "support/process_resources.hpp"
#include "support/runtimes.hpp"

#include <troupe/actors.hpp>
#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/device/file_descriptor.hpp>
#include <troupe/runtime/logging.hpp>
#include <troupe/runtime/metrics.hpp>
#include <troupe/runtime/metrics/metrics_endpoint.hpp>
#include <troupe/runtime/metrics/metrics_source.hpp>
#include <troupe/testing/fault_script.hpp>

#include <catch2/catch_test_macros.hpp>

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace troupe::tests::metrics_endpoint_test {

namespace {

constexpr std::size_t count = 256;

configuration shown_settings(int ranks) {
  configuration settings = mock_settings(ranks);
  settings.metrics.address = "127.0.0.1:0";
  return settings;
}

metric_scrape scrape(const runtime& rt) {
  return metric_scrape{http_get(rt.metrics_address(), "/metrics", 20s)};
}

/// Returns how many threads keep the test's name once that number has not changed for 20 looks: threads of troupe set
/// a name of their own soon after they start.
std::size_t settled_count(const started_threads& threads) {
  std::size_t last = threads.count();
  int same = 0;
  for (int looks = 0; same < 20 && looks < 2000; ++looks) {
    std::this_thread::sleep_for(5ms);
    const std::size_t now = threads.count();
    same = now == last ? same + 1 : 0;
    last = now;
  }
  REQUIRE(same == 20); // else the number of threads has not settled within 10 s
  return last;
}

/// How often the thread with this /proc/…/status has slept, or nothing if the kernel does not say. A thread that spins
/// does not sleep, however often it is preempted.
std::optional<long> sleeps_of(const file_descriptor& status) {
  std::array<char, 8192> text{};
  const ssize_t size = ::pread(status.native(), text.data(), text.size() - 1, 0);
  const std::string_view all{text.data(), size < 0 ? 0 : static_cast<std::size_t>(size)};
  constexpr std::string_view name = "\nvoluntary_ctxt_switches:";
  const std::size_t at = all.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  return std::atol(text.data() + at + name.size());
}

/// Collects what is logged.
class log_lines {
public:
  log_lines() : before_{spdlog::get("troupe")} {
    spdlog::drop("troupe");
    spdlog::register_logger(
        std::make_shared<spdlog::logger>("troupe", std::make_shared<spdlog::sinks::ostream_sink_mt>(out_)));
    open_log("warn");
  }
  log_lines(const log_lines&) = delete;
  log_lines& operator=(const log_lines&) = delete;
  ~log_lines() {
    flush_log(20s);
    spdlog::drop("troupe");
    if (before_) spdlog::register_logger(before_);
  }
  /// Call it when no other thread logs.
  [[nodiscard]] std::string text() const {
    CHECK(flush_log(20s));
    return out_.str();
  }

private:
  std::shared_ptr<spdlog::logger> before_;
  std::ostringstream out_;
};

std::string words_of(const configuration& settings, errc expected) {
  try {
    const runtime rt{settings};
  } catch (const exception& refused) {
    CHECK(refused.why().code == expected);
    return refused.why().text;
  }
  return {};
}

} // namespace

TEST_CASE("processes of one job serve metrics side by side, and one that cannot listen goes on without",
          "[runtime][metrics]") {
  const auto process = [](const std::string& address, int local_rank) {
    configuration settings = mock_settings(2);
    settings.metrics.address = address;
    settings.log_level = "warn";
    settings.position = process_position{.rank = local_rank, .world_size = 3, .local_rank = local_rank};
    return std::make_unique<runtime>(settings);
  };
  // The port after a free one may be in use by another program.
  for (int attempt = 0;; ++attempt) {
    const log_lines log;
    const auto first = process("127.0.0.1:0", 0);
    const metrics_address base = parse_metrics_address(first->metrics_address());
    const auto second = process(first->metrics_address(), 1);
    if (second->metrics_address().empty() && attempt < 20) continue;
    CHECK(parse_metrics_address(second->metrics_address()).port == base.port + 1);
    CHECK(metric_scrape{http_get(second->metrics_address(), "/metrics", 20s)}.has("troupe_build_info"));
    CHECK(process(first->metrics_address(), 0)->metrics_address().empty());
    CHECK(log.text().find("serves no metrics: metrics.address is " + first->metrics_address()) != std::string::npos);
    break;
  }
}

TEST_CASE("metrics that nobody has asked for take neither a thread nor a socket", "[runtime][metrics]") {
  const started_threads threads;
  std::size_t threads_without = 0;
  const std::size_t listening = listening_sockets().size();
  {
    const runtime rt{mock_settings(2)};
    CHECK(rt.metrics_address().empty());
    CHECK(rt.describe().find("metrics") == std::string::npos);
    CHECK(listening_sockets().size() == listening);
    threads_without = settled_count(threads);
  }
  if (!has_metrics()) return;
  const runtime rt{shown_settings(2)};
  CHECK(settled_count(threads) > threads_without);
  CHECK(listening_sockets().size() > listening);
}

TEST_CASE("an address for metrics beyond loopback is refused before anything is opened", "[runtime][metrics]") {
  configuration settings = mock_settings(1);
  settings.metrics.address = "0.0.0.0:0";
  CHECK(words_of(settings, errc::invalid_argument).find("metrics.allow_remote") != std::string::npos);
}

TEST_CASE("without prometheus-cpp an address for metrics is refused with the remedy", "[runtime][metrics]") {
  if (has_metrics()) SKIP("this troupe is built with prometheus-cpp");
  CHECK(words_of(shown_settings(1), errc::missing).find("prometheus-cpp-dev") != std::string::npos);
}

TEST_CASE("a port that is taken is refused with the remedy", "[runtime][metrics]") {
  if (!has_metrics()) SKIP("this troupe is built without prometheus-cpp");
  const runtime first{shown_settings(1)};
  configuration settings = mock_settings(1);
  settings.metrics.address = first.metrics_address();
  CHECK(words_of(settings, errc::invalid_argument).find("check that the port is not in use") != std::string::npos);
}

TEST_CASE("launches of one-shot kernels and of the library are counted apart, through a fault", "[runtime][metrics]") {
  if (!has_metrics()) SKIP("this troupe is built without prometheus-cpp");
  const auto faults = std::make_shared<testing::fault_script>();
  configuration settings = shown_settings(2);
  settings.limits.one_shot_bytes = 1024;
  settings.mock.memory_bytes = 64U << 20U; // the scratch of a failed epoch is there while the next one forms
  settings.fusion.mode = fusion::off;
  settings.recovery.policy = recovery_policy::keep_size;
  settings.faults = faults;
  runtime rt{settings};
  world where = rt.form_world();
  constexpr std::size_t small = 256, large = 257; // elements of 4 bytes
  std::vector<buffer> values;
  for (const rank self : where.local_ranks()) values.push_back(where.allocate(self, 4096));
  const auto sum = [&](std::size_t elements) {
    return where.all_reduce(values, values, elements, dtype::f32, reduction::sum);
  };
  std::vector<operation> groups;
  for (const buffer& one : values) {
    const buffer first = one.slice(0, 4), rest = one.slice(256, large * 4);
    groups.emplace_back(group{{all_reduce{.send = first, .recv = first, .count = 1},
                               all_reduce{.send = rest, .recv = rest, .count = large}, barrier{}}});
  }
  sum(small).get();
  sum(large).get();
  where.ask(groups).get();
  where.barrier().get();

  {
    const metric_scrape seen = scrape(rt);
    for (const char* self : {"0", "1"}) {
      const label_filter kernels{{"rank", self}, {"way", "one_shot"}}, library{{"rank", self}, {"way", "library"}};
      CHECK(seen.sum("troupe_collective_launches_total", kernels) == 3);
      CHECK(seen.sum("troupe_collective_operations_total", kernels) == 4);
      CHECK(seen.sum("troupe_collective_launches_total", library) == 2);
      CHECK(seen.sum("troupe_collective_operations_total", library) == 2);
    }
    CHECK(seen.sum("troupe_world_one_shot_limit_bytes") == 1024);
    REQUIRE(where.status().one_shot);
    CHECK(where.status().one_shot->scratch_bytes > 0);
    CHECK(seen.sum("troupe_world_one_shot_scratch_bytes") ==
          static_cast<double>(where.status().one_shot->scratch_bytes));
  }
  const auto refused = faults->on(rank{1}).next_operation().fail();
  CHECK(failure_of(sum(small)).code == errc::communicator_failed);
  REQUIRE(where.wait_ready(epoch{1}, 60s).phase == world_phase::ready);
  sum(small).get();
  REQUIRE(where.status().one_shot);
  CHECK(where.status().one_shot->why.empty());
  CHECK(scrape(rt).sum("troupe_collective_launches_total", {{"rank", "1"}, {"way", "one_shot"}}) == 4);
}

TEST_CASE("counters that are scraped are what was asked", "[runtime][metrics]") {
  if (!has_metrics()) SKIP("this troupe is built without prometheus-cpp");
  runtime rt{shown_settings(3)};
  world where = rt.form_world();
  std::vector<buffer> values;
  for (const rank self : where.local_ranks()) values.push_back(where.allocate(self, count * sizeof(float)));
  for (int i = 0; i < 7; ++i) where.all_reduce(values, values, count, dtype::f32, reduction::sum).get();
  for (int i = 0; i < 2; ++i) where.barrier().get();
  // Refused: it stops at the door, where no rank's counters are reached, or is counted by its code; it never succeeds.
  CHECK(failure_of(where.all_reduce(values, values, count + 1, dtype::f32, reduction::sum)).code ==
        errc::invalid_argument);

  const metric_scrape seen = scrape(rt);
  for (const char* self : {"0", "1", "2"}) {
    const label_filter sums{{"rank", self}, {"operation", "all_reduce"}};
    CHECK(seen.sum("troupe_requests_total", sums) == 7);
    CHECK(seen.values("troupe_requests_total", "size", sums) == std::vector<std::string>{"4K"});
    CHECK(seen.sum("troupe_request_bytes_total", sums) == 7 * count * sizeof(float));
    CHECK(seen.sum("troupe_request_latency_seconds_count", sums) == 7);
    CHECK(seen.sum("troupe_request_latency_seconds_bucket", with(sums, "le", "+Inf")) == 7);
    CHECK(seen.sum("troupe_request_latency_seconds_sum", sums) > 0);
    CHECK(seen.sum("troupe_request_latency_seconds_sum", sums) >= seen.sum("troupe_request_queue_seconds_total", sums));
    CHECK(seen.sum("troupe_requests_total", {{"rank", self}, {"operation", "barrier"}}) == 2);
    CHECK(seen.sum("troupe_launched_requests_total", {{"rank", self}}) == 9);
    CHECK(seen.sum("troupe_launches_total", {{"rank", self}}) == 9);
    CHECK(seen.sum("troupe_rank_lead", {{"rank", self}}) == 0);
    CHECK(seen.sum("troupe_rank_queue", {{"rank", self}}) == 0);
  }
  CHECK(seen.sum("troupe_world_phase", {{"phase", "ready"}}) == 1);
  CHECK(seen.sum("troupe_world_epoch") == 1);
  CHECK(seen.sum("troupe_world_ranks") == 3);
  CHECK(seen.sum("troupe_world_local_ranks") == 3);
  CHECK(seen.has("troupe_poller_seconds_total", {{"state", "busy"}}));
  CHECK_FALSE(seen.has("troupe_world_faults_total"));

  // What a client of this process sees without HTTP is the same.
  const auto direct = rt.metrics()->read();
  REQUIRE(direct);
  REQUIRE(direct->worlds.size() == 1);
  CHECK(direct->worlds[0].ranks.size() == 3);
  CHECK(direct->worlds[0].ranks[2].tally.launched == 9);
}

TEST_CASE("requests in flight are shown as lead and as pending", "[runtime][metrics]") {
  if (!has_metrics()) SKIP("this troupe is built without prometheus-cpp");
  runtime rt{shown_settings(2)};
  world where = rt.form_world();
  std::vector<buffer> values;
  for (const rank self : where.local_ranks()) values.push_back(where.allocate(self, count * sizeof(float)));
  const held_client client{where.device_of(rank{0})};
  std::vector<operation> parts;
  for (const buffer& one : values) parts.emplace_back(all_reduce{.send = one, .recv = one, .count = count});
  std::get<all_reduce>(parts[0]).send = client.after(values[0]);
  std::vector<std::future<completion>> replies;
  for (int i = 0; i < 4; ++i) replies.push_back(where.ask(parts));
  const auto until = std::chrono::steady_clock::now() + 20s;
  double lead = 0;
  while (lead < 4 && std::chrono::steady_clock::now() < until) lead = scrape(rt).sum("troupe_world_lead");
  CHECK(lead == 4);
  CHECK(scrape(rt).sum("troupe_world_pending_requests") == 3); // beyond the first
  client.open();
  for (auto& one : replies) one.get();
  CHECK(scrape(rt).sum("troupe_world_lead") == 0);
  CHECK(scrape(rt).sum("troupe_world_pending_requests") == 0);
}

TEST_CASE("a fault and the way back from it are counted by kind", "[runtime][metrics]") {
  if (!has_metrics()) SKIP("this troupe is built without prometheus-cpp");
  configuration settings = shown_settings(2);
  settings.recovery.policy = recovery_policy::keep_size;
  settings.recovery.backoff = 1ms;
  runtime rt{settings};
  world where = rt.form_world();
  where.barrier().get();
  std::promise<void> is_back;
  where.on_event([&, told = false](const world_event& event) mutable {
    if (event.phase == world_phase::ready && event.epoch == epoch{2} && !std::exchange(told, true)) is_back.set_value();
  });
  compat::post(
      caf::actor_cast<world_inner_handle>(actor_of(where)),
      world_notice{rank_report{rank_report::kind::faulted,
                               rank{1},
                               where.epoch(),
                               {.code = errc::communicator_failed, .text = "the test says so", .rank = rank{1}}}});
  REQUIRE(is_back.get_future().wait_for(20s) == std::future_status::ready);
  where.barrier().get();
  const metric_scrape seen = scrape(rt);
  CHECK(seen.sum("troupe_world_faults_total", {{"code", "communicator_failed"}}) == 1);
  CHECK(seen.sum("troupe_world_faults_total") == 1);
  CHECK(seen.sum("troupe_world_recovery_seconds_count", {{"rung", "form_beside"}, {"result", "ready"}}) == 1);
  CHECK(seen.sum("troupe_world_epoch") == 2);
  CHECK(seen.sum("troupe_requests_total", {{"operation", "barrier"}, {"rank", "0"}}) == 2); // of both epochs
  CHECK(seen.sum("troupe_world_lead") == 0);
  where.stop();
}

TEST_CASE("requests that are never completed keep no scraper out", "[runtime][metrics]") {
  if (!has_metrics()) SKIP("this troupe is built without prometheus-cpp");
  runtime rt{shown_settings(1)};
  const auto where = parse_metrics_address(rt.metrics_address());
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(where.port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<file_descriptor> strangers;
  for (int i = 0; i < 225; ++i) {
    strangers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(strangers.back().native(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    static_cast<void>(::send(strangers.back().native(), "GET /met", 8, MSG_NOSIGNAL));
  }
  for (int i = 0; i < 3; ++i) CHECK(scrape(rt).has("troupe_poller_seconds_total", {{"state", "parked"}}));
}

TEST_CASE("an endpoint without a descriptor for a connection sleeps until there is one", "[runtime][metrics]") {
  if (!has_metrics()) SKIP("this troupe is built without prometheus-cpp");
  const log_lines logged;
  const auto source = std::make_shared<const metrics_source>([] { return runtime_reading{}; });
  const started_threads threads; // the endpoint's thread inherits the name of this one
  auto endpoint = serve_metrics({.address = "127.0.0.1:0"}, source);
  std::vector<int> started = threads_named(started_threads::name);
  std::erase(started, static_cast<int>(::gettid()));
  REQUIRE(started.size() == 1);
  const std::string path = "/proc/self/task/" + std::to_string(started.front()) + "/status";
  const file_descriptor status{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (!sleeps_of(status)) SKIP("this kernel does not count how often a thread sleeps");

  const file_descriptor client{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const timeval limit{.tv_sec = 20, .tv_usec = 0};
  ::setsockopt(client.native(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint->where().port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  // The log and Catch2's checks have classes that a sanitizer must have met, too (meet_exception()).
  log_warning("the first line");
  REQUIRE(flush_log(20s));
  int connected = -1;
  long slept = 0;
  {
    const few_descriptors_left none;
    connected = ::connect(client.native(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    const long before = *sleeps_of(status);
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (slept < 5 && std::chrono::steady_clock::now() < until) {
      std::this_thread::yield();
      slept = *sleeps_of(status) - before;
    }
  }
  REQUIRE(connected == 0);
  CHECK(slept >= 5);
  const std::string request = "GET /other HTTP/1.0\r\n\r\n";
  REQUIRE(::send(client.native(), request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size()));
  std::array<char, 12> answer{};
  CHECK(::recv(client.native(), answer.data(), answer.size(), MSG_WAITALL) == 12);
  CHECK(std::string_view{answer.data(), answer.size()} == "HTTP/1.1 404");
  endpoint.reset();
  const std::string all = logged.text();
  CHECK(all.find("metrics are not served at 127.0.0.1:") != std::string::npos);
  CHECK(std::ranges::count(all, '\n') == 2);
}

TEST_CASE("a request that is not for metrics is told so", "[runtime][metrics]") {
  if (!has_metrics()) SKIP("this troupe is built without prometheus-cpp");
  runtime rt{shown_settings(1)};
  CHECK(http_answer(rt.metrics_address(), "/other", 20s).starts_with("HTTP/1.1 404"));
}

TEST_CASE("metrics are nothing when their runtime has ended", "[runtime][metrics]") {
  std::shared_ptr<const metrics_source> source;
  {
    const runtime rt{mock_settings(1)};
    source = rt.metrics();
    CHECK(source->read());
  }
  CHECK_FALSE(source->read());
}

} // namespace troupe::tests::metrics_endpoint_test
