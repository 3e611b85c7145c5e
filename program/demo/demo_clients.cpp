#include <troupe/actors.hpp>
#include <troupe/program/demo/demo_clients.hpp>
#include <troupe/program/support/statistics.hpp>

#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/runtime/rank_lane.hpp>

#include <algorithm>
#include <cstdio>
#include <future>
#include <iterator>
#include <map>
#include <utility>

namespace troupe::program {

std::size_t demo_ledger::ask(const std::string& kind) {
  const std::lock_guard lock{mutex_};
  const auto at = kinds_.try_emplace(kind).first;
  ++at->second.asked;
  entries_.push_back({&at->first});
  return entries_.size() - 1;
}

void demo_ledger::answered(std::size_t request, const completion& reply) {
  const std::chrono::duration<double, std::micro> took = reply.times.done - reply.times.queued;
  const std::lock_guard lock{mutex_};
  entry& one = entries_[request];
  ++one.answers;
  kinds_.find(*one.kind)->second.microseconds.push_back(took.count());
}

void demo_ledger::answered(std::size_t request, const error& failure) {
  const std::lock_guard lock{mutex_};
  entry& one = entries_[request];
  ++one.answers;
  ++kinds_.find(*one.kind)->second.failed;
  if (first_failure_.empty()) first_failure_ = to_string(failure);
}

void demo_ledger::verified(std::size_t right, std::size_t wrong) {
  const std::lock_guard lock{mutex_};
  verified_ += right + wrong;
  wrong_ += wrong;
}

demo_ledger::sums demo_ledger::add_up() const {
  sums all;
  for (const entry& one : entries_) {
    all.answered += one.answers > 0 ? 1 : 0;
    all.lost += one.answers == 0 ? 1 : 0;
    all.doubled += one.answers > 1 ? 1 : 0;
  }
  for (const auto& [kind, counts] : kinds_) all.failed += counts.failed;
  return all;
}

bool demo_ledger::clean() const {
  const std::lock_guard lock{mutex_};
  const sums all = add_up();
  return !entries_.empty() && verified_ > 0 && wrong_ == 0 && all.lost == 0 && all.doubled == 0 && all.failed == 0;
}

std::string demo_ledger::progress() const {
  const std::lock_guard lock{mutex_};
  return "demo: " + std::to_string(entries_.size()) + " requests sent, " + std::to_string(verified_) +
         " results verified";
}

void demo_ledger::print() const {
  const std::lock_guard lock{mutex_};
  std::printf("%-34s %9s %9s %12s %12s\n", "request", "asked", "failed", "p50 us", "p99 us");
  for (const auto& [kind, counts] : kinds_)
    std::printf("%-34s %9zu %9zu %12.1f %12.1f\n", kind.c_str(), counts.asked, counts.failed,
                percentile(counts.microseconds, 0.50), percentile(counts.microseconds, 0.99));
  std::printf("results verified: %zu on every rank\n", verified_);
  if (!first_failure_.empty()) std::printf("first failure: %s\n", first_failure_.c_str());
  const sums all = add_up();
  std::printf("answered %zu/%zu, wrong %zu, lost %zu, doubled %zu\n", all.answered, entries_.size(), wrong_, all.lost,
              all.doubled);
}

namespace {

constexpr dtype types[] = {dtype::u8,  dtype::i32, dtype::u32, dtype::i64, dtype::u64,
                           dtype::f16, dtype::f32, dtype::f64, dtype::bf16};
constexpr reduction reductions[] = {reduction::sum, reduction::min, reduction::max};

/// The data of one client: a batch of all_reduces with inputs whose results are exact, in memory of the ranks that it
/// serves. It is allocated once and refilled for each round.
/// One round is: fill(), copies_in(), request() for each, copies_out(), wrong_results(), each awaited before the next.
class demo_batch {
public:
  demo_batch(const world& where, const client_task& task)
    : world_size_{where.size()},
      max_count_{task.count},
      seed_{task.seed},
      values_{task.values},
      requests_(task.requests) {
    const conform_range longest{.role = "longest", .values = {.type = dtype::f64}, .count = max_count_};
    const std::size_t room = size() * 2 * conform_image::room_for(longest);
    for (const rank self : task.ranks) members_.push_back({self, {where, self, memory_kind::device, room}});
  }

  /// Draws new shapes and inputs.
  void fill(std::uint64_t round) {
    for (member& one : members_) {
      one.image.clear();
      one.placed.assign(size(), {});
    }
    for (std::size_t i = 0; i < size(); ++i) {
      // The shape must be the same for every rank's client, so it depends only on seed, round and index.
      const std::uint64_t drawn = scramble(seed_ ^ scramble(round ^ scramble(i)));
      draws draw{drawn};
      const value_source source{types[draw.below(std::size(types))], reductions[draw.below(std::size(reductions))],
                                value_kind::exact};
      const conform_piece piece = conform_collectives().front().make( // all_reduce
          {.ranks = world_size_, .values = source, .count = draw.below(max_count_ + 1), .seed = drawn});
      requests_[i].clear();
      for (member& one : members_)
        requests_[i].push_back(
            as_operation(part_of(piece, one.self, one.image.place(piece, one.self, *values_, one.placed[i]))));
    }
  }

  using ranked_operation = std::pair<rank, operation>;
  [[nodiscard]] std::vector<ranked_operation> copies_in() const {
    std::vector<ranked_operation> copies;
    for (const member& one : members_) copies.emplace_back(one.self, one.image.upload());
    return copies;
  }
  [[nodiscard]] std::size_t size() const noexcept { return requests_.size(); }
  /// Returns request \p index, with one part for each rank served.
  [[nodiscard]] std::vector<operation> request(std::size_t index) const { return requests_[index]; }
  [[nodiscard]] std::vector<ranked_operation> copies_out() const {
    std::vector<ranked_operation> copies;
    for (const member& one : members_) copies.emplace_back(one.self, one.image.download());
    return copies;
  }
  /// Checks every element. Returns the number of requests with a wrong one at any rank served.
  [[nodiscard]] std::size_t wrong_results() {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < size(); ++i)
      wrong += std::ranges::all_of(members_,
                                   [i](member& one) {
                                     return std::ranges::all_of(one.placed[i], [&](std::size_t at) {
                                       return one.image.find_fault(at).empty();
                                     });
                                   })
                   ? 0
                   : 1;
    return wrong;
  }

private:
  struct member {
    rank self;
    conform_image image;
    std::vector<std::vector<std::size_t>> placed{}; ///< The numbers of the ranges of each request.
  };

  int world_size_;
  std::size_t max_count_;
  std::uint64_t seed_;
  std::shared_ptr<known_values> values_;
  std::vector<member> members_;
  std::vector<std::vector<operation>> requests_;
};

class asked_requests {
public:
  explicit asked_requests(demo_ledger& books) : books_{books} {}

  void add(const char* kind, std::future<completion> reply) { asked_.emplace_back(books_.ask(kind), std::move(reply)); }

  /// Waits for all replies. Returns false if any failed.
  bool settle() {
    bool good = true;
    for (auto& [request, reply] : asked_) {
      try {
        books_.answered(request, reply.get());
      } catch (const exception& failure) {
        books_.answered(request, failure.why());
        good = false;
      }
    }
    asked_.clear();
    return good;
  }

private:
  demo_ledger& books_;
  std::vector<std::pair<std::size_t, std::future<completion>>> asked_;
};

} // namespace

void run_thread_client(world where, const client_task& task, demo_ledger& books) {
  const bool to_world = task.ranks.size() == static_cast<std::size_t>(where.size());
  demo_batch batch{where, task};
  asked_requests asked{books};
  std::map<rank, rank_lane> lanes;
  for (const rank self : task.ranks) lanes.try_emplace(self, where, self, task.lane);
  for (std::size_t round = 0; task.rounds->begins(round); ++round) {
    batch.fill(round);
    for (auto& [self, move] : batch.copies_in()) asked.add("thread: copy", lanes.at(self).ask(std::move(move)));
    if (!asked.settle()) return;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      auto parts = batch.request(i);
      if (to_world)
        asked.add("thread: all_reduce, world", where.ask(std::move(parts)));
      else
        asked.add("thread: all_reduce, rank", lanes.at(task.ranks.front()).ask(std::move(parts.front())));
    }
    asked.add(to_world ? "thread: barrier, world" : "thread: barrier, rank",
              to_world ? where.barrier() : lanes.at(task.ranks.front()).ask(barrier{}));
    if (!asked.settle()) return;
    for (auto& [self, move] : batch.copies_out()) asked.add("thread: copy", lanes.at(self).ask(std::move(move)));
    if (!asked.settle()) return;
    const std::size_t wrong = batch.wrong_results();
    books.verified(batch.size() - wrong, wrong);
  }
}

namespace {

/// A client that is an actor. It never blocks: it begins a step when the last reply of the previous step has arrived.
class actor_client final : public listener_handle::base {
public:
  actor_client(caf::actor_config& settings, world where, client_task task, demo_ledger* books, std::latch* ended)
    : listener_handle::base{settings},
      world_{std::move(where)},
      task_{std::move(task)},
      books_{*books},
      ended_{*ended},
      batch_{world_, task_} {}

  behavior_type make_behavior() override {
    compat::post(actor_of(world_), subscribe{listener_handle{this}});
    begin_round();
    return {[this](const world_event& event) { epoch_ = event.epoch; }};
  }

  void on_exit() override { ended_.count_down(); }

private:
  using step = void (actor_client::*)();

  void begin_round() {
    if (!task_.rounds->begins(round_)) return quit();
    batch_.fill(round_++);
    ask_ranks(batch_.copies_in(), &actor_client::reduce);
  }

  void reduce() {
    next_ = &actor_client::copy_out;
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      auto parts = batch_.request(i);
      if (to_world())
        ask("actor: all_reduce, world", actor_of(world_), world_request{std::move(parts), epoch_});
      else
        ask("actor: all_reduce, rank", own_rank(), rank_request_for(std::move(parts.front())));
    }
    if (to_world())
      ask("actor: barrier, world", actor_of(world_),
          world_request{std::vector<operation>(task_.ranks.size(), barrier{}), epoch_});
    else
      ask("actor: barrier, rank", own_rank(), rank_request_for(barrier{}));
  }

  void copy_out() { ask_ranks(batch_.copies_out(), &actor_client::verify); }

  void verify() {
    const std::size_t wrong = batch_.wrong_results();
    books_.verified(batch_.size() - wrong, wrong);
    begin_round();
  }

  // NOLINTNEXTLINE(performance-unnecessary-value-param): its elements are moved
  void ask_ranks(std::vector<demo_batch::ranked_operation> operations, step next) {
    next_ = next;
    for (auto& [self, what] : operations)
      ask("actor: copy", collective_of(world_, self), rank_request_for(std::move(what)));
  }

  template <class Handle, class Request>
  void ask(const char* kind, const Handle& target, Request what) {
    ++awaited_;
    const std::size_t request = books_.ask(kind);
    compat::request_unbounded(this, target, std::move(what))
        .then(
            [this, request](const completion& reply) {
              books_.answered(request, reply);
              settle();
            },
            [this, request](const caf::error& failure) {
              books_.answered(request, from_caf(failure));
              failed_ = true;
              settle();
            });
  }

  [[nodiscard]] rank_request rank_request_for(operation what) const {
    return {.what = std::move(what), .epoch = epoch_, .lane = task_.lane};
  }

  void settle() {
    if (--awaited_ > 0) return;
    if (failed_) return quit();
    (this->*next_)();
  }

  [[nodiscard]] bool to_world() const { return task_.ranks.size() == static_cast<std::size_t>(world_.size()); }
  [[nodiscard]] collective_handle own_rank() const { return collective_of(world_, task_.ranks.front()); }

  world world_;
  client_task task_;
  demo_ledger& books_;
  std::latch& ended_;
  demo_batch batch_;
  epoch epoch_ = world_.epoch();
  step next_ = nullptr;
  std::size_t awaited_ = 0;
  std::size_t round_ = 0;
  bool failed_ = false;
};

} // namespace

void spawn_actor_client(caf::actor_system& system, world where, const client_task& task, demo_ledger& books,
                        std::latch& ended) {
  system.spawn<actor_client>(std::move(where), task, &books, &ended);
}

} // namespace troupe::program
