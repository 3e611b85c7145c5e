#include <troupe/testing/simulation/simulated_controllers.hpp>

#include <troupe/device/error.hpp>
#include <troupe/testing/simulation/process_groups.hpp>

#include <chrono>
#include <utility>

namespace troupe::simulation {

namespace {

using namespace std::chrono_literals;

/// The time between looks whether the run has ended, and whether there is a decision to write.
constexpr nanoseconds look_for_end = 20ms;
constexpr nanoseconds look_for_decisions = 1ms;
/// The length of a claim and the interval of campaigns, in the proportions of production: a takeover fits into a lease.
constexpr nanoseconds claim_length = 45ms;
constexpr nanoseconds campaign_interval = 10ms;
/// Delay before a store that did not answer is asked again, and the time after which it counts as not answering.
constexpr nanoseconds store_retry = 2ms;
constexpr nanoseconds store_timeout = 8ms;
constexpr nanoseconds longest_call = 2ms;

} // namespace

/// One controller's connection to the store. A call takes time in each direction, in which the store can become
/// unreachable, so that a call that throws may have been carried out.
class simulated_controllers::store_connection final : public controller_store {
  /// Makes \p call, and returns its result.
  template <class Call>
  auto ask(const Call& call) {
    pass();
    auto result = call();
    pass();
    return result;
  }

public:
  store_connection(simulated_controllers& above, const node& of, prng chance)
    : above_{above}, of_{of}, chance_{chance}, store_{above.store_} {}

  [[nodiscard]] std::optional<store_claim> campaign(const std::string& leader, nanoseconds length) override {
    return ask([&] {
      auto claim = store_.campaign(leader, length);
      if (claim) above_.note_election(of_);
      return claim;
    });
  }
  [[nodiscard]] bool renew(const store_claim& claim) override {
    return ask([&] { return store_.renew(claim); });
  }
  [[nodiscard]] bool decide(const store_claim& claim, const std::string& record) override {
    return ask([&] { return store_.decide(claim, record); });
  }
  [[nodiscard]] store_view observe() override {
    return ask([&] { return store_.observe(); });
  }
  void resign(const store_claim& claim) override {
    ask([&] {
      store_.resign(claim);
      return true;
    });
  }
  [[nodiscard]] std::string name() const override { return "the simulated store"; }

private:
  /// Lets a message pass. Its sender or receiver may be stopped meanwhile.
  void pass() {
    fibers::current()->sleep(chance_.within(longest_call));
    above_.await_running(of_);
    if (virtual_now() >= of_.cut_off_until && virtual_now() >= above_.store_cut_until_) return;
    fibers::current()->sleep(store_timeout);
    above_.await_running(of_);
    throw exception{errc::missing, "the store does not answer"};
  }

  simulated_controllers& above_;
  const node& of_;
  prng chance_;
  memory_store store_;
};

simulated_controllers::simulated_controllers(const scenario& of, trace& log, callbacks with)
  : of_{of}, log_{log}, with_{std::move(with)}, chance_{mix(of.seed, 44)}, nodes_(of.processes->has_standby ? 2 : 1) {}

simulated_controllers::~simulated_controllers() = default;

void simulated_controllers::begin(std::vector<std::shared_ptr<machine_clock>> clocks) {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    nodes_[i].address = i;
    nodes_[i].clock = clocks[i];
    fibers::current()->set_clock(group_of(nodes_[i]), clocks[i]);
  }
  if (nodes_.size() == 1) return restart();
  store_clock_ = clocks.back();
  store_ = std::make_shared<memory_store_state>(
      [clock = store_clock_] { return boot_time{clock->since_boot(virtual_now()).time_since_epoch()}; });
  for (node& one : nodes_) start(one);
}

fibers::group simulated_controllers::group_of(const node& one) const noexcept {
  return simulation::group_of(process_kind::controller, one.address);
}

control_server* simulated_controllers::present() const noexcept {
  return find(made_);
}

control_server* simulated_controllers::find(number which) const noexcept {
  for (const node& one : nodes_)
    if (one.made == which) return one.server.get();
  return nullptr;
}

simulated_controllers::node& simulated_controllers::struck() {
  return *std::ranges::max_element(nodes_, {}, [](const node& one) { return one.made; });
}

void simulated_controllers::await_running(const node& one) const {
  while (!with_.is_over() && (one.server || one.is_alive) && virtual_now() < one.stopped_until)
    fibers::current()->sleep(std::min<nanoseconds>(one.stopped_until - virtual_now(), look_for_end));
}

void simulated_controllers::restart() {
  node& only = nodes_.front();
  const fibers::group_scope with_its_clock{group_of(only)};
  only.made = ++made_;
  only.server = with_.make(only.made, {});
  with_.begun(*only.server);
}

bool simulated_controllers::kill(nanoseconds pause) {
  node& one = struck();
  if (nodes_.size() == 1 ? !one.server : !one.is_alive) return false;
  log_.note("the controller is killed");
  one.is_alive = false;
  one.stopped_until = {};
  end_server(one, true);
  if (nodes_.size() > 1) with_.later(pause, [this, &one] { start(one); });
  return true;
}

void simulated_controllers::stop(nanoseconds span, bool stops_clock) {
  node& one = struck();
  one.stopped_until = std::max(one.stopped_until, virtual_now() + span);
  if (stops_clock) one.clock->suspend(virtual_now(), span);
}

void simulated_controllers::cut_store(nanoseconds span, bool for_all) {
  time_point& until = for_all ? store_cut_until_ : struck().cut_off_until;
  until = std::max(until, virtual_now() + span);
}

void simulated_controllers::end_server(node& one, bool is_killed) {
  const std::unique_ptr<control_server> gone = std::exchange(one.server, nullptr);
  one.decision.reset();
  if (gone) with_.gone(one.made, is_killed);
}

void simulated_controllers::note_election(const node& of) {
  if (std::exchange(elected_, of.address) != of.address) elected_at_ = virtual_now();
  for (const node& other : nodes_) {
    if (other.address == of.address || !other.server || !other.claim) continue;
    const boot_time now{other.clock->since_boot(virtual_now()).time_since_epoch()};
    if (!other.claim->is_lost(now))
      with_.wrong("controller " + std::to_string(of.address) + " is elected while the claim of controller " +
                  std::to_string(other.address) + " is valid by its own clock (MEM-1)");
  }
}

time_point simulated_controllers::replaced_at(number which) const noexcept {
  const auto found = std::ranges::find(nodes_, which, &node::made);
  return found != nodes_.end() && found->address == elected_ ? time_point::max() : elected_at_;
}

void simulated_controllers::start(node& one) {
  log_.note("controller " + std::to_string(one.address) + " starts");
  one.is_alive = true;
  const fibers::group_scope in_group{group_of(one)};
  ++elections_;
  worker{[this, &one, life = ++one.life] {
    run_elections(one, life);
    --elections_;
  }}.detach();
}

void simulated_controllers::run_elections(node& one, std::uint64_t life) {
  const auto store = std::make_shared<store_connection>(*this, one, prng{mix(of_.seed, 45, 1000 * one.address + life)});
  std::uint64_t names = 0;
  const auto new_name = [&] {
    return std::to_string(one.address) + " " + std::to_string(life) + " " + std::to_string(++names);
  };
  std::string name = new_name();
  for (; !with_.is_over() && lives(one, life); fibers::current()->sleep(campaign_interval)) {
    try {
      const store_view seen = store->observe();
      error why;
      const auto record = seen.record ? decode_control_record(*seen.record, why) : std::nullopt;
      if (why) throw exception{why};
      if (record && record->is_over) { // that controller may have been lost before it had told all processes
        has_ended_ = true;
        return log_.note("controller " + std::to_string(one.address) + " ends with its world");
      }
      if (!lives(one, life) || (seen.leader && *seen.leader != name)) continue;
      const std::shared_ptr<leader_claim> claim = leader_claim::campaign(store, name, claim_length, boot_clock::now());
      if (!claim || !lives(one, life)) continue;
      lead(one, life, claim);
      name = new_name();
    } catch (const exception& failure) {
      if (failure.why().code != errc::missing) throw;
    }
  }
}

void simulated_controllers::lead(node& one, std::uint64_t life, const std::shared_ptr<leader_claim>& claim) {
  error why;
  std::optional<control_record> found;
  if (claim->record()) found = decode_control_record(*claim->record(), why);
  if (why) throw exception{why};
  if (found && found->is_over) return claim->resign();
  log_.note("controller " + std::to_string(one.address) + " is elected");
  one.decision.reset();
  one.claim = claim;
  one.made = ++made_;
  one.server = with_.make(one.made, {.ended = [this](const error&) { has_ended_ = true; },
                                     .decide = [&one](const control_record& what) { one.decision = encode(what); },
                                     .claimed_until = [claim] { return claim->valid_until(); }});
  one.server->take_over(found);
  with_.begun(*one.server);
  boot_time next = boot_clock::now() + claim->renewal_period();
  bool has_failed = false;
  while (!with_.is_over() && lives(one, life) && !claim->is_lost(boot_clock::now())) {
    fibers::current()->sleep(has_failed ? store_retry : look_for_decisions);
    await_running(one);
    if (!lives(one, life)) return;
    const auto record = one.decision;
    has_failed = false;
    if (const boot_time now = boot_clock::now(); now >= next) {
      claim->renew(now);
      has_failed = claim->failure().code != errc::none;
      if (!has_failed) next = now + claim->renewal_period();
    }
    if (!record || !lives(one, life) || claim->is_lost(boot_clock::now())) continue;
    if (!claim->decide(*record)) {
      has_failed = true;
      continue;
    }
    if (!lives(one, life)) return;
    one.decision.reset();
    call(one.made, [](control_server& to) {
      const fibers::no_wait_scope in_turn;
      to.decided();
    });
  }
  if (with_.is_over() || !lives(one, life)) return;
  log_.note("controller " + std::to_string(one.address) + " is not elected any more");
  end_server(one, false);
  claim->resign();
}

} // namespace troupe::simulation
