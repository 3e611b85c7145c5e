#include <troupe/collectives/backend/faults/fault_injector.hpp>
#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_backend.hpp>
#include <troupe/testing/simulation/simulated_world.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <variant>

namespace troupe::simulation {

namespace {

using namespace std::chrono_literals;

/// No thread spins, because virtual time would not advance meanwhile.
constexpr wait_profile patience{.spin = 0ns, .nap = 500us};

} // namespace

simulated_terms terms_of(const scenario& of) {
  return {.ranks = of.ranks,
          .strategy = of.strategy,
          .limits = {.launch = of.limits.launch, .hang = of.limits.hang},
          .deadlines = {.form = of.limits.form,
                        .operation = 400ms,
                        .drain = of.limits.drain,
                        .release = of.limits.release,
                        .abort = of.limits.abort},
          .recovery = of.recovery,
          .fused = {.mode = of.fused},
          .pending = of.processes && of.processes->pending_operations > 0
                         ? pending_limits{.operations = of.processes->pending_operations}
                         : pending_limits{},
          .one_shot_bytes = of.one_shot_bytes,
          .seed = of.seed};
}

namespace {

std::vector<std::shared_ptr<device>> open_all(const std::shared_ptr<mock_driver>& api) {
  std::vector<std::shared_ptr<device>> all;
  for (int i = 0; i < api->device_count(); ++i) all.push_back(device::open(api, device_id{i}));
  return all;
}

} // namespace

simulated_machine::simulated_machine(const simulated_terms& of)
  : simulated_machine{
        of,
        std::make_shared<mock_driver>(mock_options{.device_count = of.ranks, .memory_bytes = of.memory_bytes}),
        {}} {}

simulated_machine::simulated_machine(const simulated_terms& of, std::shared_ptr<mock_driver> driver,
                                     std::vector<std::shared_ptr<device>> shared)
  : api{std::move(driver)},
    devices{shared.empty() ? open_all(api) : std::move(shared)},
    helpers{std::make_shared<deadline_pool>(1s)} {
  const auto time = std::make_shared<monotonic_clock>();
  services = {.time = time,
              .poller = std::make_shared<poller>(time, patience, std::function<void()>{}, counted_of_pause(of.limits)),
              .slots = std::make_shared<slot_table>(devices.front(), 64 * devices.size()),
              .strategy = of.strategy,
              .limits = of.limits};
  above = std::make_shared<arbiter>(services.time, services.poller, of.sequencing, of.fused);
  services.poller->attach(above);
  services.poller->start();
  for (const auto& one : devices)
    launchers.push_back(std::make_shared<launcher>(one, patience, services.limits.check_interval));
}

simulated_machine::~simulated_machine() {
  launchers.clear();
  services.poller->stop();
  helpers->stop();
}

class simulated_world::mailbox final : public world_mailbox, public std::enable_shared_from_this<mailbox> {
public:
  using turn = std::function<void(world_executor&)>;

  explicit mailbox(std::optional<std::uint64_t> seed) {
    if (seed) chance_.emplace(mix(*seed, 3));
  }

  void post(world_note what) override {
    put([what = std::move(what)](world_executor& to) { to.on(what); });
  }
  void post_after(nanoseconds delay, world_note what) override {
    worker{[self = shared_from_this(), delay, what = std::move(what)] {
      fibers::current()->sleep(delay);
      self->post(what);
    }}.detach();
  }
  void put(turn next) {
    const std::lock_guard lock{mutex_};
    if (closed_) return;
    waiting_.push_back(std::move(next));
    changed_.notify_all();
  }
  /// Accepts no more messages, and handles none of those that wait.
  void end() {
    const std::lock_guard lock{mutex_};
    closed_ = true;
    changed_.notify_all();
  }
  /// Does so, and drops them.
  void close() {
    decltype(waiting_) dropped; // destroyed without the lock: requests are answered as abandoned
    const std::lock_guard lock{mutex_};
    closed_ = true;
    dropped.swap(waiting_);
    changed_.notify_all();
  }

  void serve(world_executor& to) {
    for (;;) {
      turn next;
      {
        std::unique_lock lock{mutex_};
        changed_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
        if (closed_) break;
        next = std::move(waiting_.front());
        waiting_.pop_front();
      }
      if (chance_ && chance_->one_in(3)) fibers::current()->sleep(chance_->within(chance_->one_in(10) ? 10ms : 200us));
      const fibers::no_wait_scope in_turn; // a turn must not wait (BLK-1)
      turn_began_ = virtual_now();
      next(to);
      turn_began_.reset();
    }
    close();
  }

  [[nodiscard]] std::optional<time_point> turn_began() const noexcept { return turn_began_; }
  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }

private:
  std::optional<prng> chance_;
  std::mutex mutex_;
  condition changed_;
  std::deque<turn> waiting_;
  std::optional<time_point> turn_began_; ///< When the current turn began.
  bool closed_ = false;
};

world_plan make_plan(const simulated_terms& of, const simulated_machine& on, std::shared_ptr<world_status> status,
                     std::shared_ptr<fault_injector> faults) {
  auto sound = make_mock_backend();
  if (of.one_shot_bytes > 0) sound = with_one_shot_kernels(std::move(sound), {.part_bytes = of.one_shot_bytes});
  const auto observer = observer_of(faults);
  world_plan plan{.world_size = of.ranks,
                  .backend = make_faulty_backend(sound, std::move(faults)),
                  .helpers = on.helpers,
                  .status = std::move(status),
                  .services = on.services,
                  .above = on.above,
                  .ordering = of.ordering,
                  .deadlines = of.deadlines,
                  .recovery = of.recovery,
                  .seed = of.seed.value_or(0),
                  .pending = std::make_shared<admission_quota>(of.pending, on.services.poller)};
  plan.services.observer = observer;
  plan.services.able = std::make_shared<const capabilities>(sound->examine(on.devices));
  for (int i = 0; i < of.ranks; ++i) {
    const auto place = static_cast<std::size_t>(i);
    plan.locals.push_back({rank{i}, on.devices[place], on.launchers[place]});
  }
  return plan;
}

simulated_world::simulated_world(const simulated_terms& of, simulated_machine& on,
                                 std::shared_ptr<fault_injector> faults, trace& log)
  : simulated_world{make_plan(of, on, std::make_shared<world_status>(), std::move(faults)), of.seed, log} {}

simulated_world::simulated_world(world_plan plan, std::optional<std::uint64_t> seed, trace& log, std::string name)
  : log_{log}, name_{std::move(name)}, status_{plan.status}, mail_{std::make_shared<mailbox>(seed)}, seed_{seed} {
  for (const local_rank& one : plan.locals) states_.push_back(std::make_shared<collective_state>(one.self));
  listen([this](const world_event& event) {
    if (log_.is_kept()) log_.note(name_ + " " + describe(event));
  });
  world_shell& shell = *this;
  executor_ = std::make_unique<world_executor>(std::move(plan), states_, mail_, shell);
  sub_worlds_ = std::make_unique<sub_worlds>(*executor_, mail_,
                                             [this](std::uint64_t number, world_plan made, const sub_world& into) {
                                               return start_sub_world(number, std::move(made), into);
                                             });
  turns_ = worker{[this] {
    executor_->begin();
    mail_->serve(*executor_);
  }};
}

namespace {

/// A sub-world of a simulated world.
class simulated_sub_world final : public sub_world_access {
public:
  explicit simulated_sub_world(std::shared_ptr<simulated_world> to) : to_{std::move(to)} {}
  void tell(controller_directive what) override { to_->tell(std::move(what)); }
  void stop() override { to_->stop(); }

private:
  std::shared_ptr<simulated_world> to_;
};

} // namespace

std::unique_ptr<sub_world_access> simulated_world::start_sub_world(std::uint64_t name, world_plan plan,
                                                                   const sub_world& made) {
  std::optional<std::uint64_t> seed;
  if (seed_) seed = mix(*seed_, 31, name);
  plan.status->listen([this, mail = mail_, name](const world_event& event) {
    mail->put([this, name, event](world_executor&) { sub_worlds_->heard({name, event}); });
  });
  children_.push_back(
      std::make_shared<simulated_world>(std::move(plan), seed, log_, name_ + " sub-world '" + made.group.name + "'"));
  return std::make_unique<simulated_sub_world>(children_.back());
}

void simulated_world::split_off(split_request asked, std::shared_ptr<split_answer> reply) {
  mail_->put([this, asked = std::move(asked), reply = std::move(reply)](world_executor&) {
    sub_worlds_->perform(asked, reply);
  });
}

std::shared_ptr<simulated_world> simulated_world::find_sub_world(const world_status& status) const {
  const auto found = std::ranges::find_if(children_, [&](const auto& one) { return one->status_.get() == &status; });
  return found == children_.end() ? nullptr : *found;
}

void simulated_world::leave() {
  sub_worlds_->stop_all(); // they live on if the controller stops the world
  over_ = true;
  mail_->end(); // as that of an actor that has quit
}

bool simulated_world::is_over() const {
  return over_ && std::ranges::all_of(children_, [](const auto& one) { return one->is_over(); });
}

simulated_world::~simulated_world() {
  mail_->close();
  // If a turn waits for an event that only a later turn could cause, kill the world, so that the run ends.
  if (held_up()) executor_->kill({.code = errc::abandoned, .text = "the world's turns are blocked"});
  if (turns_.joinable()) turns_.join();
  sub_worlds_ = nullptr;
  children_.clear();
  executor_->let_go();
}

void simulated_world::tell(controller_directive what) {
  mail_->post(std::move(what));
}

void simulated_world::kill(const error& why) {
  mail_->close();
  turns_.join(); // before the sub-worlds are killed: the turn in progress may start one
  for (const auto& one : children_)
    if (!one->is_over()) one->kill(why);
  if (!over_) executor_->kill(why);
}

void simulated_world::ask_world(world_request asked, reply_promise reply) {
  const fibers::no_wait_scope no_wait;
  executor_->gate().accept(std::move(asked), std::move(reply));
}

void simulated_world::ask_rank(rank self, std::size_t lane, rank_request asked, reply_promise reply) {
  const fibers::no_wait_scope no_wait;
  rank_state(self).accept(std::move(asked), std::move(reply), client_of(self, lane));
}

void simulated_world::register_memory(const registration_request& asked, std::shared_ptr<registration_promise> reply) {
  mail_->put([asked, reply = std::move(reply)](world_executor& to) { to.perform(asked, reply); });
}

void simulated_world::capture(rank, capture_request asked, std::shared_ptr<capture_answer> reply) {
  mail_->put([asked = std::move(asked), reply = std::move(reply)](world_executor& to) { to.perform(asked, reply); });
}

void simulated_world::ask_credit(rank, const credit_request& asked, std::shared_ptr<credit_answer> reply) {
  mail_->put([asked, reply = std::move(reply)](world_executor& to) { to.perform(asked, reply); });
}

std::optional<std::size_t> simulated_world::held_up() const {
  constexpr nanoseconds any_turn = 10ms; // a turn takes no virtual time
  if (!mail_->turn_began() || virtual_now() - *mail_->turn_began() < any_turn) return std::nullopt;
  return mail_->waiting();
}

void simulated_world::withdraw(rank self, std::size_t lane) {
  const fibers::no_wait_scope no_wait;
  rank_state(self).forget(client_of(self, lane), {.code = errc::abandoned, .text = "the client has ended"});
}

void simulated_world::stop() {
  mail_->put([this](world_executor&) { sub_worlds_->stop(); });
}

void simulated_world::end_rank(rank self) {
  rank_state(self).end("injected by the simulation");
  const auto place = static_cast<std::size_t>(self.value());
  mail_->put([place](world_executor& to) { to.on_rank_ended(place, "injected by the simulation"); });
}

std::shared_ptr<collective_state> simulated_world::replace_rank(std::size_t place, rank self) {
  log_.note("another actor for the rank that was " + std::to_string(place));
  states_[place] = std::make_shared<collective_state>(self);
  return states_[place];
}

} // namespace troupe::simulation
