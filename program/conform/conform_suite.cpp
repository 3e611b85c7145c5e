#include <troupe/program/conform/conform_pieces.hpp>
#include <troupe/program/conform/conform_suite.hpp>

#include <future>
#include <utility>

namespace troupe::program {

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

conform_suite::conform_suite(world where, std::uint64_t seed, std::string only, hooks reports)
  : world_{std::move(where)},
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
  conform_runner runner{
      where, scope.seed, scope.room_bytes(), {.failed = [this](const std::string& name, const std::string& what) {
        const std::lock_guard lock{reporting_};
        reports_.failed(name, what);
      }}};
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
  if (world_.local_ranks().size() != static_cast<std::size_t>(world_.size())) {
    // Worlds that share a GPU must be asked in one order by all processes, so they run one after another.
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (!made[i].handle) continue;
      sums += run(*scopes[i], *made[i].handle, chosen_);
      made[i].handle->stop();
    }
    return sums;
  }
  {
    std::vector<std::future<conform_tally>> running;
    for (std::size_t i = 0; i < made.size(); ++i)
      running.push_back(std::async(std::launch::async, [this, where = *made[i].handle, scope = scopes[i]] {
        return run(*scope, where, [this](const std::string& name) { return chosen_(name) && is_for_world(name); });
      }));
    for (auto& one : running) sums += one.get();
  }
  for (std::size_t i = 0; i < made.size(); ++i) {
    sums += run(*scopes[i], *made[i].handle,
                [this](const std::string& name) { return chosen_(name) && !is_for_world(name); });
    made[i].handle->stop();
  }
  return sums;
}

} // namespace troupe::program
