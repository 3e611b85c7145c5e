#include <troupe/completion/poller/wake_signal.hpp>
#include <troupe/program/bench/bench_asker.hpp>

#include <deque>
#include <utility>

namespace troupe::program {

namespace {

using steady = std::chrono::steady_clock;

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
      while (reply.wait_for(nanoseconds{0}) != std::future_status::ready) spin_pause();
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

} // namespace troupe::program
