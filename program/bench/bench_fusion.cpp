/// `troupe bench fusion`: compares several all_reduces launched one at a time with one launch of all. The size from
/// which one launch is no longer faster determines the limits of fusion.

#include <troupe/collectives/backend/solo_communicator.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/program/bench/bench.hpp>
#include <troupe/program/bench/frame/asker.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>
#include <troupe/program/support/text_table.hpp>
#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/runtime.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::program {

/// Separate pipelines, with their own launchers, poller and communicators, over the same GPUs as \p where. They must
/// not be used while those of troupe are busy.
class bench_pipelines {
public:
  /// \p wait applies to the launchers and the poller.
  bench_pipelines(runtime& rt, const world& where, wait_profile wait);
  bench_pipelines(const bench_pipelines&) = delete;
  bench_pipelines& operator=(const bench_pipelines&) = delete;
  ~bench_pipelines();

  /// Submits \p parts[r] to rank r, as one launch if \p together, otherwise one operation at a time, and spins until
  /// all are answered. Returns the time from the first submission to the last reply. Throws the first error.
  [[nodiscard]] nanoseconds ask(const std::vector<std::vector<operation>>& parts, bool together);

private:
  template <class Work>
  void on_all(const Work& work);

  std::shared_ptr<poller> poller_;
  std::vector<std::shared_ptr<launcher>> launchers_;
  std::vector<std::shared_ptr<rank_pipeline>> ranks_;
};

namespace {

using steady = std::chrono::steady_clock;

/// Counts the replies of one round.
struct tally {
  std::atomic<std::size_t> missing{0};
  std::mutex mutex;
  error failure;
};

class tally_sink final : public outcome_sink {
public:
  explicit tally_sink(tally& all) noexcept : all_{all} {}
  void deliver(outcome result) noexcept override {
    if (const error* why = failure_of(result)) {
      const std::lock_guard lock{all_.mutex};
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
  } catch (const exception&) { // ask() has reported it.
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

namespace {

struct fusion_options {
  bench_options common{7, 20};
  std::vector<std::size_t> counts{2, 8, 64};
  std::string begin = "8";
  std::string end = "4M";
  std::size_t factor = 4;
};

/// One column of the table: separate launches or one launch, by direct NCCL calls or through the pipelines.
struct fusion_contender {
  const char* asker;
  const char* way;
  bool together;
  bool piped;
};
constexpr std::array<fusion_contender, 4> fusion_contenders{{{"raw", "separate", false, false},
                                                             {"raw", "together", true, false},
                                                             {"pipelines", "separate", false, true},
                                                             {"pipelines", "together", true, true}}};

/// \p count all_reduces of one size on every rank, each in place and in its own memory.
class fusion_trial {
public:
  fusion_trial(const std::vector<buffer>& memory, std::size_t count, std::size_t bytes) : count_{count}, bytes_{bytes} {
    parts_ = by_rank(make_sums(memory, bytes, count));
    for (const auto& mine : parts_) {
      auto& all = addresses_.emplace_back();
      for (const operation& one : mine) all.push_back(&one);
    }
  }

  [[nodiscard]] double measure(const fusion_contender& how, raw_ranks& raw, bench_pipelines& pipelines) const {
    if (how.piped) return in_microseconds(pipelines.ask(parts_, how.together));
    return in_microseconds(raw.time([&](std::size_t index, communicator& peers, stream_ref stream) {
      if (how.together) return peers.launch_together(addresses_[index], stream);
      for (const operation* one : addresses_[index]) peers.launch(*one, stream);
    }));
  }

  /// Returns, for each block, the time of one launch divided by that of separate launches. Below 1, fusion is faster.
  [[nodiscard]] std::vector<double> ratios(std::size_t together) const {
    return paired_ratios(figures[together].p50, figures[together - 1].p50);
  }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes_; }

  std::array<block_figures, fusion_contenders.size()> figures{};

private:
  std::size_t count_;
  std::size_t bytes_;
  std::vector<std::vector<operation>> parts_;
  std::vector<std::vector<const operation*>> addresses_;
};

void print_row(const text_table& table, const fusion_trial& trial) {
  std::vector<std::string> cells{std::to_string(trial.count()), std::to_string(trial.size_bytes())};
  for (std::size_t what = 0; what < fusion_contenders.size(); ++what) {
    cells.push_back(fixed(median(trial.figures[what].p50)));
    cells.push_back(fixed(median(trial.figures[what].p99)));
    if (fusion_contenders[what].together) cells.push_back(fixed(median(trial.ratios(what)), 3));
  }
  table.print_row(cells);
}

json row_report(const fusion_trial& trial) {
  json row{{"count", trial.count()}, {"size_bytes", trial.size_bytes()}};
  for (std::size_t what = 0; what < fusion_contenders.size(); ++what) {
    const fusion_contender& how = fusion_contenders[what];
    json& cell = row[how.asker][how.way] = figures_report(trial.figures[what]);
    if (how.together) cell["of_separate"] = by_block(trial.ratios(what));
  }
  return row;
}

std::vector<table_column> fusion_columns() {
  std::vector<table_column> all{{"count", "", 6}, {"size", "(B)", 9}};
  for (const fusion_contender& one : fusion_contenders) {
    all.insert(all.end(), {{one.asker, std::string{one.way} + " p50", 13}, {"", "p99", 9}});
    if (one.together) all.push_back({"ratio", "", 7});
  }
  return all;
}

int run(const fusion_options& options) {
  const auto sizes =
      sizes_between(parse_byte_size(options.begin), parse_byte_size(options.end), {.factor = options.factor});
  const std::size_t most = *std::ranges::max_element(options.counts);
  bench_session session{"fusion", options.common};
  const configuration settings = options.common.runtime.settings();
  runtime rt{settings};
  world where = rt.form_world();
  const auto memory = allocate_operands(where, operand_memory::pool, sums_bytes(sizes.back(), most));
  raw_ranks raw{rt, where};
  // The raw threads, the launchers, the poller and the client thread all spin at the same time.
  const chosen_wait wait =
      choose_wait(settings.profile, 2 * where.local_ranks().size() + 2, std::thread::hardware_concurrency());
  bench_pipelines pipelines{rt, where, wait.wait};

  session.begin(
      rt, where,
      {"all_reduces of f32 in place, " + std::to_string(where.size()) + " ranks",
       std::to_string(options.common.iterations) + " of each in each of " + std::to_string(options.common.blocks) +
           " interleaved blocks, medians of blocks, us from the first request to the last completion on every rank",
       "raw: NCCL's own calls, one spinning thread for each GPU, one by one or in one group; ratio: together / "
       "separate",
       "pipelines: the same from one thread through launchers and poller, profile " +
           std::string{to_string(wait.used)} + ", each with a reply of its own"},
      {{"iterations", options.common.iterations}, {"blocks", options.common.blocks}, {"counts", options.counts}});

  progress_line progress{stderr, static_cast<double>(options.counts.size() * sizes.size())};
  const text_table table{session.out(), fusion_columns()};
  table.print_heading();
  for (const std::size_t count : options.counts)
    for (const std::size_t bytes : sizes) {
      fusion_trial trial{memory, count, bytes};
      trial.figures = sample_blocks<fusion_contenders.size()>(
          options.common, options.common.iterations,
          [&](std::size_t what) { return trial.measure(fusion_contenders[what], raw, pipelines); },
          [&](std::size_t) { progress.show(std::to_string(count) + " of " + std::to_string(bytes) + " bytes"); });
      progress.done(1);
      progress.clear();
      print_row(table, trial);
      session.add_row(row_report(trial));
    }
  return session.finish();
}

void add_options(CLI::App& command, fusion_options& options) {
  options.common.add_to(command, "samples of each figure in a block", 100'000);
  options.common.add_plot_to(command);
  add_list(command, "--counts", options.counts, "numbers of all_reduces, comma-separated")->check(CLI::Range(1, 1'000));
  add_size(command, "-b,--minbytes", options.begin, "smallest size, e.g. 8", "8");
  add_size(command, "-e,--maxbytes", options.end, "largest size, e.g. 4M", "8");
  add_number(command, "-f,--stepfactor", options.factor, "factor from one size to the next", 2, 1024);
}

} // namespace

bench_entry fusion_bench() {
  return {.name = "fusion",
          .what = "several all_reduces one by one, compared with a single launch",
          .add = measured_by<fusion_options>(&add_options, &run)};
}

} // namespace troupe::program
