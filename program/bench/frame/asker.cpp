#include <troupe/actors.hpp>
#include <troupe/program/bench/frame/asker.hpp>
#include <troupe/program/bench/frame/thread_team.hpp>

#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/completion/poller/wake_signal.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/runtime/rank_lane.hpp>

#include <algorithm>
#include <atomic>
#include <deque>
#include <exception>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>

namespace troupe::program {
struct begin_round;
struct end_client;
} // namespace troupe::program

TROUPE_LOCAL_TYPES_AFTER(troupe_bench, troupe)
TROUPE_LOCAL_TYPE(troupe_bench, troupe::program::begin_round)
TROUPE_LOCAL_TYPE(troupe_bench, troupe::program::end_client)
TROUPE_LOCAL_TYPES_END(troupe_bench)

namespace troupe::program {

namespace {

using steady = std::chrono::steady_clock;

/// One client's part of a round. The client accesses this object until it has decremented the round's `missing`.
struct client_part {
  std::shared_ptr<const client_work> work;
  std::vector<request_times> times;
  error failure;
};

} // namespace

struct begin_round {
  std::shared_ptr<void> what; ///< Points to a client_round.
  std::size_t member = 0;     ///< The client that this message is for.
};
struct end_client {};

using client_handle = compat::typed_actor<caf::result<void>(begin_round), caf::result<void>(end_client)>;
using answering_handle = compat::typed_actor<caf::result<completion>(world_request)>;

namespace {

struct client_round {
  std::vector<client_handle> members;
  std::vector<client_part> parts; ///< Indexed by client.
  epoch meant_for;
  std::size_t total = 0;
  std::size_t depth = 0;
  std::atomic<std::size_t> missing; ///< The number of clients that have not finished.
};

/// Answers when \p meeting clients have asked.
class null_actor final : public answering_handle::base {
public:
  null_actor(caf::actor_config& settings, std::size_t meeting) : answering_handle::base{settings}, meeting_{meeting} {}

  behavior_type make_behavior() override {
    if (meeting_ == 1) return {[](const world_request&) { return completion{}; }};
    return {[this](const world_request&) -> caf::result<completion> {
      auto mine = make_response_promise<completion>();
      waiting_.push_back(mine);
      if (waiting_.size() == meeting_) {
        for (auto& one : waiting_) one.deliver(completion{});
        waiting_.clear();
      }
      return mine;
    }};
  }

private:
  std::size_t meeting_;
  std::vector<caf::typed_response_promise<completion>> waiting_;
};

class bench_client final : public client_handle::base {
public:
  bench_client(caf::actor_config& settings, world where, std::optional<answering_handle> null)
    : client_handle::base{settings}, world_{std::move(where)}, null_{std::move(null)} {}

  behavior_type make_behavior() override {
    return {
        [this](begin_round& begin) {
          pass_on(begin);
          round_ = std::static_pointer_cast<client_round>(std::move(begin.what));
          part_ = &round_->parts[begin.member];
          total_ = round_->total;
          part_->times.reserve(total_);
          asked_ = in_flight_ = 0;
          free_.clear();
          if (part_->work->slots.size() >= round_->depth)
            for (std::size_t i = round_->depth; i > 0; --i) free_.push_back(i - 1);
          while (asked_ < total_ && in_flight_ < round_->depth) ask_next();
        },
        [this](end_client) { quit(); },
    };
  }

  void on_exit() override { round_.reset(); } // Releases memory before the runtime is destroyed.

private:
  /// Forwards the message to two other clients. If one thread woke all of them, waking would take longer than the
  /// measured work.
  void pass_on(const begin_round& begin) {
    const auto& members = static_cast<const client_round*>(begin.what.get())->members;
    for (std::size_t next = 2 * begin.member + 1; next <= 2 * begin.member + 2 && next < members.size(); ++next)
      compat::send(this, members[next], begin_round{begin.what, next});
  }

  void ask_next() {
    const client_work& work = *part_->work;
    std::size_t slot = asked_ % work.slots.size();
    if (!free_.empty()) {
      slot = free_.back();
      free_.pop_back();
    }
    const std::vector<operation>& what = work.slots[slot];
    const std::size_t number = asked_++;
    ++in_flight_;
    const time_point since = steady::now();
    if (work.target && !null_)
      await(compat::request_unbounded(
                this, collective_of(world_, *work.target),
                rank_request{.what = what.front(),
                             .epoch = round_->meant_for,
                             .lane = work.lanes.empty() ? lane{} : work.lanes[number % work.lanes.size()]}),
            slot, since);
    else
      await(compat::request_unbounded(this, null_ ? *null_ : answering_handle{actor_of(world_)},
                                      world_request{what, round_->meant_for}),
            slot, since);
  }

  template <class Response>
  void await(Response&& reply, std::size_t slot, time_point since) {
    std::forward<Response>(reply).then([this, slot, since](const completion& end) { replied(slot, since, end.times); },
                                       [this, slot, since](const caf::error& failure) {
                                         if (!part_->failure) part_->failure = from_caf(failure);
                                         total_ = asked_; // Send no more requests of this run.
                                         replied(slot, since, {});
                                       });
  }

  void replied(std::size_t slot, time_point since, const troupe::times& between) {
    part_->times.push_back({since, steady::now(), between});
    --in_flight_;
    if (part_->work->slots.size() >= round_->depth) free_.push_back(slot);
    if (asked_ < total_) ask_next();
    if (in_flight_ > 0) return;
    part_->work = nullptr; // Releases memory before its owner is destroyed.
    const auto over = std::exchange(round_, nullptr);
    if (over->missing.fetch_sub(1, std::memory_order_acq_rel) == 1) over->missing.notify_all();
  }

  world world_;
  std::optional<answering_handle> null_; ///< Answers in the world's place.
  std::shared_ptr<client_round> round_;
  client_part* part_ = nullptr; ///< Points into the round.
  std::vector<std::size_t>
      free_; ///< Free slots. Empty if there are fewer slots than requests in flight; the slots are then shared.
  std::size_t total_ = 0;
  std::size_t asked_ = 0;
  std::size_t in_flight_ = 0;
};

} // namespace

class client_group::member {
public:
  member(caf::actor_system& system, const world& where, const std::optional<answering_handle>& null)
    : actor_{system.spawn<bench_client>(where, null)} {}
  member(const member&) = delete;
  member& operator=(const member&) = delete;
  ~member() { compat::post(actor_, end_client{}); }

  [[nodiscard]] const client_handle& actor() const noexcept { return actor_; }

private:
  client_handle actor_;
};

client_group::client_group(caf::actor_system& system, const world& where, std::size_t size, answered_by who)
  : world_{where} {
  std::optional<answering_handle> null;
  if (who != answered_by::world) null = system.spawn<null_actor>(who == answered_by::null_meeting ? size : 1);
  for (std::size_t i = 0; i < size; ++i) members_.push_back(std::make_unique<member>(system, where, null));
}

client_group::~client_group() = default;

std::vector<std::vector<request_times>> client_group::run(const std::vector<std::shared_ptr<const client_work>>& work,
                                                          std::size_t total, std::size_t depth) {
  if (work.size() != members_.size() || total == 0 || depth == 0)
    throw exception{errc::internal, "a group of " + std::to_string(members_.size()) +
                                        " client actors was given work for " + std::to_string(work.size()) + ", " +
                                        std::to_string(total) + " times, " + std::to_string(depth) + " in flight"};
  const auto round = std::make_shared<client_round>();
  round->meant_for = world_.epoch();
  round->total = total;
  round->depth = depth;
  round->missing = members_.size();
  for (const auto& one : members_) round->members.push_back(one->actor());
  for (const auto& one : work) round->parts.push_back({.work = one, .times = {}, .failure = {}});
  compat::post(round->members.front(), begin_round{round, 0});
  for (std::size_t left = 0; (left = round->missing.load(std::memory_order_acquire)) > 0;) round->missing.wait(left);
  std::vector<std::vector<request_times>> times;
  for (client_part& one : round->parts) {
    if (one.failure) throw exception{one.failure};
    times.push_back(std::move(one.times));
  }
  return times;
}

std::vector<std::shared_ptr<const client_work>>
work_of(const world& where, const std::vector<std::vector<operation>>& sums, const std::vector<lane>& lanes) {
  if (lanes.empty()) return {std::make_shared<const client_work>(client_work{.slots = sums})};
  std::vector<std::shared_ptr<const client_work>> all;
  for (std::size_t r = 0; r < where.local_ranks().size(); ++r) {
    client_work one{.slots = {}, .target = where.local_ranks()[r], .lanes = lanes};
    for (const auto& sum : sums) one.slots.push_back({sum.at(r)});
    all.push_back(std::make_shared<const client_work>(std::move(one)));
  }
  return all;
}

nanoseconds span_of(const std::vector<std::vector<request_times>>& times) {
  time_point first = time_point::max();
  time_point last = time_point::min();
  for (const auto& client : times)
    for (const request_times& one : client) {
      first = std::min(first, one.asked);
      last = std::max(last, one.replied);
    }
  return first < last ? last - first : nanoseconds{0};
}

void register_client_messages() {
  TROUPE_REGISTER_LOCAL_TYPES(troupe_bench);
}

namespace {

/// One client actor of the world or, with a lane, one for each local rank.
class actor_asker final : public asker {
public:
  actor_asker(caf::actor_system& system, const world& where, std::vector<lane> lanes, answered_by who)
    : world_{where},
      lanes_{std::move(lanes)},
      clients_{system, where, lanes_.empty() ? 1 : where.local_ranks().size(), who} {}

  [[nodiscard]] std::string_view name() const noexcept override { return lanes_.empty() ? "actor" : "rank actors"; }

  [[nodiscard]] series ask(const std::vector<operation>& parts, std::size_t total, std::size_t depth) override {
    const auto times = clients_.run(work_of(world_, {parts}, lanes_), total, depth);
    series result{.all = span_of(times)};
    for (std::size_t i = 0; i < total; ++i) {
      time_point first = time_point::max();
      time_point last = time_point::min();
      for (const auto& client : times) {
        result.each.push_back(client[i].replied - client[i].asked);
        first = std::min(first, client[i].asked);
        last = std::max(last, client[i].replied);
      }
      if (!lanes_.empty()) result.spans.push_back(last - first);
    }
    return result;
  }

private:
  world world_;
  std::vector<lane> lanes_; ///< Empty, or the one lane that all ranks' clients use.
  client_group clients_;
};

} // namespace

std::unique_ptr<asker> make_actor_asker(caf::actor_system& system, const world& where, answered_by who) {
  return std::make_unique<actor_asker>(system, where, std::vector<lane>{}, who);
}

std::unique_ptr<asker> make_rank_actor_asker(caf::actor_system& system, const world& where, lane in, answered_by who) {
  return std::make_unique<actor_asker>(system, where, std::vector{in}, who);
}

void spin_until_answered(const std::future<completion>& reply) {
  while (reply.wait_for(nanoseconds{0}) != std::future_status::ready) spin_pause();
}

namespace {

class thread_asker final : public asker {
public:
  explicit thread_asker(world where) : world_{std::move(where)} {}

  [[nodiscard]] std::string_view name() const noexcept override { return "facade"; }

  [[nodiscard]] series ask(const std::vector<operation>& parts, std::size_t total, std::size_t depth) override {
    series result;
    result.each.reserve(total);
    std::deque<std::pair<time_point, std::future<completion>>> in_flight;
    const time_point began = steady::now();
    for (std::size_t asked = 0; result.each.size() < total;) {
      while (asked < total && in_flight.size() < depth) {
        const time_point now = steady::now();
        in_flight.emplace_back(now, world_.ask(parts));
        ++asked;
      }
      auto& [since, reply] = in_flight.front();
      spin_until_answered(reply);
      static_cast<void>(reply.get());
      result.each.push_back(steady::now() - since);
      in_flight.pop_front();
    }
    result.all = steady::now() - began;
    return result;
  }

private:
  world world_;
};

} // namespace

std::unique_ptr<asker> make_thread_asker(world where) {
  return std::make_unique<thread_asker>(std::move(where));
}

namespace {

/// The client of one rank. It runs on a thread of its own.
class rank_client {
public:
  rank_client(world where, rank target, lane in) : lane_{std::move(where), target, in} {}

  /// Sends \p what \p count times, and then spins until all replies have arrived.
  void ask(const operation& what, std::size_t count) {
    times_.clear();
    replies_.clear();
    for (std::size_t i = 0; i < count; ++i) {
      times_.push_back({.asked = steady::now(), .replied = {}});
      replies_.push_back(lane_.ask(what));
    }
    for (std::size_t i = 0; i < replies_.size(); ++i) {
      spin_until_answered(replies_[i]);
      times_[i].replied = steady::now();
    }
    for (auto& one : replies_) static_cast<void>(one.get());
  }
  [[nodiscard]] const std::vector<request_times>& times() const noexcept { return times_; }

private:
  rank_lane lane_;
  std::vector<request_times> times_;
  std::vector<std::future<completion>> replies_;
};

class rank_thread_asker final : public asker {
public:
  rank_thread_asker(world where, lane in) : world_{std::move(where)}, lane_{in} {}

  [[nodiscard]] std::string_view name() const noexcept override { return "rank threads"; }

  [[nodiscard]] series ask(const std::vector<operation>& parts, std::size_t total, std::size_t depth) override {
    std::vector<rank_client> clients;
    for (const rank target : world_.local_ranks()) clients.emplace_back(world_, target, lane_);
    // If the process has one rank, the calling thread asks. Handing each request to another thread would add a delay of
    // its own at each rank. Threads live only during a series, because each would take a core from other measurements.
    std::optional<thread_team> team;
    if (clients.size() > 1)
      team.emplace(clients.size(), [](std::size_t i) { name_this_thread("bench/rank" + std::to_string(i)); });
    series result;
    const time_point began = steady::now();
    for (std::size_t done = 0; done < total; done += depth) {
      const thread_team::task batch = [&](std::size_t i) { clients[i].ask(parts[i], std::min(depth, total - done)); };
      if (team) {
        team->release(batch);
        team->await();
      } else {
        batch(0);
      }
      std::vector<std::vector<request_times>> times;
      for (const rank_client& one : clients) {
        times.push_back(one.times());
        for (const request_times& each : one.times()) result.each.push_back(each.replied - each.asked);
      }
      result.spans.push_back(span_of(times));
    }
    result.all = steady::now() - began;
    return result;
  }

private:
  world world_;
  lane lane_;
};

} // namespace

std::unique_ptr<asker> make_rank_thread_asker(world where, lane in) {
  return std::make_unique<rank_thread_asker>(std::move(where), in);
}

} // namespace troupe::program
