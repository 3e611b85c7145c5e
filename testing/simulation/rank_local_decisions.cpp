#include <troupe/testing/simulation/rank_local_decisions.hpp>

#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/testing/fault_script.hpp>
#include <troupe/testing/memory.hpp>
#include <troupe/testing/simulation/simulated_deployment.hpp>
#include <troupe/testing/simulation/simulated_processes.hpp>
#include <troupe/testing/simulation/simulated_world.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe::simulation {

namespace {

using namespace std::chrono_literals;
using testing::elements_of;

constexpr dtype type = dtype::i64;
constexpr std::size_t width = 4; ///< Elements of each user's request in a sum.

/// Draws for each rank whether it is one of those that see something else; some are, and some are not.
std::vector<bool> draw_some(prng& chance, int ranks) {
  std::vector<bool> some(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < some.size(); ++r) some[r] = chance.one_in(2);
  const std::size_t one = chance.below(some.size());
  some[one] = true;
  some[(one + 1) % some.size()] = false;
  return some;
}

class drawn_server : public deciding_server {
protected:
  drawn_server(prng& chance, int ranks) : some_{draw_some(chance, ranks)} {
    ranks_ = ranks;
    difference_at_ = 2 + static_cast<int>(chance.below(8));
  }
  /// Returns whether \p self is one of the ranks that see something else.
  [[nodiscard]] bool is_other(rank self) const { return some_[static_cast<std::size_t>(self.value())]; }
  /// Returns the sum over all ranks of (rank + 1).
  [[nodiscard]] std::int64_t sum_of_ranks() const { return std::int64_t{ranks_} * (ranks_ + 1) / 2; }

  /// Returns a sum over \p users, each with elements of its number, times rank + 1.
  [[nodiscard]] static operation sum(rank self, const decision& users, const memory& on) {
    const auto input = elements_of<std::int64_t>(on.input);
    for (std::size_t i = 0; i < width * users.size(); ++i) input[i] = (self.value() + 1) * users[i / width];
    return all_reduce{on.input, on.output, width * users.size(), type};
  }
  [[nodiscard]] std::vector<std::int64_t> expect_sum(const decision& users) const {
    std::vector<std::int64_t> all(width * users.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = sum_of_ranks() * users[i / width];
    return all;
  }
  /// Returns a request for which each rank contributes one element, and what its receivers expect.
  template <class Operation>
  [[nodiscard]] static operation collect(rank self, int at, const memory& on) {
    elements_of<std::int64_t>(on.input)[0] = 100 * at + self.value();
    return Operation{on.input, on.output, 1, type};
  }
  [[nodiscard]] std::vector<std::int64_t> expect_collected(int at) const {
    std::vector<std::int64_t> all(static_cast<std::size_t>(ranks_));
    for (std::size_t r = 0; r < all.size(); ++r) all[r] = std::int64_t{100} * at + static_cast<std::int64_t>(r);
    return all;
  }

private:
  std::vector<bool> some_;
};

/// Users' requests have deadlines. At difference_at() the deadline of one of them lies between the ranks' clocks, so
/// that only some ranks give it up. Then batches differ in size.
class own_clocks final : public drawn_server {
public:
  own_clocks(prng chance, int ranks) : drawn_server{chance, ranks} {
    for (int user = 1; user <= users; ++user) {
      const int at = user == 1 ? difference_at_ : difference_at_ + 1 + static_cast<int>(chance.below(4));
      deadlines_.push_back(at * period + (user == 1 ? skew / 2 : -period / 2)); // one lies within the skew
    }
  }
  [[nodiscard]] agreement rule() const override { return agreement_rule::union_of; }
  [[nodiscard]] decision see(rank self, int at) const override {
    const nanoseconds clock = at * period + (is_other(self) ? skew : 0ns);
    decision timed_out;
    for (int user = 1; user <= users; ++user)
      if (deadlines_[static_cast<std::size_t>(user) - 1] <= clock) timed_out.push_back(user);
    return timed_out;
  }
  [[nodiscard]] step begin(rank self, int, const decision& made, const memory& on) const override {
    const decision rest = batch(made);
    return {sum(self, rest, on), rest.empty()};
  }
  [[nodiscard]] std::vector<std::int64_t> expect(rank, int, const decision& made) const override {
    return expect_sum(batch(made));
  }

private:
  static constexpr int users = 6;
  static constexpr nanoseconds period = 10ms, skew = 300us;

  [[nodiscard]] static decision batch(const decision& timed_out) {
    decision rest;
    for (int user = 1; user <= users; ++user)
      if (std::ranges::find(timed_out, user) == timed_out.end()) rest.push_back(user);
    return rest;
  }

  std::vector<nanoseconds> deadlines_;
};

/// Some ranks have one free block less than others, because they have not seen yet that a transfer has ended. At
/// difference_at() that is the block without which a user does not fit. A rank where none fits looks after transfers,
/// which is a collective of its own.
class free_blocks final : public drawn_server {
public:
  free_blocks(prng chance, int ranks) : drawn_server{chance, ranks} {
    for (int at = 0; at < steps; ++at) {
      const std::size_t users = chance.below(4);
      // The other ranks have one less: as many users fit, except where the number is a multiple.
      free_.push_back(static_cast<std::int64_t>(at == difference_at_ ? (users + 1) * blocks
                                                                     : users * blocks + 1 + chance.below(3)));
    }
  }
  [[nodiscard]] agreement rule() const override { return agreement_rule::min; }
  [[nodiscard]] decision see(rank self, int at) const override {
    return {free_[static_cast<std::size_t>(at)] - (is_other(self) ? 1 : 0)};
  }
  [[nodiscard]] step begin(rank self, int at, const decision& made, const memory& on) const override {
    const decision users = admitted(made);
    return {users.empty() ? collect<all_gather>(self, at, on) : sum(self, users, on), at + 1 == steps};
  }
  [[nodiscard]] std::vector<std::int64_t> expect(rank, int at, const decision& made) const override {
    const decision users = admitted(made);
    return users.empty() ? expect_collected(at) : expect_sum(users);
  }

private:
  static constexpr int steps = 14;
  static constexpr std::size_t blocks = 4; ///< Blocks of each user.

  [[nodiscard]] static decision admitted(const decision& free) {
    decision users;
    for (std::int64_t i = 1; i * static_cast<std::int64_t>(blocks) <= free.front(); ++i) users.push_back(i);
    return users;
  }

  std::vector<std::int64_t> free_;
};

/// A user's cancel reaches some ranks before a step and the others after it. Ranks that know of it gather what they
/// have for the last answer; the others exchange the next token.
class cancellation final : public drawn_server {
public:
  cancellation(prng chance, int ranks) : drawn_server{chance, ranks} {}
  [[nodiscard]] agreement rule() const override { return agreement_rule::any_of; }
  [[nodiscard]] decision see(rank self, int at) const override {
    return {at >= difference_at_ + (is_other(self) ? 1 : 0) ? 1 : 0};
  }
  [[nodiscard]] step begin(rank self, int at, const decision& made, const memory& on) const override {
    const bool is_cancelled = made.front() != 0;
    return {is_cancelled ? collect<gather>(self, at, on) : collect<all_gather>(self, at, on), is_cancelled};
  }
  [[nodiscard]] std::vector<std::int64_t> expect(rank self, int at, const decision& made) const override {
    if (made.front() != 0 && self != rank{0}) return {};
    return expect_collected(at);
  }
};

/// Each rank is a stage that passes what it has computed to the next one. The last one sees that the request ends, and
/// the others hear of it at later steps. A stage that knows waits for the next request, and sends and receives nothing.
class pipeline_end final : public drawn_server {
public:
  pipeline_end(prng chance, int ranks) : drawn_server{chance, ranks} {
    for (int r = 0; r + 1 < ranks; ++r) heard_after_.push_back(1 + static_cast<int>(chance.below(3)));
    heard_after_.push_back(0);
  }
  [[nodiscard]] agreement rule() const override { return agreement::of_rank(rank{ranks_ - 1}); }
  [[nodiscard]] decision see(rank self, int at) const override {
    return {at >= difference_at_ + heard_after_[static_cast<std::size_t>(self.value())] ? 1 : 0};
  }
  [[nodiscard]] step begin(rank self, int at, const decision& made, const memory& on) const override {
    if (made.front() != 0) return {{}, true};
    const int stage = self.value();
    elements_of<std::int64_t>(on.input)[0] = stage == 0 ? at + 1 : elements_of<std::int64_t>(on.output)[0] + stage + 1;
    group both;
    if (stage > 0) both.parts.emplace_back(recv{on.output, 1, type, rank{stage - 1}});
    if (stage + 1 < ranks_) both.parts.emplace_back(send{on.input, 1, type, rank{stage + 1}});
    return {both};
  }
  [[nodiscard]] std::vector<std::int64_t> expect(rank self, int at, const decision&) const override {
    if (self == rank{0}) return {};
    return {sent_by(self.value() - 1, at)};
  }

private:
  [[nodiscard]] static std::int64_t sent_by(int stage, int at) { // NOLINT(misc-no-recursion): stages, at most 16
    if (stage == 0) return at + 1;
    return (at == 0 ? 0 : sent_by(stage - 1, at - 1)) + stage + 1;
  }

  std::vector<int> heard_after_;
};

} // namespace

std::unique_ptr<deciding_server> draw_server(decision_pattern pattern, int ranks, std::uint64_t seed) {
  if (ranks < 2 || ranks > 16)
    throw exception{errc::invalid_argument, std::to_string(ranks) + " ranks: these servers have 2 to 16"};
  const prng chance{mix(seed, 41, static_cast<std::uint64_t>(pattern))};
  switch (pattern) {
    case decision_pattern::own_clocks: return std::make_unique<own_clocks>(chance, ranks);
    case decision_pattern::free_blocks: return std::make_unique<free_blocks>(chance, ranks);
    case decision_pattern::cancellation: return std::make_unique<cancellation>(chance, ranks);
    case decision_pattern::pipeline_end: break;
  }
  return std::make_unique<pipeline_end>(chance, ranks);
}

rank_course serve(const deciding_server& server, decided_by how, rank self, const deciding_server::memory& on,
                  const rank_client& ask) {
  rank_course done;
  for (int at = 0;; ++at) {
    decision made = server.see(self, at);
    if (how == decided_by::agree) {
      const agreement by = server.rule();
      const outcome reply = ask(agree{by.rule, contribution{made}.bytes, by.root}, at);
      if (const error* why = failure_of(reply)) {
        done.why = *why;
        return done;
      }
      made = std::get<completion>(reply).agreed->integers();
    }
    done.decisions.push_back(made);
    deciding_server::step next = server.begin(self, at, made, on);
    if (next.work) {
      const outcome reply = ask(std::move(*next.work), at);
      if (const error* why = failure_of(reply)) {
        done.why = *why;
        return done;
      }
      const auto expected = server.expect(self, at, made);
      const auto output = elements_of<std::int64_t>(on.output);
      ++(std::ranges::equal(expected, output.first(expected.size())) ? done.right : done.wrong);
    }
    if (next.is_last) return done;
  }
}

namespace {

/// Serves the requests of the scenario in \p where, each rank by a client that is a fiber.
void play(const deciding_server& server, decided_by how, fibers& threads, simulated_machine& machine,
          system_under_test& where, simulation_ledger& ledger, decisions_result& result) {
  constexpr nanoseconds most = 20s;
  const auto is_ready = [&] { return where.latest().phase == world_phase::ready; };
  if (!threads.run(is_ready, steady_now() + most)) ledger.stuck("the world has not become ready");
  const epoch now = where.latest().epoch;
  std::size_t busy = result.ranks.size();
  std::vector<worker> clients;
  for (int r = 0; r < server.ranks(); ++r)
    clients.emplace_back([&, r] {
      constexpr std::size_t bytes = deciding_server::most_elements * sizeof(std::int64_t);
      const auto pool = memory_pool::create(machine.devices[static_cast<std::size_t>(r)]);
      const deciding_server::memory on{pool->allocate(bytes), pool->allocate(bytes)};
      for (const buffer& one : {on.input, on.output}) std::ranges::fill(elements_of<std::int64_t>(one), 0);
      result.ranks[static_cast<std::size_t>(r)] = serve(server, how, rank{r}, on, [&](operation what, int) -> outcome {
        auto [promise, reply] = testing::virtual_reply::make();
        where.ask_rank(rank{r}, 0,
                       {.what = std::move(what), .epoch = now, .deadline = 200ms, .lane = lane::named("steps")},
                       std::move(promise));
        if (reply.wait_for(most) == std::future_status::ready) return reply.result();
        ledger.stuck("rank " + to_string(rank{r}) + " has no answer");
        return error{.code = errc::internal, .text = "no answer"};
      });
      --busy;
    });
  threads.run([&] { return busy == 0; }, steady_now() + 100 * most);
  for (worker& one : clients) one.join();
  where.stop();
  if (!threads.run([&] { return where.is_over(); }, steady_now() + most)) ledger.stuck("the world has not ended");
}

} // namespace

decisions_result simulate_decisions(decision_pattern pattern, decided_by how, int ranks, std::uint64_t seed,
                                    bool over_processes) {
  const auto server = draw_server(pattern, ranks, seed);
  scenario what{.seed = seed, .ranks = ranks};
  if (over_processes) what.processes = process_terms{};
  prng chance{mix(seed, 4)};
  fibers threads{[&](std::size_t count) { return chance.below(count); }};
  trace log{true};
  decisions_result result;
  result.ranks.resize(static_cast<std::size_t>(ranks));
  {
    const simulated_terms terms = terms_of(what);
    auto machine = std::make_unique<simulated_machine>(terms);
    simulated_memory memory{what, machine->devices};
    simulation_ledger ledger{what, memory, log};
    const auto faults = std::make_shared<testing::fault_script>(testing::launch_recording::off);
    if (over_processes) {
      simulated_processes where{what, *machine, faults, ledger, log};
      play(*server, how, threads, *machine, where, ledger, result);
    } else {
      simulated_world where{terms, *machine, faults, log};
      play(*server, how, threads, *machine, where, ledger, result);
    }
    if (threads.forbidden_waits() > 0) ledger.wrong("actors' turns waited (BLK-1)");
    static_cast<void>(ledger.judge());
    result.findings = ledger.findings();
    machine = nullptr;
    threads.run([&] { return threads.living() == 0; }, steady_now() + longest(what));
  }
  result.trace = std::move(log.text());
  return result;
}

} // namespace troupe::simulation
