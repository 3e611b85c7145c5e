#include <troupe/program/bench/bench_pipelines.hpp>

#include <troupe/collectives/backend/solo_communicator.hpp>

#include <atomic>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace troupe::program {

namespace {

using steady = std::chrono::steady_clock;

/// Counts the answers of one round.
struct tally {
  std::atomic<std::size_t> missing{0};
  std::mutex guard;
  error failure;
};

class tally_sink final : public outcome_sink {
public:
  explicit tally_sink(tally& all) noexcept : all_{all} {}
  void deliver(outcome result) noexcept override {
    if (const error* why = failure_of(result)) {
      const std::lock_guard lock{all_.guard};
      if (!all_.failure) all_.failure = *why;
    }
    all_.missing.fetch_sub(1, std::memory_order_release);
  }

private:
  tally& all_;
};

} // namespace

bench_pipelines::bench_pipelines(runtime& rt, const world& where, wait_profile wait) {
  const auto time = std::make_shared<monotonic_clock>();
  const auto& first = where.device_of(where.local_ranks().front());
  poller_ = std::make_shared<poller>(time, wait, [first] { first->api().enter_thread(std::nullopt); });
  poller_->start();
  const pipeline_services services{
      .time = time, .poller = poller_, .slots = std::make_shared<slot_table>(first, where.local_ranks().size())};
  const int size = where.size();
  const unique_id id = size > 1 ? rt.make_unique_id() : unique_id{};
  for (const rank self : where.local_ranks()) {
    const auto& on = where.device_of(self);
    std::shared_ptr<communicator> peers =
        size > 1 ? rt.collectives().create(id, self, size, on) : std::make_shared<solo_communicator>(on);
    launchers_.push_back(std::make_shared<launcher>(on, wait, services.limits.check_interval));
    ranks_.push_back(rank_pipeline::create(services, std::move(peers), launchers_.back(), epoch{1}, {}));
  }
  on_all([](rank_pipeline& one) { one.init(); });
}

bench_pipelines::~bench_pipelines() {
  try {
    on_all([](rank_pipeline& one) { one.failed() ? one.abort() : one.close(); });
  } catch (const exception&) { // has been told by ask()
  }
  ranks_.clear();
  launchers_.clear();
  poller_->stop();
}

template <class Work>
void bench_pipelines::on_all(const Work& work) {
  std::vector<std::exception_ptr> failures(ranks_.size());
  {
    std::vector<std::jthread> helpers;
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      helpers.emplace_back([&, i] {
        try {
          work(*ranks_[i]);
        } catch (...) {
          failures[i] = std::current_exception();
        }
      });
  }
  for (const auto& one : failures)
    if (one) std::rethrow_exception(one);
}

nanoseconds bench_pipelines::ask(const std::vector<std::vector<operation>>& parts, bool together) {
  constexpr nanoseconds patience{std::chrono::seconds{60}};
  tally all;
  for (const auto& each : parts) all.missing += each.size();
  const auto began = steady::now();
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    std::vector<submission> batch;
    batch.reserve(parts[r].size());
    for (const operation& what : parts[r]) {
      submission one{.name = ticket{1},
                     .what = what,
                     .deadline = patience,
                     .reply = reply_promise{std::make_unique<tally_sink>(all)}};
      if (together)
        batch.push_back(std::move(one));
      else
        ranks_[r]->submit(std::move(one));
    }
    if (together) ranks_[r]->submit_together(std::move(batch));
  }
  while (all.missing.load(std::memory_order_acquire) > 0) spin_pause();
  const auto ended = steady::now();
  if (all.failure) throw exception{all.failure};
  return ended - began;
}

} // namespace troupe::program
