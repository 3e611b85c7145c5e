/// A process that joins the world of a controller whose messages the test writes: what it tells, hears and logs.
#include "processes/membership/heard_log.hpp"
#include "processes/membership/scripted_controller.hpp"
#include "processes/transport/forked_process.hpp"
#include "processes/transport/ring_rig.hpp"
#include "support/comes_true.hpp"
#include "support/ordering_rig.hpp"
#include "support/outcomes.hpp"
#include "support/transport/transport_rig.hpp"

#include <troupe/actors.hpp>
#include <troupe/backends/hierarchy/hierarchical_backend.hpp>
#include <troupe/processes/membership/controlled_membership.hpp>
#include <troupe/processes/transport/shared_memory/order_gate.hpp>
#include <troupe/runtime/interop/host_system.hpp>
#include <troupe/runtime/runtime.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/event_based_actor.hpp>

#include <unistd.h>

#include <array>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::tests::joining_process_test {

namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

constexpr std::byte mark{42};

/// Makes unique ids that a test knows, or fails to.
class naming_backend final : public backend {
public:
  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  [[nodiscard]] std::string version() const override { return version_; }
  [[nodiscard]] troupe::capabilities examine(std::span<const std::shared_ptr<device>>) override { return {}; }
  [[nodiscard]] unique_id make_unique_id() override {
    if (is_broken) throw exception{errc::missing, "there is no network"};
    unique_id made;
    made.bytes[0] = mark;
    return made;
  }
  [[nodiscard]] std::shared_ptr<communicator> create(const unique_id&, rank, int, std::shared_ptr<device>) override {
    return nullptr;
  }

  std::string name_ = "mock";
  std::string version_ = "naming 1.0";
  std::atomic<bool> is_broken{false};
};

unique_id marked_id() {
  return naming_backend{}.make_unique_id();
}

/// A process whose world is an actor that notes what the controller tells it.
class joining_process {
public:
  explicit joining_process(const scripted_controller& control) {
    settings.control = {.address = control.address(), .patience = 60s};
    settings.control.assignment = {.token = scripted_controller::token, .name = "five", .place = 5};
    who.token = settings.control.assignment.token;
    who.who = {.name = "five", .host = "here", .pid = 12, .gpu = {}};
  }
  ~joining_process() {
    member.reset();
    helpers->stop();
  }

  void make() {
    selected_backend selected{.api = api, .collectives = collectives, .why = {}};
    if (nodes)
      selected.note_hosts = [to = nodes](const unique_id& formation, std::span<const std::string> hosts) {
        to->note(formation, node_map::of_hosts(hosts));
      };
    member = std::make_unique<controlled_membership>(who, membership_terms{.settings = settings,
                                                                           .selected = selected,
                                                                           .where = device_id{0},
                                                                           .helpers = helpers,
                                                                           .time = time,
                                                                           .wait = {},
                                                                           .stands_by = {}});
  }
  void begin() {
    make();
    member->begin(caf::actor_cast<world_inner_handle>(spawn_world()));
  }
  /// Joins the controller's world, as its process expects.
  join_request join(scripted_controller& control) {
    if (!member) begin();
    const auto asked = control.next_of<join_request>();
    REQUIRE(asked);
    control.welcome();
    REQUIRE(comes_true([&] { return member->session()->is_joined(); }));
    return *asked;
  }

  template <class Directive>
  [[nodiscard]] std::optional<Directive> got() {
    const std::lock_guard lock{mutex_};
    for (const controller_directive& one : told_)
      if (const auto* const found = std::get_if<Directive>(&one.what)) return *found;
    return std::nullopt;
  }
  /// The next directive of this kind; fails the test if none comes.
  template <class Directive>
  [[nodiscard]] Directive await() {
    REQUIRE(comes_true([this] { return got<Directive>().has_value(); }, 20s));
    return *got<Directive>();
  }
  /// Whether the world's actor is still there.
  [[nodiscard]] bool has_world() const { return !world_.expired(); }

  configuration settings;
  join_request who;
  std::shared_ptr<mock_driver> api = std::make_shared<mock_driver>(mock_options{.device_count = 1});
  std::shared_ptr<naming_backend> collectives = std::make_shared<naming_backend>();
  std::shared_ptr<node_directory> nodes = std::make_shared<node_directory>();
  std::shared_ptr<deadline_pool> helpers = std::make_shared<deadline_pool>();
  std::shared_ptr<const clock> time = std::make_shared<monotonic_clock>();

private:
  /// Prepares the configuration of an actor system.
  struct host_settings : caf::actor_system_config {
    explicit host_settings(const configuration& of) { prepare_host(*this, of); }
  };

  caf::actor spawn_world() {
    const auto alive = std::make_shared<int>(0);
    world_ = alive;
    const auto listening = [this](caf::event_based_actor*, const std::shared_ptr<int>& life) -> caf::behavior {
      return {[this, life](const world_notice& one) {
        const std::lock_guard lock{mutex_};
        told_.push_back(std::get<controller_directive>(one.what));
      }};
    };
    return system_.spawn(listening, alive);
  }

  std::mutex mutex_;
  std::vector<controller_directive> told_;
  std::weak_ptr<int> world_;
  host_settings host_{settings};
  caf::actor_system system_{host_};

public:
  std::unique_ptr<controlled_membership> member; ///< Destroyed first, because it sends to the actor.
};

/// The value of a fact, or nothing.
std::optional<std::string> fact(const join_request& from, std::string_view name) {
  for (const shared_fact& one : from.facts)
    if (one.name == name) return one.value;
  return std::nullopt;
}

std::string own_host() {
  std::array<char, 256> name{};
  REQUIRE(::gethostname(name.data(), name.size() - 1) == 0);
  return name.data();
}

} // namespace

TEST_CASE("a process tells its controller who it is, where it runs, and what it runs", "[processes]") {
  mock_driver api{{.device_count = 3}};
  naming_backend collectives;
  configuration settings;
  const join_request bare = describe_process(settings, api, collectives, device_id{2});
  CHECK(bare.token.empty());
  CHECK(bare.who.host == own_host());
  CHECK(bare.who.pid == ::getpid());
  CHECK(bare.who.name == own_host() + ":" + std::to_string(::getpid()));
  CHECK(bare.who.gpu.empty()); // a simulated one
  CHECK_FALSE(bare.place);
  CHECK_FALSE(bare.spare);
  CHECK(bare.attempt == 0);
  CHECK(bare.world_size == 0);
  CHECK(bare.local_device == 2);
  CHECK(bare.device_count == 3);
  CHECK_FALSE(fact(bare, "troupe").value_or("").empty());
  CHECK(fact(bare, "backend") == "mock");
  CHECK(fact(bare, "version of the backend") == "naming 1.0");
  CHECK(fact(bare, "driver") == api.version());
  CHECK(fact(bare, "ordering") == "agreed");
  CHECK(bare.facts.size() == 6 + shared_settings(settings, "mock").size());

  settings.control.assignment = {
      .token = "secret", .name = "seven", .host = "north", .place = 7, .spare = true, .attempt = 2};
  const join_request assigned = describe_process(settings, api, collectives, device_id{0});
  CHECK(assigned.token == "secret");
  CHECK(assigned.who.name == "seven");
  CHECK(assigned.who.host == "north");
  CHECK(assigned.place == 7);
  CHECK(assigned.spare);
  CHECK(assigned.attempt == 2);
  settings.control.assignment.name.clear();
  CHECK(describe_process(settings, api, collectives, device_id{0}).who.name == "north:" + std::to_string(::getpid()));
  settings.control.assignment.spare = false;
  CHECK(describe_process(settings, api, collectives, device_id{0}).who.name == "7"); // as those before and after it
}

TEST_CASE("a process names its launcher's rank as its place if it has none and the launcher's world has others",
          "[processes]") {
  mock_driver api{{.device_count = 1}};
  naming_backend collectives;
  configuration settings;
  const auto described = [&] { return describe_process(settings, api, collectives, device_id{0}); };
  const process_position second_of_two{.rank = 1, .world_size = 2};
  settings.position = second_of_two;
  CHECK(described().place == 1);
  CHECK(described().world_size == 2);

  settings.position.reset();
  CHECK_FALSE(described().place);
  settings.position = process_position{.rank = 0, .world_size = 1};
  CHECK_FALSE(described().place);
  CHECK(described().world_size == 0);
  settings.position = second_of_two;
  settings.control.assignment.spare = true;
  CHECK_FALSE(described().place);
  CHECK(described().world_size == 0);
  settings.control.assignment.spare = false;
  settings.control.assignment.place = 9;
  CHECK(described().place == 9);
  CHECK(described().world_size == 0);
}

TEST_CASE("the version of a backend is compared without the place where its library or network is", "[processes]") {
  mock_driver api{{.device_count = 1}};
  naming_backend collectives;
  for (const auto& [version, compared] : {std::pair{"NCCL 2.28.9 from /usr/lib/libnccl.so.2", "NCCL 2.28.9"},
                                          {"Gloo 0.5.0 over TCP at 10.0.0.1", "Gloo 0.5.0 over TCP"},
                                          {"one at 10.0.0.1 from /usr/lib/one.so", "one"},
                                          {"one 1.0", "one 1.0"}}) {
    collectives.version_ = version;
    CHECK(fact(describe_process(configuration{}, api, collectives, device_id{0}), "version of the backend") ==
          compared);
  }
}

TEST_CASE("a process compares NCCL's settings if NCCL moves its data", "[processes]") {
  mock_driver api{{.device_count = 1}};
  naming_backend collectives;
  CHECK_FALSE(fact(describe_process(configuration{}, api, collectives, device_id{0}), "nccl.config"));
  collectives.name_ = "nccl";
  const join_request asked = describe_process(configuration{}, api, collectives, device_id{0});
  CHECK(fact(asked, "backend") == "nccl");
  CHECK(fact(asked, "nccl.config"));
  CHECK_FALSE(fact(asked, "NCCL_DEBUG"));
  CHECK_FALSE(fact(asked, "log_level"));
  CHECK_FALSE(fact(asked, "mock_devices"));
}

TEST_CASE("a process joins, lives, and passes on what the controller and its world say", "[processes]") {
  scripted_controller control;
  joining_process one{control};
  one.settings.ordering = ordering::caller; // which needs no gate
  one.make();
  CHECK(one.member->awaited() == "the controller at " + control.address() + " has not answered");
  one.member.reset();
  const join_request asked = one.join(control);
  CHECK(asked.who.name == "five");
  CHECK(asked.token == scripted_controller::token);
  CHECK_FALSE(asked.nonce);
  CHECK(one.member->awaited() == "the controller at " + control.address() +
                                     ", which this process has joined, waits for other processes: start them");
  for (int i = 0; i < 2; ++i) CHECK(control.next_of<heartbeat>());
  CHECK(control.said_in() == scripted_controller::session);

  control.say(
      formation_directive{.of = epoch{3}, .self = rank{1}, .world_size = 2, .id = marked_id(), .hosts = {"a", "b"}});
  const auto order = one.await<formation_directive>();
  CHECK(order.of == epoch{3});
  CHECK(order.self == rank{1});
  const auto nodes = one.nodes->find(marked_id(), 2);
  REQUIRE(nodes);
  CHECK(nodes->node_count() == 2);
  one.member->session()->tell(formed_report{epoch{3}});
  const auto formed = control.next_of<formed_report>();
  REQUIRE(formed);
  CHECK(formed->of == epoch{3});
}

TEST_CASE("a process that composes nothing over nodes, or is not told of hosts, notes no nodes", "[processes]") {
  scripted_controller control;
  joining_process one{control};
  const bool has_directory = GENERATE(true, false);
  const auto directory = one.nodes;
  if (!has_directory) one.nodes = nullptr;
  static_cast<void>(one.join(control));
  formation_directive directive{.of = epoch{3}, .self = rank{0}, .id = marked_id()};
  if (!has_directory) directive.hosts = {"a"};
  control.say(failure_directive{epoch{2}, {.code = errc::communicator_failed, .text = "another directive"}});
  control.say(directive);
  CHECK(one.await<formation_directive>().of == epoch{3});
  CHECK(one.await<failure_directive>().why.text == "another directive");
  CHECK_FALSE(directory->find(marked_id(), 1));
  CHECK_FALSE(directory->find(marked_id(), 0));
}

TEST_CASE("a process makes the id of an epoch, or says why it cannot", "[processes]") {
  const heard_log log{"warn"};
  scripted_controller control;
  joining_process one{control};
  static_cast<void>(one.join(control));
  control.say(id_wanted{epoch{4}});
  const auto offer = control.next_of<id_offer>();
  REQUIRE(offer);
  CHECK(offer->of == epoch{4});
  CHECK(offer->id.bytes == marked_id().bytes);

  one.collectives->is_broken = true;
  control.say(id_wanted{epoch{5}});
  const auto failed = control.next_of<failed_report>();
  REQUIRE(failed);
  CHECK(failed->of == epoch{5});
  CHECK(failed->why.code == errc::missing);
  CHECK(failed->why.text == "no unique id could be created for an epoch: there is no network");
  CHECK(log.await("no unique id could be created for an epoch: there is no network"));
  CHECK(log.count("no unique id") == 1);
}

TEST_CASE("a world whose controller ends the connection is told so, in words that name the connection", "[processes]") {
  scripted_controller control;
  joining_process one{control};
  static_cast<void>(one.join(control));
  control.close();
  const auto why = one.await<fence_notice>().why;
  CHECK(why.code == errc::communicator_failed);
  CHECK_THAT(why.text, StartsWith("the controller at " + control.address()));
  CHECK_THAT(why.text, ContainsSubstring("ended the connection"));
  CHECK(one.await<failure_directive>().why.effect == effect::unknown_outcome);
}

TEST_CASE("a world whose connection to its controller breaks is told so", "[processes]") {
  scripted_controller control;
  joining_process one{control};
  static_cast<void>(one.join(control));
  control.cut();
  const auto why = one.await<fence_notice>().why;
  CHECK(why.code == errc::communicator_failed);
  CHECK_THAT(why.text, StartsWith("the connection to the controller has ended: "));
}

TEST_CASE("a process that is refused or finds no controller ends its world, with the reason", "[processes][TIM-1]") {
  scripted_controller control;
  joining_process one{control};
  SECTION("refused") {
    one.settings.control.assignment.token = "another secret than theirs";
    one.begin();
    const auto why = one.await<fence_notice>().why;
    CHECK(why.code == errc::invalid_argument); // another attempt would fail too
    CHECK_THAT(why.text, ContainsSubstring("token"));
    CHECK(comes_true([&] { return one.member->awaited() == why.text; }));
  }
  SECTION("not found") {
    control.close();
    one.settings.control.patience = 100ms;
    one.begin();
    const auto why = one.await<fence_notice>().why;
    CHECK(why.code == errc::missing);
    CHECK_THAT(why.text, ContainsSubstring("no process listens there"));
    CHECK(comes_true([&] { return one.member->awaited() == why.text; }));
  }
  CHECK_FALSE(one.got<failure_directive>()); // it was no member
}

TEST_CASE("a process that may join again does so when its controller is back", "[processes]") {
  scripted_controller control;
  joining_process one{control};
  one.settings.control.orphaned = orphan_policy::rejoin;
  static_cast<void>(one.join(control));
  control.close();
  CHECK(one.await<failure_directive>().why.code == errc::communicator_failed);
  CHECK(comes_true([&] { return one.member->awaited().find("no process listens there") != std::string::npos; }));
  control.open();
  static_cast<void>(one.join(control));
  CHECK_FALSE(one.got<fence_notice>());
}

TEST_CASE("a process that leaves waits until its controller knows, and then ends its connection", "[processes]") {
  scripted_controller control;
  joining_process one{control};
  static_cast<void>(one.join(control));
  const auto link = one.member->session();
  link->tell(leave_notice{});
  CHECK(control.next_of<leave_notice>());
  auto ended = std::async(std::launch::async, [&] { one.member->end(); });
  CHECK(ended.wait_for(100ms) == std::future_status::timeout);
  CHECK(one.has_world());
  control.say(stop_directive{});
  REQUIRE(ended.wait_for(4s) == std::future_status::ready); // before the limit for the answer
  CHECK(control.loses(1));
  CHECK(comes_true([&] { return !one.has_world(); })); // it keeps no actor alive
}

TEST_CASE("messages of a process after the end of its membership reach nobody", "[processes]") {
  scripted_controller control;
  joining_process one{control};
  static_cast<void>(one.join(control));
  const auto link = one.member->session();
  one.member.reset();
  CHECK(control.loses(1));
  CHECK(comes_true([&] { return !one.has_world(); }));
  CHECK_NOTHROW(link->tell(formed_report{epoch{3}}));
  CHECK_NOTHROW(link->disconnected({.code = errc::missing, .text = "it has ended"}));
}

TEST_CASE("a process claims the GPU that it uses for its controller's world, and a simulated one for none",
          "[processes][claims]") {
  scripted_controller control, other;
  joining_process one{control}, another{other};
  one.make();
  another.make();
  one.member.reset();
  another.member.reset();

  const std::string gpu = "of joining_process_test " + std::to_string(::getpid());
  one.who.who.gpu = another.who.who.gpu = gpu;
  one.make();
  const error why = error_of([&] { another.make(); });
  CHECK(why.code == errc::device_occupied);
  CHECK_THAT(why.text, ContainsSubstring("process five (pid 12 on here) of the controller at " + control.address()));
  one.member.reset();
  CHECK_NOTHROW(another.make());
  another.member.reset();
  std::error_code none;
  std::string file = "gpu-" + gpu;
  for (char& each : file)
    if (std::isalnum(static_cast<unsigned char>(each)) == 0) each = '-';
  std::filesystem::remove(device_claims_folder() / file, none);
}

TEST_CASE("a process whose requests are ordered for it looks for the gate of its host", "[processes]") {
  scripted_controller control;
  order_gate gate{control.port()};
  joining_process one{control};
  const bool is_agreed = GENERATE(true, false);
  one.settings.ordering = is_agreed ? ordering::agreed : ordering::caller;
  const join_request asked = one.join(control);
  CHECK(asked.nonce.has_value() == is_agreed);
  if (!asked.nonce) return;
  CHECK(comes_true([&] { return gate.claim(*asked.nonce, steady_now()).has_value(); }));
}

TEST_CASE("the log says which way the requests of an epoch go", "[processes][order]") {
  const heard_log log{"info"};
  ordering_rig rig{2};
  scripted_controller control;
  order_gate gate{control.port()};
  joining_process one{control};
  one.time = rig.time;
  one.begin();
  const auto asked = control.next_of<join_request>();
  REQUIRE(asked);
  REQUIRE(asked->nonce);
  std::optional<gate_connection> at_gate;
  REQUIRE(comes_true([&] { return (at_gate = gate.claim(*asked->nonce, steady_now())).has_value(); }));
  control.welcome();
  formation_directive directive{
      .of = rig_epoch, .self = rank{0}, .world_size = 2, .hosts = {"a", "a"}, .has_rings = true};
  const bool is_offered = GENERATE(true, false);
  std::optional<ring_connection> rings;
  if (is_offered)
    rings = ring_connection::offer(
        at_gate->socket, session_in(*asked->nonce, rig_epoch), rank{0}, {},
        std::make_shared<shared_doorbell>(shared_doorbell::create({.purpose = ring_purpose::service_bell})));
  control.say(directive);
  static_cast<void>(one.await<formation_directive>());
  const auto opened = one.member->session()->open_order(rig.rig.ranks[0]);
  CHECK(one.member->session()->has_rings() == is_offered);
  CHECK(log.await("requests of epoch 7 are ordered through " +
                  std::string{is_offered ? "shared memory" : "the control connection"}));
  CHECK(log.count("requests of epoch 7") == 1);
  CHECK(log.count("requests go through the control connection, not through shared memory: ") == (is_offered ? 0U : 1U));
  opened->close({.code = errc::stopping});
  const auto link = one.member->session();
  CHECK(has_left(*at_gate) != is_offered); // after a failed offer it looks for another gate
  one.member->end();
  CHECK_FALSE(link->has_rings());
  CHECK(has_left(*at_gate));
}

TEST_CASE("a process that its launcher replaces ends soon after it was removed, and says so", "[processes]") {
#if defined(__SANITIZE_THREAD__)
  SKIP("ThreadSanitizer does not support new threads in a child that was forked from several threads");
#endif
  const bool is_watched = GENERATE(true, false);
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  const scratch_folder folder;
  const std::string said = (folder.path() / "said").string();
  const auto began = std::chrono::steady_clock::now();
  forked_process child{[&] {
    if (std::freopen(said.c_str(), "w", stderr) == nullptr) return 1;
    spdlog::drop("troupe");
    configuration settings;
    settings.backend = backend_choice::mock;
    settings.profile = latency_profile::frugal;
    settings.mock.devices = 1;
    settings.log_level = "warn";
    settings.control = {.address = address, .patience = 50ms};
    settings.control.assignment = {.token = scripted_controller::token, .place = 0, .is_watched = is_watched};
    try {
      static_cast<void>(runtime{settings}.form_world());
      return 2;
    } catch (const exception&) {
    }
    flush_log(10s);
    if (is_watched) std::this_thread::sleep_for(25s); // it does not come to that
    return 3;
  }};
  const int status = child.status();
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == (is_watched ? 75 : 3)); // EX_TEMPFAIL
  std::ifstream file{said};
  const std::string text{std::istreambuf_iterator<char>{file}, {}};
  const std::string notice = "this process ends in 500 ms, so that another can take its place: ";
  if (is_watched) {
    CHECK_THAT(text, ContainsSubstring(notice));
    CHECK_THAT(text, ContainsSubstring("no process listens there"));
    CHECK(std::chrono::steady_clock::now() - began >= 500ms); // so that clients hear of it
  } else {
    CHECK_THAT(text, !ContainsSubstring(notice));
  }
}

TEST_CASE("warnings about certificates are logged, and nothing else that the transport reports", "[processes][SEC-1]") {
  const heard_log log{"warn"};
  const certificate_rig certificates;
  const auto made = certificates.credentials(certificate_use::host, valid_for(24h));
  control_settings settings{.address = "10.0.0.1:7000",
                            .ca = made.ca_file.string(),
                            .certificate = made.certificate_file.string(),
                            .key = made.key_file.string()};
  CHECK_NOTHROW(make_control_dialer(settings, scripted_controller::token)); // also of another machine
  CHECK(log.await("the certificate file '" + settings.certificate + "' expires on "));
  CHECK_FALSE(error_of([&] { static_cast<void>(make_control_dialer(settings, "")); }).text.empty());

  settings = {.address = "127.0.0.1:" + std::to_string(free_port())};
  const auto dialer = make_control_dialer(settings, scripted_controller::token);
  std::promise<std::string> lost;
  dialer->connect({.on_lost = [&](const transport_fault& why) { lost.set_value(why.text); }});
  CHECK_THAT(lost.get_future().get(), ContainsSubstring("no process listens there"));
  dialer->stop();
  CHECK(log.count("no process listens there") == 0);
}

} // namespace troupe::tests::joining_process_test
