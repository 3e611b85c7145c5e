/// A world's executor without actors: the test passes its notes on, and decides what its communicators do.
#pragma once

#include "support/comes_true.hpp"
#include "support/outcomes.hpp"

#include <troupe/actors/world/world_executor.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::tests {

using namespace std::chrono_literals;

/// Records the calls of a scene's communicators, "init 0", and calls the test at each. Threads: any.
class peers_log {
public:
  using hook = std::function<void(const std::string& what, rank self)>;

  void note(const std::string& what, rank self) {
    hook call;
    {
      const std::lock_guard lock{mutex_};
      calls_.push_back(what + " " + to_string(self));
      call = hook_;
    }
    if (call) call(what, self);
  }
  void on_call(hook call) {
    const std::lock_guard lock{mutex_};
    hook_ = std::move(call);
  }
  /// Lets the calls of \p what throw \p why at rank \p self.
  void fail(std::string what, rank self, error why) {
    on_call([what = std::move(what), self, why = std::move(why)](const std::string& called, rank at) {
      if (called == what && at == self) throw exception{why};
    });
  }
  [[nodiscard]] std::vector<std::string> all() const {
    const std::lock_guard lock{mutex_};
    return calls_;
  }
  /// Returns the number of calls that begin with \p what.
  [[nodiscard]] std::size_t count(std::string_view what) const {
    std::size_t found = 0;
    for (const std::string& one : all()) found += one.starts_with(what) ? 1 : 0;
    return found;
  }

private:
  mutable std::mutex mutex_;
  std::vector<std::string> calls_;
  hook hook_;
};

/// A communicator that records its calls. What is launched is done at once.
class logging_peers final : public communicator {
public:
  logging_peers(rank self, int world_size, std::shared_ptr<device> where, std::shared_ptr<peers_log> log)
    : communicator{self, world_size, std::move(where)}, log_{std::move(log)} {}

  void init() override { log_->note("init", self()); }
  bool do_launch_together(std::span<const operation* const> all, stream_ref, completion_word) override {
    for (const operation* one : all) log_->note("launch " + describe(*one), self());
    return false;
  }
  void check() override {}
  void abort() override { log_->note("abort", self()); }
  void destroy() override { log_->note("destroy", self()); }
  [[nodiscard]] std::shared_ptr<communicator> shrink(const shrink_spec& as) override {
    log_->note("shrink", self());
    return std::make_shared<logging_peers>(as.self, as.world_size, where(), log_);
  }
  [[nodiscard]] std::shared_ptr<communicator> revoke_and_split() override {
    log_->note("revoke", self());
    return std::make_shared<logging_peers>(self(), world_size(), where(), log_);
  }
  [[nodiscard]] std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes) override {
    log_->note("allocate", self());
    return make_pooled_region(where(), size_bytes);
  }
  void register_region(registered_region& region) override {
    log_->note("register " + std::to_string(region.size_bytes()) + " of", self());
  }
  std::size_t suspend() override {
    log_->note("suspend", self());
    return 100 + static_cast<std::size_t>(self().value());
  }
  void resume() override { log_->note("resume", self()); }

private:
  std::shared_ptr<peers_log> log_;
};

class logging_backend final : public backend {
public:
  explicit logging_backend(std::shared_ptr<peers_log> log) : log_{std::move(log)} {}

  [[nodiscard]] std::string_view name() const noexcept override { return "logging"; }
  [[nodiscard]] std::string version() const override { return "of a test"; }
  [[nodiscard]] capabilities examine(std::span<const std::shared_ptr<device>>) override { return {}; }
  [[nodiscard]] unique_id make_unique_id() override {
    log_->note("id", rank{});
    return {};
  }
  [[nodiscard]] std::shared_ptr<communicator> create(const unique_id&, rank self, int world_size,
                                                     std::shared_ptr<device> where) override {
    log_->note("create", self);
    return std::make_shared<logging_peers>(self, world_size, std::move(where), log_);
  }

private:
  std::shared_ptr<peers_log> log_;
};

/// Keeps the notes until the test takes them. Delays are recorded, and nothing waits for them. Threads: any.
class kept_mail final : public world_mailbox {
public:
  void post(world_note what) override {
    const std::lock_guard lock{mutex_};
    notes_.push_back(std::move(what));
    changed_.notify_all();
  }
  void post_after(nanoseconds delay, world_note what) override {
    {
      const std::lock_guard lock{mutex_};
      delays_.push_back(delay);
    }
    post(std::move(what));
  }
  /// Returns the next note. If there is none, waits a moment for one.
  [[nodiscard]] std::optional<world_note> take() {
    std::unique_lock lock{mutex_};
    if (!changed_.wait_for(lock, 1ms, [this] { return !notes_.empty(); })) return std::nullopt;
    std::optional<world_note> next{std::move(notes_.front())};
    notes_.pop_front();
    return next;
  }
  [[nodiscard]] std::vector<nanoseconds> delays() const {
    const std::lock_guard lock{mutex_};
    return delays_;
  }

private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<world_note> notes_;
  std::vector<nanoseconds> delays_;
};

/// Records what the world tells its controller.
class heard_channel : public controller_channel {
public:
  void tell(member_report what) override { told.push_back(std::move(what)); }
  void change(const rank_change& asked, std::shared_ptr<rank_change_promise> reply) override {
    changes.emplace_back(asked, std::move(reply));
  }
  void begins(std::shared_ptr<commit_record> commits) override { begun.push_back(std::move(commits)); }
  [[nodiscard]] std::shared_ptr<world_order> open_order(std::shared_ptr<rank_pipeline>,
                                                        std::shared_ptr<exported_memory>) override {
    return nullptr;
  }
  [[nodiscard]] std::shared_ptr<communicator> take_communicator() override { return std::exchange(formed, nullptr); }

  /// Returns the messages of one kind.
  template <class Message>
  [[nodiscard]] std::vector<Message> all() const {
    std::vector<Message> found;
    for (const member_report& one : told)
      if (const auto* message = std::get_if<Message>(&one)) found.push_back(*message);
    return found;
  }

  std::vector<member_report> told;
  std::vector<std::shared_ptr<commit_record>> begun;
  std::vector<std::pair<rank_change, std::shared_ptr<rank_change_promise>>> changes;
  std::shared_ptr<communicator> formed; ///< For the next epoch.
};

struct scene_options {
  int size = 2;
  std::vector<rank> locals{}; ///< Empty: all.
  recovery_terms recovery{.policy = recovery_policy::fail_fast};
  world_deadlines deadlines{};
  pending_limits pending{};
  troupe::ordering ordering = troupe::ordering::agreed;
  std::shared_ptr<controller_channel> channel{};
};

struct executor_scene : private world_shell {
  /// \p prepare may set what the communicators do from the first forming on.
  explicit executor_scene(const scene_options& of = {}, const std::function<void(peers_log&)>& prepare = {}) {
    if (prepare) prepare(*log);
    std::vector<rank> locals = of.locals;
    for (int i = 0; of.locals.empty() && i < of.size; ++i) locals.emplace_back(i);
    api = make_mock_driver({.device_count = static_cast<int>(locals.size())});
    const auto time = std::make_shared<monotonic_clock>();
    const wait_profile patience{.spin = 0s};
    services = {
        .time = time, .poller = std::make_shared<poller>(time, patience), .strategy = completion_strategy::flag};
    above = std::make_shared<arbiter>(time, services.poller);
    services.poller->attach(above);
    services.poller->start();
    for (std::size_t i = 0; i < locals.size(); ++i) {
      devices.push_back(device::open(api, device_id{static_cast<int>(i)}));
      launchers.push_back(std::make_shared<launcher>(devices.back(), patience, 1ms));
      states.push_back(std::make_shared<collective_state>(locals[i]));
    }
    services.slots = std::make_shared<slot_table>(devices.front(), 64);
    pending = std::make_shared<admission_quota>(of.pending, services.poller);
    world_plan plan{.world_size = of.size,
                    .backend = std::make_shared<logging_backend>(log),
                    .helpers = helpers,
                    .status = status,
                    .services = services,
                    .above = above,
                    .ordering = of.ordering,
                    .deadlines = of.deadlines,
                    .recovery = of.recovery,
                    .pending = pending,
                    .to_controller = of.channel};
    for (std::size_t i = 0; i < locals.size(); ++i) plan.locals.push_back({locals[i], devices[i], launchers[i]});
    status->listen([this](const world_event& event) { events.push_back(event); });
    executor.emplace(std::move(plan), states, mail, static_cast<world_shell&>(*this));
    executor->begin();
  }
  executor_scene(const executor_scene&) = delete;
  executor_scene& operator=(const executor_scene&) = delete;
  ~executor_scene() {
    log->on_call({});
    if (executor) {
      if (left == 0) executor->kill({.code = errc::abandoned, .text = "the test is over"});
      executor->let_go();
    }
    helpers->stop();
    executor.reset();
    states.clear();
    launchers.clear();
    services.poller->stop();
  }

  /// Passes notes to the executor until \p reached returns true.
  void run_until(const std::string& what, const std::function<bool()>& reached) {
    await(what, [&] {
      if (reached()) return true;
      if (auto next = mail->take()) executor->on(std::move(*next));
      return false;
    });
  }
  void run_until(world_phase phase) {
    run_until("the phase", [&] { return executor->event().phase == phase; });
  }
  void run_until_ready(epoch in) {
    run_until("the epoch", [&] {
      const world_event now = executor->event();
      return now.phase == world_phase::ready && now.epoch == in;
    });
  }
  /// Passes notes until the answer is there, and returns its error.
  template <class Value>
  error failure_of(std::future<Value>& answer) {
    run_until("an answer", [&] { return answer.wait_for(0s) == std::future_status::ready; });
    return error_of([&] { static_cast<void>(answer.get()); });
  }
  template <class Value>
  Value result_of(std::future<Value>& answer) {
    run_until("an answer", [&] { return answer.wait_for(0s) == std::future_status::ready; });
    return answer.get();
  }
  std::future<registration_reply> register_memory(std::size_t size_bytes, epoch of = {}) {
    auto [promise, answer] = make_value_promise<registration_reply>();
    executor->perform(registration_request{size_bytes, of}, promise);
    return std::move(answer);
  }
  std::future<suspension_reply> suspend(epoch of = {}) {
    auto [promise, answer] = make_value_promise<suspension_reply>();
    executor->perform(suspension_request{of}, promise);
    return std::move(answer);
  }
  std::future<resumption_reply> resume() {
    auto [promise, answer] = make_value_promise<resumption_reply>();
    executor->perform(resumption_request{}, promise);
    return std::move(answer);
  }
  std::future<capture_reply> capture(capture_request asked) {
    auto [promise, answer] = make_value_promise<capture_reply>();
    executor->perform(std::move(asked), promise);
    return std::move(answer);
  }
  std::future<credit> ask_credit(const credit_request& asked) {
    auto [promise, answer] = make_value_promise<credit>();
    executor->perform(asked, promise);
    return std::move(answer);
  }
  [[nodiscard]] outcome_log ask(std::vector<operation> parts) {
    outcome_log seen;
    executor->gate().accept({std::move(parts)}, seen.make_reply_promise(), 0);
    return seen;
  }
  void fault(rank at, error why, rank_report::kind what = rank_report::kind::faulted) {
    executor->on(rank_report{what, at, executor->current_epoch(), std::move(why)});
  }
  void direct(controller_directive what) { executor->on(std::move(what)); }
  [[nodiscard]] std::vector<world_phase> phases() const {
    std::vector<world_phase> seen;
    for (const world_event& one : events) seen.push_back(one.phase);
    return seen;
  }

  std::shared_ptr<peers_log> log = std::make_shared<peers_log>();
  std::shared_ptr<mock_driver> api;
  pipeline_services services;
  std::shared_ptr<arbiter> above;
  std::shared_ptr<deadline_pool> helpers = std::make_shared<deadline_pool>();
  std::shared_ptr<world_status> status = std::make_shared<world_status>();
  std::shared_ptr<admission_quota> pending;
  std::vector<std::shared_ptr<device>> devices;
  std::vector<std::shared_ptr<launcher>> launchers;
  std::vector<std::shared_ptr<collective_state>> states;
  std::shared_ptr<kept_mail> mail = std::make_shared<kept_mail>();
  std::vector<world_event> events;
  std::vector<std::pair<std::size_t, rank>> replaced; ///< Places and ranks of replaced actors.
  std::vector<std::pair<error, bool>> ended;          ///< The arguments of epoch_ended().
  std::vector<error> quiesced;                        ///< The arguments of quiesce().
  std::shared_ptr<latch> quiet = nullptr;             ///< What quiesce() returns.
  int formed_count = 0;                               ///< Calls of formed_again().
  int left = 0;                                       ///< Calls of leave().
  bool has_sub_worlds = false;                        ///< What stop_sub_worlds() returns.
  int stopped_sub_worlds = 0;                         ///< Calls of stop_sub_worlds().
  std::optional<world_executor> executor;

private:
  void epoch_ended(const error& why, bool for_good) override { ended.emplace_back(why, for_good); }
  [[nodiscard]] std::shared_ptr<latch> quiesce(const error& why) override {
    quiesced.push_back(why);
    return quiet;
  }
  [[nodiscard]] bool stop_sub_worlds(const stop_directive&) override {
    ++stopped_sub_worlds;
    return has_sub_worlds;
  }
  void formed_again() override { ++formed_count; }
  [[nodiscard]] std::shared_ptr<collective_state> replace_rank(std::size_t place, rank self) override {
    replaced.emplace_back(place, self);
    return states[place] = std::make_shared<collective_state>(self);
  }
  void leave() override { ++left; }
};

} // namespace troupe::tests
