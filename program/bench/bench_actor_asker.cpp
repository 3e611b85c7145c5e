#include <troupe/program/bench/bench_asker.hpp>

#include <algorithm>
#include <utility>

namespace troupe::program {

namespace {

class actor_asker final : public asker {
public:
  actor_asker(caf::actor_system& system, const world& where) : crew_{system, where, 1} {}

  [[nodiscard]] std::string_view name() const noexcept override { return "actor"; }

  [[nodiscard]] series ask(const std::vector<operation>& parts, std::size_t total, std::size_t depth) override {
    const auto times = crew_.run({std::make_shared<const client_work>(client_work{.slots = {parts}})}, total, depth);
    series result{.all = span_of(times)};
    for (const request_times& one : times.front()) result.each.push_back(one.replied - one.asked);
    return result;
  }

private:
  client_crew crew_;
};

class rank_actor_asker final : public asker {
public:
  rank_actor_asker(caf::actor_system& system, const world& where, lane in)
    : ranks_{where.local_ranks()}, lane_{in}, crew_{system, where, ranks_.size()} {}

  [[nodiscard]] std::string_view name() const noexcept override { return "rank actors"; }

  [[nodiscard]] series ask(const std::vector<operation>& parts, std::size_t total, std::size_t depth) override {
    std::vector<std::shared_ptr<const client_work>> work;
    for (std::size_t r = 0; r < ranks_.size(); ++r)
      work.push_back(std::make_shared<const client_work>(
          client_work{.slots = {{parts.at(r)}}, .whom = ranks_[r], .lanes = {lane_}}));
    const auto times = crew_.run(work, total, depth);
    series result{.all = span_of(times)};
    for (std::size_t i = 0; i < total; ++i) {
      time_point first = time_point::max();
      time_point last = time_point::min();
      for (const auto& rank : times) {
        result.each.push_back(rank[i].replied - rank[i].asked);
        first = std::min(first, rank[i].asked);
        last = std::max(last, rank[i].replied);
      }
      result.spans.push_back(last - first);
    }
    return result;
  }

private:
  std::vector<rank> ranks_;
  lane lane_;
  client_crew crew_;
};

} // namespace

std::unique_ptr<asker> make_actor_asker(caf::actor_system& system, world where) {
  return std::make_unique<actor_asker>(system, std::move(where));
}

std::unique_ptr<asker> make_rank_actor_asker(caf::actor_system& system, world where, lane in) {
  return std::make_unique<rank_actor_asker>(system, std::move(where), in);
}

} // namespace troupe::program
