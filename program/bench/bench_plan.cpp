/// `troupe bench plan`: several small all_reduces as a captured plan that one message replays, compared with the same
/// graph captured by hand around NCCL's own calls, and with the same requests sent one by one.

#include <troupe/program/bench/bench.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>

#include <troupe/device/graph.hpp>
#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/runtime.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

using steady = std::chrono::steady_clock;

struct plan_bench_options {
  bench_options common{7, 20};
  std::size_t bytes = std::size_t{4} << 10U;
  std::size_t steps = 32;
};

/// The contenders in the order of the columns.
enum plan_contender : std::size_t { plan, raw, eager, plan_contender_count };
constexpr std::array<const char*, plan_contender_count> plan_contender_names{"plan", "raw graph", "eager"};

/// Memory of one rank: the input and the result of each step, and the destination of the copy behind it.
struct step_memory {
  buffer sent;
  buffer got;
  buffer moved;
};

/// How the all_reduces of a plan follow each other.
enum class between : std::uint8_t {
  work,    ///< A device copy behind each one, which stands for a client's kernel.
  order,   ///< Nothing, but each one is launched by itself, behind the one before it.
  nothing, ///< They can be launched together.
};

/// A number of all_reduces.
class workload {
public:
  workload(world where, runtime& rt, const plan_bench_options& options, std::size_t bytes, between what)
    : world_{std::move(where)},
      bytes_{bytes},
      stride_{(bytes + 255) / 256 * 256},
      steps_{options.steps},
      between_{what},
      raw_{rt, world_} {
    for (const rank self : local_) {
      step_memory& mine = memory_.emplace_back();
      for (buffer* one : {&mine.sent, &mine.got, &mine.moved}) *one = world_.allocate(self, steps_ * stride_);
    }
    // In a world over processes, each process sends the requests of its own rank.
    if (local_.size() < static_cast<std::size_t>(world_.size()))
      own_lane_.emplace_back(world_, local_.front(), lane::named("plan bench"));
    set_all(&step_memory::sent, [](rank self) { return static_cast<float>(self.value() + 1); });
    build_requests();
    // With nothing between, requests are fused: by troupe if one request has all ranks' parts, else by the function.
    plan_ = between_ != between::nothing || !own_lane_.empty()
                ? world_.capture([this](rank_capture& one) { capture(one); })
                : world_.capture(sums_);
    capture_by_hand();
  }
  workload(const workload&) = delete;
  workload& operator=(const workload&) = delete;
  ~workload() = default;

  [[nodiscard]] const char* name() const noexcept {
    constexpr std::array names{"work between", "one by one", "requests alone"};
    return names[static_cast<std::size_t>(between_)];
  }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes_; }

  /// Runs \p what once and returns its time in microseconds.
  [[nodiscard]] double measure(plan_contender what) {
    // Processes begin together. Otherwise a process would also measure how far another one is behind.
    if (!own_lane_.empty()) static_cast<void>(own_lane_.front().ask(barrier{}).get());
    if (what == raw)
      return in_microseconds(
          raw_.time([this](std::size_t index, communicator&, stream_ref stream) { by_hand_[index]->launch(stream); }));
    if (what == eager) return requests_->ask(world_, own_lane_, false);
    const auto began = steady::now();
    auto reply = own_lane_.empty() ? world_.replay(plan_) : own_lane_.front().replay(plan_);
    spin_until_answered(reply);
    const auto ended = steady::now();
    static_cast<void>(reply.get());
    return in_microseconds(ended - began);
  }

  /// Runs \p what once and returns how many elements are wrong afterwards.
  [[nodiscard]] std::size_t wrong_after(plan_contender what) {
    constexpr float untouched = -1;
    for (const auto which : {&step_memory::got, &step_memory::moved}) set_all(which, [](rank) { return untouched; });
    static_cast<void>(measure(what));
    const int all = world_.size() * (world_.size() + 1) / 2;
    const auto sum = static_cast<float>(all);
    return count_other(&step_memory::got, sum) +
           count_other(&step_memory::moved, between_ == between::work ? sum : untouched);
  }

  std::array<block_figures, plan_contender_count> figures{};

private:
  /// Returns the index of \p self among the ranks of this process.
  [[nodiscard]] std::size_t index_of(rank self) const {
    return static_cast<std::size_t>(std::ranges::find(local_, self) - local_.begin());
  }
  [[nodiscard]] buffer part(const buffer& whole, std::size_t step) const { return whole.slice(step * stride_, bytes_); }

  void build_requests() {
    plan_steps requests;
    for (std::size_t k = 0; k < steps_; ++k) {
      auto& sums = sums_.emplace_back();
      std::vector<operation> moves;
      for (const step_memory& mine : memory_) {
        sums.emplace_back(all_reduce{part(mine.sent, k), part(mine.got, k), bytes_ / sizeof(float)});
        moves.emplace_back(copy{part(mine.got, k), part(mine.moved, k)});
      }
      requests.push_back(sums);
      if (between_ == between::work) requests.push_back(std::move(moves));
    }
    requests_.emplace(std::move(requests));
  }

  void work_behind(std::size_t index, std::size_t step, stream_ref stream) const {
    stream.copy(part(memory_[index].moved, step).data(), part(memory_[index].got, step).data(), bytes_);
  }

  void capture(rank_capture& one) const {
    const std::size_t index = index_of(one.self());
    if (between_ == between::nothing) {
      std::vector<operation> together;
      for (std::size_t k = 0; k < steps_; ++k) together.push_back(sums_[k][index]);
      return one.launch_together(std::move(together));
    }
    for (std::size_t k = 0; k < steps_; ++k) {
      one.launch(sums_[k][index]);
      if (between_ == between::work) work_behind(index, k, one.stream());
    }
  }

  /// Captures each rank's graph around direct NCCL calls. With nothing between them, the all_reduces form one group.
  void capture_by_hand() {
    by_hand_.resize(memory_.size());
    static_cast<void>(raw_.time([this](std::size_t index, communicator& peers, stream_ref stream) {
      stream_capture capturing{peers.where(), stream};
      std::vector<const operation*> all;
      for (std::size_t k = 0; k < steps_; ++k) {
        all.push_back(&sums_[k][index]);
        if (between_ == between::nothing) continue;
        peers.launch(*all.back(), stream);
        if (between_ == between::work) work_behind(index, k, stream);
      }
      if (between_ == between::nothing) peers.launch_together(all, stream);
      by_hand_[index] = std::make_unique<graph>(capturing.end());
    }));
  }

  template <class Value>
  void set_all(buffer step_memory::*which, Value value_of) {
    const buffer host = world_.allocate_pinned(steps_ * stride_);
    for (const rank self : local_) {
      std::ranges::fill(host.host_span<float>(), value_of(self));
      world_.copy(self, host, memory_[index_of(self)].*which).get();
    }
  }

  /// Returns how many elements in \p which buffer of all ranks and steps differ from \p value.
  [[nodiscard]] std::size_t count_other(buffer step_memory::*which, float value) {
    const buffer host = world_.allocate_pinned(steps_ * stride_);
    std::size_t wrong = 0;
    for (const rank self : local_) {
      world_.copy(self, memory_[index_of(self)].*which, host).get();
      for (std::size_t k = 0; k < steps_; ++k) {
        const auto seen = part(host, k).host_span<float>();
        wrong += static_cast<std::size_t>(std::ranges::count_if(seen, [=](float one) { return one != value; }));
      }
    }
    return wrong;
  }

  world world_;
  std::vector<rank> local_ = world_.local_ranks();
  std::vector<rank_lane> own_lane_{}; ///< Empty if requests go to the world.
  std::size_t bytes_;
  std::size_t stride_;
  std::size_t steps_;
  between between_;
  std::vector<step_memory> memory_;
  plan_steps sums_;
  std::optional<request_burst> requests_;
  raw_ranks raw_;
  std::vector<std::unique_ptr<graph>> by_hand_; ///< Destroyed before raw_, whose communicators they use.
  std::shared_ptr<captured_plan> plan_;
};

std::vector<double> ratios(const workload& what, plan_contender to) {
  return paired_ratios(what.figures[plan].p50, what.figures[to].p50);
}

json row_report(const workload& what, std::size_t wrong) {
  json row{{"workload", what.name()}, {"size_bytes", what.size_bytes()}};
  for (std::size_t who = 0; who < plan_contender_count; ++who)
    row[plan_contender_names[who]] = figures_report(what.figures[who]);
  for (const auto& [name, other] : {std::pair{"of_raw", raw}, std::pair{"of_eager", eager}})
    row["plan"][name] = by_block(ratios(what, other));
  row["wrong"] = wrong;
  return row;
}

std::vector<table_column> plan_columns() {
  std::vector<table_column> all{{"workload", "", 14, "workload"}, {"size", "(B)", 9, "size_bytes"}};
  for (const std::string one : plan_contender_names)
    all.insert(all.end(), {{one, "p50", 10, one + "/p50"}, {"", "p99", 10, one + "/p99"}});
  all.insert(all.end(), {{"plan/raw", "", 9, "plan/of_raw/p50", 3},
                         {"plan/eager", "", 11, "plan/of_eager/p50", 3},
                         {"#wrong", "", 7, "wrong"}});
  return all;
}

int run(const plan_bench_options& options) {
  const std::size_t bytes = float_bytes(options.bytes);
  bench_session session{"plan", options.common};
  const configuration settings = options.common.runtime.settings();
  const std::size_t waiting = 2 * options.steps; // an all_reduce and a copy for each, all asked before the first wait
  expect_lead(settings, waiting, std::to_string(options.steps) + " steps", "--steps");
  runtime rt{settings};
  const world where = rt.form_world();
  session.begin(
      rt, where,
      {std::to_string(options.steps) + " all_reduces of f32, " + std::to_string(where.size()) + " ranks",
       std::to_string(options.common.iterations) + " of each in each of " + std::to_string(options.common.blocks) +
           " interleaved blocks, medians of blocks, us from the first request to the last completion on every rank",
       "work between: a device copy behind each; one by one: no copies, each behind the last; requests alone: without "
       "order, so that they can be fused",
       "plan: captured by troupe, replayed by one message",
       "raw graph: captured by hand, one spinning thread for each GPU",
       "eager: a separate request for every all_reduce and copy, all sent before the first wait, fusion " +
           std::string{to_string(settings.fusion.mode)}},
      {{"steps", options.steps}, {"iterations", options.common.iterations}, {"blocks", options.common.blocks}});

  progress_line progress{stderr, 3};
  session.open_table(plan_columns());
  std::size_t wrong = 0;
  for (const between what_stands : {between::work, between::order, between::nothing}) {
    workload what{where, rt, options, bytes, what_stands};
    std::size_t mine = 0;
    for (std::size_t who = 0; who < plan_contender_count; ++who)
      mine += what.wrong_after(static_cast<plan_contender>(who));
    what.figures = sample_blocks<plan_contender_count>(
        options.common, options.common.iterations,
        [&](std::size_t who) { return what.measure(static_cast<plan_contender>(who)); },
        [&](std::size_t block) { progress.show(at_block(what.name(), block, options.common.blocks)); });
    progress.done(1);
    progress.clear();
    session.add_row(row_report(what, mine));
    wrong += mine;
  }
  session.note_wrong(wrong);
  return session.finish();
}

void add_options(CLI::App& command, plan_bench_options& options) {
  options.common.add_to(command, "samples of each figure in a block", 100'000);
  add_size(command, "-b,--bytes", options.bytes, "size of each all_reduce, e.g. 4K", "4");
  add_number(command, "--steps", options.steps, "all_reduces in the plan", 1, 1'000);
}

} // namespace

bench_entry plan_bench() {
  return {.name = "plan",
          .what = "a captured plan, compared with a graph captured by hand and eager requests",
          .add = measured_by<plan_bench_options>(&add_options, &run)};
}

} // namespace troupe::program
