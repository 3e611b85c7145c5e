#include <troupe/program/conform/conform_pieces.hpp>
#include <troupe/program/conform/conform_runner.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <thread>
#include <utility>

namespace troupe::program {

namespace {

constexpr std::size_t most_in_flight = 64; ///< The limit of cases, far below the capacity of device and proxy queues.

error outcome_of(std::future<completion> reply, const std::optional<agreed_value>& expected = {}) {
  try {
    const completion result = reply.get();
    if (!expected && !result.agreed) return {};
    if (expected && result.agreed && result.agreed->bytes == expected->bytes &&
        result.agreed->part_sizes == expected->part_sizes)
      return {};
    return {.code = errc::internal, .text = "a reply has another agreed value than it should, or none"};
  } catch (const exception& failure) {
    return failure.why();
  }
}

/// Shuffles the sends and receives among their places. Collectives keep their order.
void shuffle_transfers(std::vector<operation>& all, const std::vector<std::size_t>& transfers, draws draw) {
  for (std::size_t i = transfers.size(); i > 1; --i) std::swap(all[transfers[i - 1]], all[transfers[draw.below(i)]]);
}

} // namespace

std::size_t conform_tally::skipped_in_all() const {
  std::size_t all = 0;
  for (const auto& [reason, count] : skipped) all += count;
  return all;
}

conform_tally& conform_tally::operator+=(const conform_tally& other) {
  passed += other.passed;
  failed += other.failed;
  not_run += other.not_run;
  for (const auto& [reason, count] : other.skipped) skipped[reason] += count;
  return *this;
}

namespace {

constexpr std::size_t host_share = 4; // Only copies use host memory.
constexpr std::size_t most_batches = 4096;

std::string ready_name(std::size_t batch) {
  return "conform batch " + std::to_string(batch);
}

} // namespace

conform_meeting::conform_meeting(world where, rank self, std::uint64_t seed)
  : scope_{.ranks = where.size(), .seed = seed},
    world_{std::move(where)},
    self_{self},
    formed_{world_->epoch()},
    done_{world_->allocate_pinned(sizeof(std::uint64_t))} {
  const std::size_t image_bytes = scope_.room_bytes();
  for (int r = 0; r < scope_.ranks; ++r) {
    if (rank{r} == self_) {
      on_device_.emplace_back(*world_, self_, memory_kind::device, image_bytes);
      on_host_.emplace_back(*world_, self_, memory_kind::pinned, image_bytes / host_share);
      continue;
    }
    on_device_.emplace_back(remote_buffer{.size_bytes = image_bytes}.as_buffer());
    on_host_.emplace_back(remote_buffer{.size_bytes = image_bytes / host_share, .on_host = true}.as_buffer());
  }
  const auto index = static_cast<std::size_t>(self_.value());
  const buffer counts = world_->allocate_pinned(most_batches * sizeof(std::uint64_t));
  for (std::size_t i = 0; auto& one : counts.host_span<std::uint64_t>()) one = i++;
  done_.host_span<std::uint64_t>()[0] = 0;
  static_cast<void>(world_->export_memory(self_, on_device_[index].memory(), "conform device"));
  static_cast<void>(world_->export_memory(self_, on_host_[index].memory(), "conform host"));
  static_cast<void>(world_->export_memory(self_, counts, "conform counts"));
  static_cast<void>(world_->export_memory(self_, done_, "conform done"));
}

conform_meeting::conform_meeting(int ranks, std::uint64_t seed,
                                 std::function<std::future<completion>(std::vector<operation>)> ask,
                                 std::function<std::future<remote_buffer>(rank, const std::string&)> find)
  : scope_{.ranks = ranks, .seed = seed}, ask_{std::move(ask)}, find_{std::move(find)} {
  for (int r = 0; r < ranks; ++r) {
    flags_.push_back(wait_for(rank{r}, "conform done")); // exported last, so the others can be found
    counts_.push_back(wait_for(rank{r}, "conform counts"));
    on_device_.emplace_back(wait_for(rank{r}, "conform device").as_buffer());
    on_host_.emplace_back(wait_for(rank{r}, "conform host").as_buffer());
    if (on_device_.back().size_bytes() != scope_.room_bytes())
      throw exception{errc::internal, "the processes of the suite use different amounts of memory"};
  }
}

remote_buffer conform_meeting::wait_for(rank target, const std::string& name) const {
  for (const auto until = std::chrono::steady_clock::now() + std::chrono::minutes{5};;) {
    try {
      return find_(target, name).get();
    } catch (const exception& failure) {
      if (failure.why().code != errc::missing || std::chrono::steady_clock::now() > until) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }
}

void conform_meeting::begin_batch() {
  if (++batch_ >= most_batches) throw exception{errc::internal, "the suite has too many batches"};
  if (is_asker()) {
    for (int r = 0; r < scope_.ranks; ++r) static_cast<void>(wait_for(rank{r}, ready_name(batch_)));
    return;
  }
  const buffer token = world_->allocate_pinned(1);
  const remote_buffer ready = world_->export_memory(self_, token, ready_name(batch_));
  const std::atomic_ref<std::uint64_t> done{done_.host_span<std::uint64_t>()[0]};
  while (done.load(std::memory_order_acquire) < batch_) {
    if (const world_event now = world_->status(); now.phase != world_phase::ready || now.epoch != formed_)
      throw exception{now.reason ? now.reason : error{.code = errc::rebuilding, .text = describe(now)}};
    std::this_thread::sleep_for(std::chrono::microseconds{200});
  }
  world_->unexport(ready);
}

void conform_meeting::end_batch() {
  std::vector<operation> reports;
  for (std::size_t r = 0; r < flags_.size(); ++r)
    reports.emplace_back(copy{counts_[r].slice(batch_ * sizeof(std::uint64_t), sizeof(std::uint64_t)).as_buffer(),
                              flags_[r].as_buffer()});
  static_cast<void>(ask_(std::move(reports)).get());
}

conform_runner::conform_runner(world where, std::uint64_t seed, std::size_t image_bytes, hooks reports)
  : world_{std::move(where)},
    ranks_{world_->size()},
    reports_{std::move(reports)},
    locals_{world_->local_ranks()},
    is_whole_{locals_.size() == static_cast<std::size_t>(ranks_)},
    on_device_{own_on_device_},
    on_host_{own_on_host_},
    values_{ranks_, seed} {
  for (const rank self : locals_) {
    on_device_.emplace_back(*world_, self, memory_kind::device, image_bytes);
    on_host_.emplace_back(*world_, self, memory_kind::pinned, image_bytes / host_share);
  }
}

conform_runner::conform_runner(std::optional<world> where, conform_meeting& meeting, hooks reports)
  : world_{std::move(where)},
    meeting_{&meeting},
    ranks_{meeting.scope().ranks},
    reports_{std::move(reports)},
    is_whole_{true},
    on_device_{meeting.on_device()},
    on_host_{meeting.on_host()},
    values_{ranks_, meeting.scope().seed} {
  for (int r = 0; r < ranks_; ++r) locals_.emplace_back(r);
}

std::optional<std::size_t> conform_runner::place_of(int one) const {
  const auto found = std::ranges::find(locals_, rank{one});
  if (found == locals_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - locals_.begin());
}

conform_image* conform_runner::image_of(const conform_range& range) {
  const auto place = place_of(range.owner);
  return place ? &(range.on_host ? on_host_ : on_device_)[*place] : nullptr;
}

bool conform_runner::fits(const conform_case& what) {
  std::map<conform_image*, std::size_t> needed;
  for (const conform_piece& piece : what.pieces)
    for (const conform_range& range : piece.ranges)
      if (conform_image* const image = image_of(range)) needed[image] += conform_image::room_for(range);
  return std::ranges::all_of(needed, [](const auto& one) { return one.first->has_room_for(one.second); });
}

void conform_runner::run(conform_case what) {
  if (!fits(what)) run_batch();
  if (!fits(what))
    return fail(what.name, "it needs more memory than the suite has allocated: this is a bug in the suite");
  batch_.push_back(place(std::move(what)));
}

void conform_runner::finish() {
  run_batch();
}

conform_runner::entry conform_runner::place(conform_case what) {
  entry made{.name = what.name, .by_rank = meeting_ == nullptr && (what.by_rank || !is_whole_)};
  for (conform_piece& piece : what.pieces) {
    if (piece.agreed) made.agreed = piece.agreed;
    for (conform_range& range : piece.ranges) {
      conform_image* const image = image_of(range);
      const auto values = image != nullptr && !image->is_elsewhere() ? values_.of(range.values) : nullptr;
      made.memory.push_back({image, image != nullptr ? image->place(std::move(range), values) : 0});
    }
  }
  auto operations = operations_of(what, made.memory);
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (!is_local(static_cast<int>(i))) continue;
    // This rank has no request. In a request to all ranks it has an empty group.
    if (operations[i].empty() && !what.grouped && what.by_rank && meeting_ == nullptr) continue;
    made.ranks.emplace_back(static_cast<int>(i));
    const bool alone = !what.grouped && operations[i].size() == 1;
    made.parts.push_back(alone ? std::move(operations[i].front()) : operation{group{std::move(operations[i])}});
  }
  return made;
}

std::vector<std::vector<operation>> conform_runner::operations_of(const conform_case& what,
                                                                  const std::vector<placed>& memory) const {
  const auto ranks = static_cast<std::size_t>(ranks_);
  std::vector<std::vector<operation>> all(ranks);
  std::vector<std::vector<std::size_t>> transfers(ranks);
  std::size_t next = 0;
  for (const conform_piece& piece : what.pieces) {
    std::vector<buffer> buffers;
    for (std::size_t i = 0; i < piece.ranges.size(); ++i, ++next)
      buffers.push_back(memory[next].image != nullptr ? memory[next].image->memory_of(memory[next].number) : buffer{});
    for (const conform_step& step : piece.steps) {
      if (!is_local(step.rank)) continue;
      const auto self = static_cast<std::size_t>(step.rank);
      if (step.meets_peer) transfers[self].push_back(all[self].size());
      all[self].push_back(step.make(buffers));
    }
  }
  if (what.shuffled)
    for (std::size_t i = 0; i < ranks; ++i) shuffle_transfers(all[i], transfers[i], draws{*what.shuffled + i});
  return all;
}

void conform_runner::run_batch() {
  const auto blame = [this](const error& why) {
    for (entry& one : batch_)
      if (!one.failure) one.failure = why;
  };
  if (copy_all(&conform_image::upload)) {
    blame({.code = errc::world_failed});
  } else {
    if (meeting_ != nullptr) meeting_->begin_batch();
    if (meeting_ == nullptr || meeting_->is_asker()) ask();
    if (meeting_ != nullptr && meeting_->is_asker()) meeting_->end_batch();
    if (const error lost = copy_all(&conform_image::download)) blame(lost); // The world has failed meanwhile.
  }
  for (entry& one : batch_) judge(one);
  batch_.clear();
  for (auto* const images : {&on_device_, &on_host_})
    for (conform_image& one : *images) one.clear();
}

error conform_runner::copy_all(copy (conform_image::*direction)() const) {
  std::vector<std::future<completion>> copies;
  for (auto* const images : {&on_device_, &on_host_})
    for (std::size_t i = 0; i < images->size(); ++i)
      if (!(*images)[i].is_elsewhere()) copies.push_back(world_->ask(locals_[i], ((*images)[i].*direction)()));
  error first;
  for (auto& one : copies)
    if (error failure = outcome_of(std::move(one)); failure && !first) first = std::move(failure);
  return first;
}

void conform_runner::ask() {
  std::deque<std::pair<entry*, std::vector<std::future<completion>>>> asked;
  const auto await_first = [&] {
    auto& [one, replies] = asked.front();
    for (auto& reply : replies)
      if (error failure = outcome_of(std::move(reply), one->agreed); failure && !one->failure)
        one->failure = std::move(failure);
    asked.pop_front();
  };
  for (entry& one : batch_) {
    if (asked.size() == most_in_flight) await_first();
    while (reports_.apart && !asked.empty() && asked.back().first->by_rank != one.by_rank) await_first();
    if (reports_.meddle) reports_.meddle(one.parts);
    asked.emplace_back(&one, ask(one));
  }
  while (!asked.empty()) await_first();
}

std::vector<std::future<completion>> conform_runner::ask(const entry& one) {
  std::vector<std::future<completion>> replies;
  if (meeting_ != nullptr)
    replies.push_back(meeting_->ask(one.parts));
  else if (!one.by_rank)
    replies.push_back(world_->ask(one.parts));
  else
    for (std::size_t i = 0; i < one.parts.size(); ++i) replies.push_back(world_->ask(one.ranks[i], one.parts[i]));
  return replies;
}

void conform_runner::judge(entry& one) {
  if (one.failure.code == errc::world_failed) {
    ++tally_.failed;
    ++tally_.not_run;
    return;
  }
  if (one.failure.code == errc::unsupported && one.failure.effect == effect::rejected) {
    ++tally_.skipped[one.failure.text];
    return;
  }
  if (one.failure) return fail(one.name, to_string(one.failure));
  if (meeting_ != nullptr && !meeting_->is_asker()) { // in the asker, the error of the request says so
    const auto index = static_cast<std::size_t>(world_->local_ranks().front().value());
    if (const error why = world_->capabilities().objection_to(one.parts[index], ranks_)) {
      ++tally_.skipped[why.text];
      return;
    }
  }
  std::string first;
  std::size_t more = 0;
  for (const placed& range : one.memory) {
    if (range.image == nullptr || range.image->is_elsewhere()) continue;
    if (std::string fault = range.image->find_fault(range.number); !fault.empty()) {
      if (first.empty())
        first = std::move(fault);
      else
        ++more;
    }
  }
  if (first.empty()) {
    ++tally_.passed;
    return;
  }
  if (more > 0) first += " (and " + std::to_string(more) + " more of its ranges)";
  fail(one.name, first);
}

void conform_runner::fail(const std::string& name, const std::string& what) {
  ++tally_.failed;
  reports_.failed(name, what);
}

namespace {

/// Returns overlapping sub-worlds with other rank orders than the whole world's.
std::vector<rank_group> groups_of(int ranks) {
  std::vector<rank_group> all;
  if (ranks < 2) return all;
  rank_group reversed{"reversed", {}};
  for (int r = ranks - 1; r >= 0; --r) reversed.members.emplace_back(r);
  all.push_back(std::move(reversed));
  if (ranks < 3) return all;
  rank_group even{"even", {}};
  for (int r = 0; r < ranks; r += 2) even.members.emplace_back(r);
  all.push_back(std::move(even));
  all.push_back({"ends", {rank{ranks - 1}, rank{0}}});
  return all;
}

/// Returns three different dtypes in the order of all_dtypes.
std::vector<dtype> draw_types(std::uint64_t seed) {
  draws draw{seed};
  constexpr std::size_t third = std::size(all_dtypes) / 3;
  std::vector<dtype> drawn;
  for (std::size_t i = 0; i < 3; ++i) drawn.push_back(all_dtypes[i * third + draw.below(third)]);
  return drawn;
}

bool is_for_world(const std::string& name) {
  return name.ends_with("/world");
}

} // namespace

conform_tally run_meeting(std::optional<world> where, conform_meeting& meeting, const std::string& only,
                          const conform_runner::hooks& reports) {
  conform_runner runner{std::move(where), meeting, reports};
  visit_cases(meeting.scope(), [&](const std::string& name, const auto& make) {
    if (name.find(only) != std::string::npos) runner.run(make());
  });
  runner.finish();
  return runner.tally();
}

conform_suite::conform_suite(world where, ordering order, std::uint64_t seed, const std::string& only, hooks reports)
  : world_{std::move(where)},
    order_{order},
    chosen_{[only](const std::string& name) { return name.find(only) != std::string::npos; }},
    reports_{std::move(reports)},
    whole_{.ranks = world_.size(), .seed = seed} {
  for (rank_group& group : groups_of(world_.size())) {
    conform_scope scope{.ranks = static_cast<int>(group.members.size()),
                        .seed = seed,
                        .prefix = "sub-world/" + group.name + "/",
                        .types = draw_types(seed + parts_.size()),
                        .largest = whole_.largest / 16};
    parts_.push_back({std::move(group), std::move(scope)});
  }
  if (count_cases() == 0)
    throw exception{errc::invalid_argument,
                    "no case's name contains '" + only + "': docs/conformance.md describes the names"};
}

std::size_t conform_suite::count(const conform_scope& scope, const choice& chosen) {
  std::size_t all = 0;
  visit_cases(scope, [&](const std::string& name, const auto&) { all += chosen(name) ? 1U : 0U; });
  return all;
}

std::size_t conform_suite::count_cases() const {
  std::size_t all = count(whole_, chosen_);
  for (const split_scope& one : parts_) all += count(one.scope, chosen_);
  return all;
}

conform_tally conform_suite::run(const conform_scope& scope, const world& where, const choice& chosen) {
  if (count(scope, chosen) == 0) return {}; // Returns before any memory is allocated.
  conform_runner runner{where,
                        scope.seed,
                        scope.room_bytes(),
                        {.failed =
                             [this](const std::string& name, const std::string& what) {
                               const std::lock_guard lock{reporting_};
                               reports_.failed(name, what);
                             },
                         .apart = order_ == ordering::caller}};
  visit_cases(scope, [&](const std::string& name, const auto& make) {
    if (!chosen(name)) return;
    if (reports_.began) {
      const std::lock_guard lock{reporting_};
      reports_.began(name);
    }
    runner.run(make());
  });
  runner.finish();
  return runner.tally();
}

conform_tally conform_suite::run() {
  conform_tally sums = run(whole_, world_, chosen_);
  if (world_.status().phase == world_phase::ready) {
    sums += run_sub_worlds();
    return sums;
  }
  for (const split_scope& one : parts_) {
    const std::size_t missed = count(one.scope, chosen_);
    sums.failed += missed;
    sums.not_run += missed;
  }
  return sums;
}

conform_tally conform_suite::run_sub_worlds() {
  conform_tally sums;
  std::vector<rank_group> groups;
  std::vector<const conform_scope*> scopes;
  for (const split_scope& one : parts_)
    if (count(one.scope, chosen_) > 0) {
      groups.push_back(one.group);
      scopes.push_back(&one.scope);
    }
  if (groups.empty()) return sums;
  auto made = world_.split(std::move(groups));
  const auto run_each = [&](const choice& chosen) {
    for (std::size_t i = 0; i < made.size(); ++i)
      if (made[i].handle) sums += run(*scopes[i], *made[i].handle, chosen);
  };
  const bool is_whole = world_.local_ranks().size() == static_cast<std::size_t>(world_.size());
  const bool is_ordered = order_ == ordering::agreed;
  // If nobody orders requests to ranks of worlds that share GPUs, the clients must: these run one after another.
  if (!is_whole && !is_ordered) {
    run_each(chosen_);
    return sums;
  }
  const choice at_once = [&](const std::string& name) { return chosen_(name) && (is_ordered || is_for_world(name)); };
  std::vector<std::future<conform_tally>> running;
  for (std::size_t i = 0; i < made.size(); ++i)
    if (made[i].handle)
      running.push_back(std::async(std::launch::async, [this, where = *made[i].handle, scope = scopes[i], &at_once] {
        return run(*scope, where, at_once);
      }));
  for (auto& one : running) sums += one.get();
  if (!is_ordered) run_each([this](const std::string& name) { return chosen_(name) && !is_for_world(name); });
  return sums;
}

} // namespace troupe::program
