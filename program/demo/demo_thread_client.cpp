#include <troupe/program/demo/demo_batch.hpp>
#include <troupe/program/demo/demo_clients.hpp>

#include <troupe/runtime/rank_lane.hpp>

#include <future>
#include <map>
#include <utility>

namespace troupe::program {

namespace {

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
  demo_batch batch{where, task.ranks, task.requests, task.count, task.seed};
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

} // namespace troupe::program
