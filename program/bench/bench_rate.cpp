/// `troupe bench rate`: measures small operations per second by the number in flight, with and without fusion and by
/// raw NCCL. For a world of processes, start it in each of them: `troupe launch -n 4 -- troupe bench rate`.

#include <troupe/program/bench/bench.hpp>
#include <troupe/program/bench/frame/asker.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

struct rate_options {
  bench_options common{5, 4'000};
  std::size_t bytes = 8;
  std::vector<std::size_t> depths{1, 4, 16, 64, 256};
  std::vector<std::string> fusions{"off", "free"};
  std::vector<std::string> recordings{"on"};
};

/// The settings of one runtime.
struct rate_mode {
  fusion fused{};
  bool is_recorded = true;

  friend bool operator==(const rate_mode&, const rate_mode&) = default;
};

std::string_view recording_of(rate_mode mode) {
  return mode.is_recorded ? "on" : "off";
}

/// Returns the name of \p mode in a plot.
std::string to_string(rate_mode mode) {
  return "fusion " + std::string{to_string(mode.fused)} + (mode.is_recorded ? "" : ", unrecorded");
}

/// The operations per second at one depth in one mode, indexed by block.
struct rate_row {
  rate_mode mode{};
  std::size_t depth = 1;
  std::vector<double> ours{};
  std::vector<double> raw{};

  [[nodiscard]] std::vector<double> of_raw() const { return paired_ratios(ours, raw); }
};

double per_second(std::size_t count, nanoseconds took) {
  return static_cast<double>(count) / (in_microseconds(took) / 1e6);
}

class rate_measurement {
public:
  explicit rate_measurement(const rate_options& options)
    : options_{options}, bytes_{float_bytes(options.bytes)}, settings_{options.common.runtime.settings()} {
    if (spans_processes()) {
      modes_.push_back({.fused = settings_.fusion.mode});
      settings_.limits.sequencing.lead = std::max(settings_.limits.sequencing.lead, std::ranges::max(options.depths));
    } else {
      for (const std::string& name : options.fusions)
        for (const std::string& recording : options.recordings)
          modes_.push_back({.fused = parse_fusion(name), .is_recorded = recording == "on"});
    }
    for (const rate_mode& mode : modes_)
      for (const std::size_t depth : options.depths) rows_.push_back({.mode = mode, .depth = depth});
  }

  [[nodiscard]] int run() {
    progress_line progress{stderr, static_cast<double>(options_.common.blocks * modes_.size())};
    if (spans_processes()) {
      bench_rig rig{settings_, true}; // A process joins its world once, and a lane of a rank belongs to one client.
      client_group clients{rig.rt.system(), rig.where, rig.where.local_ranks().size()};
      for (std::size_t block = 0; block < options_.common.blocks; ++block)
        measure(rig, clients, modes_.front(), block, progress);
    } else {
      interleave(options_.common.blocks, modes_.size(), [&](std::size_t i, std::size_t block) {
        configuration settings = settings_;
        settings.fusion.mode = modes_[i].fused;
        settings.recorder.enabled = modes_[i].is_recorded;
        bench_rig rig{settings, true};
        client_group clients{rig.rt.system(), rig.where, 1};
        measure(rig, clients, modes_[i], block, progress);
      });
    }
    if (!session_) return 0;
    progress.clear();
    session_->open_table({{"fusion", "", 13, "fusion"},
                          {"recorded", "", 9, "recorded"},
                          {"in flight", "", 9, "depth"},
                          {"operations", "/s", 11, "operations_per_s/p50", 0},
                          {"time each", "(us)", 9, "us_each"},
                          {"raw", "/s", 11, "raw_per_s/p50", 0},
                          {"time each", "(us)", 9, "raw_us_each"},
                          {"of raw", "", 8, is_yardstick_ ? "of_raw/p50" : "", 3},
                          {"of unrecorded", "", 14, "of_unrecorded/p50", 3}});
    for (const rate_row& one : rows_) {
      json row({{"mode", to_string(one.mode)},
                {"fusion", to_string(one.mode.fused)},
                {"recorded", recording_of(one.mode)},
                {"depth", one.depth},
                {"operations_per_s", by_block(one.ours)},
                {"us_each", 1e6 / median(one.ours)},
                {"raw_per_s", by_block(one.raw)},
                {"raw_us_each", 1e6 / median(one.raw)},
                {"of_raw", by_block(one.of_raw())}});
      if (const auto ratios = unrecorded_share(one); !ratios.empty()) row["of_unrecorded"] = by_block(ratios);
      session_->add_row(std::move(row));
    }
    return session_->finish();
  }

private:
  /// Returns, by block, the ratio to the same mode without recorder and metrics; empty if that is not measured.
  [[nodiscard]] std::vector<double> unrecorded_share(const rate_row& of) const {
    const auto other = std::ranges::find_if(rows_, [&](const rate_row& one) {
      return one.depth == of.depth && one.mode == rate_mode{.fused = of.mode.fused, .is_recorded = false};
    });
    if (!of.mode.is_recorded || other == rows_.end()) return {};
    return paired_ratios(of.ours, other->ours);
  }

  /// Returns whether the launched processes form one world. Requests then go only to ranks, and only rank 0 reports.
  [[nodiscard]] bool spans_processes() const noexcept { return !settings_.control.address.empty(); }

  void measure(bench_rig& rig, client_group& clients, rate_mode mode, std::size_t block, progress_line& progress) {
    is_yardstick_ = rig.raw->is_yardstick();
    if (!session_ && rig.has_rank_zero()) begin(rig, progress);
    if (session_) progress.show(at_block("rate, " + to_string(mode), block + 1, options_.common.blocks));
    const std::size_t most = *std::ranges::max_element(options_.depths);
    const auto memory = allocate_operands(rig.where, operand_memory::pool, sums_bytes(bytes_, most));
    for (rate_row& row : rows_) {
      if (row.mode != mode) continue;
      const auto sums = make_sums(memory, bytes_, row.depth);
      const auto work =
          work_of(rig.where, sums, spans_processes() ? std::vector{lane::named("bench")} : std::vector<lane>{});
      const auto ours = [&] {
        static_cast<void>(clients.run(work, std::max<std::size_t>(1, total_of(row) / 10), row.depth));
        row.ours.push_back(per_second(total_of(row), span_of(clients.run(work, total_of(row), row.depth))));
      };
      const auto theirs = [&] {
        static_cast<void>(rig.raw->run(sums.front(), std::max<std::size_t>(1, total_of(row) / 10), row.depth));
        row.raw.push_back(per_second(total_of(row), rig.raw->run(sums.front(), total_of(row), row.depth).all));
        rig.raw->rest();
      };
      if (block % 2 == 0) ours();
      theirs();
      if (block % 2 != 0) ours();
    }
    progress.done(1);
  }

  /// Returns the number of operations in a block of \p row, a multiple of the depth.
  [[nodiscard]] std::size_t total_of(const rate_row& row) const noexcept {
    return (options_.common.iterations + row.depth - 1) / row.depth * row.depth;
  }

  void begin(bench_rig& rig, progress_line& progress) {
    progress.clear();
    session_.emplace("rate", options_.common)
        .begin(rig.rt, rig.where,
               {"all_reduce of f32, sum, in place, " + std::to_string(bytes_) +
                    " bytes, each in flight in memory of its own; " + std::to_string(options_.common.iterations) +
                    " in each of " + std::to_string(options_.common.blocks) +
                    " interleaved blocks, medians of blocks, " +
                    (spans_processes() ? "of rank 0, in one world of processes" : "a runtime for each mode in each"),
                "troupe: one client actor asks the " + std::string{spans_processes() ? "rank" : "world"} +
                    " and sends a request as soon as another is answered; raw: a spinning thread for each GPU, on its "
                    "launcher's CPUs, keeps the same number in flight"},
               {{"iterations", options_.common.iterations}, {"blocks", options_.common.blocks}, {"size_bytes", bytes_}},
               "");
  }

  const rate_options& options_;
  std::size_t bytes_;
  configuration settings_;
  std::vector<rate_mode> modes_;
  std::vector<rate_row> rows_;
  bool is_yardstick_ = false;
  std::optional<bench_session> session_; ///< Opened where rank 0 is.
};

int run(const rate_options& options) {
  rate_measurement bench{options};
  register_client_messages();
  return bench.run();
}

void add_options(CLI::App& command, rate_options& options) {
  options.common.add_to(command, "operations in a block, at least one batch", 10'000'000);
  options.common.add_plot_to(command);
  add_size(command, "-b,--bytes", options.bytes, "bytes of one operation, e.g. 8", "4");
  add_list(command, "--depths", options.depths, "operations in flight, comma-separated")->check(CLI::Range(1, 4'096));
  add_list(command, "--fusions", options.fusions, "modes of fusion to compare: off, plans, free");
  add_list(command, "--recordings", options.recordings,
           "with the flight recorder and the metrics (on), without them (off), or both")
      ->check(CLI::IsMember({"on", "off"}));
}

} // namespace

bench_entry rate_bench() {
  return {.name = "rate",
          .what = "small operations per second, by the number in flight",
          .add = measured_by<rate_options>(&add_options, &run)};
}

} // namespace troupe::program
