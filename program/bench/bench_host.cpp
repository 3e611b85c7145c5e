/// `troupe bench host`: compares an all_reduce of host memory with its two parts, the copies and the collective, which
/// troupe overlaps.

#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/stream.hpp>
#include <troupe/program/bench/bench.hpp>
#include <troupe/program/bench/frame/asker.hpp>
#include <troupe/program/bench/frame/reference_values.hpp>
#include <troupe/program/bench/frame/thread_team.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>
#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/runtime.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

using steady = std::chrono::steady_clock;

/// The memory of one rank. All four buffers have the same size.
struct floor_memory {
  std::shared_ptr<device> where;
  buffer host_send;
  buffer host_recv;
  buffer device_send;
  buffer device_recv;
};

/// Copies the operands between host and devices without a collective, to measure the lower bound of a staged request.
/// One thread enqueues the copies of pinned memory. For pageable memory, where CUDA's copy call blocks, one thread per
/// rank and direction copies.
class host_copies_floor {
public:
  explicit host_copies_floor(const std::vector<floor_memory>& ranks)
    : pageable_{std::ranges::any_of(
          ranks, [](const floor_memory& one) { return one.host_send.kind() == memory_kind::pageable; })} {
    for (const floor_memory& one : ranks) {
      const std::size_t length = one.host_send.size_bytes();
      lanes_.push_back({one.where.get(), stream{one.where}, one.device_send.data(), one.host_send.data(), length});
      lanes_.push_back({one.where.get(), stream{one.where}, one.host_recv.data(), one.device_recv.data(), length});
    }
  }

  /// Returns the time from the first call until the last copy has finished.
  [[nodiscard]] nanoseconds run() { return pageable_ ? run_threaded() : run_enqueued(); }

private:
  struct lane {
    device* where;
    stream line;
    std::byte* to;
    const std::byte* from;
    std::size_t size_bytes;
  };

  [[nodiscard]] nanoseconds run_enqueued() {
    const auto began = steady::now();
    for (const lane& one : lanes_) one.line.ref().copy(one.to, one.from, one.size_bytes);
    for (const lane& one : lanes_) one.line.ref().synchronize();
    return steady::now() - began;
  }

  [[nodiscard]] nanoseconds run_threaded() {
    thread_team team{lanes_.size(),
                     [this](std::size_t i) { lanes_[i].where->api().enter_thread(lanes_[i].where->id()); }};
    team.rest();
    const thread_team::task copy = [this](std::size_t i) {
      const lane& one = lanes_[i];
      one.line.ref().copy(one.to, one.from, one.size_bytes);
      one.line.ref().synchronize();
    };
    const auto began = steady::now();
    team.release(copy);
    while (!team.finished()) std::this_thread::yield();
    const auto ended = steady::now();
    team.await(); // Throws the first error.
    return ended - began;
  }

  std::vector<lane> lanes_; ///< Two per rank, one for each direction.
  bool pageable_;
};

struct host_options {
  bench_options common{5, 5};
  std::size_t bytes = std::size_t{256} << 20U;
  std::size_t end = 0; ///< 0: a single size.
  std::size_t factor = 4;
  std::vector<std::string> kinds{"pinned", "pageable"};
  std::string type = "f32";
  std::size_t warmups = 2;
  std::size_t checks = 1;
};

/// The contenders in the order of the columns.
constexpr std::array staging_ways{"copies", "collective", "staged"};
constexpr std::size_t staged = 2;

memory_kind parse_kind(const std::string& name) {
  return parse_enum("kind of host memory", name, std::array{memory_kind::pinned, memory_kind::pageable});
}

buffer host_memory(const world& where, memory_kind kind, std::size_t size_bytes) {
  if (kind == memory_kind::pinned) return where.allocate_pinned(size_bytes);
  const auto bytes =
      std::make_shared<std::vector<std::byte>>(size_bytes); // Written, so that no page fault occurs later.
  return where.adopt_host(bytes->data(), size_bytes, bytes);
}

/// The buffers of one kind of memory, and its figures.
class host_trial {
public:
  host_trial(world where, memory_kind kind, std::size_t size_bytes, dtype type)
    : world_{std::move(where)}, kind_{kind}, type_{type}, count_{size_bytes / troupe::size_bytes(type)} {
    for (const rank self : world_.local_ranks())
      ranks_.push_back({.where = world_.device_of(self),
                        .host_send = host_memory(world_, kind, size_bytes),
                        .host_recv = host_memory(world_, kind, size_bytes),
                        .device_send = world_.allocate(self, size_bytes),
                        .device_recv = world_.allocate(self, size_bytes)});
    floor_.emplace(ranks_);
    for (const floor_memory& one : ranks_) {
      on_device_.emplace_back(sum_of(one.device_send, one.device_recv));
      on_host_.emplace_back(sum_of(one.host_send, one.host_recv));
    }
  }

  [[nodiscard]] memory_kind kind() const noexcept { return kind_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return count_ * troupe::size_bytes(type_); }

  [[nodiscard]] double measure(std::size_t what, asker& who) {
    if (what == 0) return in_microseconds(floor_->run());
    return in_microseconds(who.ask(what == staged ? on_host_ : on_device_, 1, 1).all);
  }

  /// Returns how many elements of all ranks are wrong.
  [[nodiscard]] std::size_t count_wrong(asker& who, std::uint64_t seed) {
    const reference_values values{type_, reduction::sum, world_.size(), seed};
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      values.fill(world_.local_ranks()[i].value(), 0, ranks_[i].host_send.host_span<std::byte>());
      std::ranges::fill(ranks_[i].host_recv.host_span<std::byte>(), std::byte{0xA5});
    }
    static_cast<void>(who.ask(on_host_, 1, 1));
    std::size_t found = 0;
    for (const floor_memory& one : ranks_)
      found += values.count_wrong(std::nullopt, 0, one.host_recv.host_span<const std::byte>());
    return found;
  }

  std::array<block_figures, staging_ways.size()> figures{};
  std::size_t wrong = 0;

  /// Returns, for each block, the ratio of the staged request's median to that of its slower part.
  [[nodiscard]] std::vector<double> of_floor() const {
    std::vector<double> floor;
    for (std::size_t i = 0; i < figures[0].p50.size(); ++i)
      floor.push_back(std::max(figures[0].p50[i], figures[1].p50[i]));
    return paired_ratios(figures[staged].p50, floor);
  }

private:
  [[nodiscard]] operation sum_of(const buffer& send, const buffer& recv) const {
    return all_reduce{.send = send, .recv = recv, .count = count_, .type = type_, .op = reduction::sum};
  }

  world world_;
  memory_kind kind_;
  dtype type_;
  std::size_t count_;
  std::vector<floor_memory> ranks_;
  std::optional<host_copies_floor> floor_;
  std::vector<operation> on_device_;
  std::vector<operation> on_host_;
};

void measure_all(host_trial& trial, const host_options& options, asker& who, progress_line& progress) {
  const std::string name = std::string{to_string(trial.kind())} + " memory";
  trial.figures = sample_blocks<staging_ways.size()>(
      options.common, options.warmups, [&](std::size_t what) { return trial.measure(what, who); },
      [&](std::size_t block) {
        progress.show(at_block(name, block, options.common.blocks));
        progress.done(1);
      });
  for (std::size_t i = 0; i < options.checks; ++i) {
    progress.show(name + ", check " + std::to_string(i + 1) + "/" + std::to_string(options.checks));
    trial.wrong += trial.count_wrong(who, i + 1);
    progress.done(1);
  }
  progress.clear();
}

json row_report(const host_trial& trial, const host_options& options) {
  json row{{"memory", to_string(trial.kind())}, {"size_bytes", trial.size_bytes()}};
  for (std::size_t what = 0; what < staging_ways.size(); ++what) {
    json& way = row[staging_ways[what]] = figures_report(trial.figures[what]);
    way["gb_per_s"] = static_cast<double>(trial.size_bytes()) / median(trial.figures[what].p50) / 1e3;
  }
  const auto ratios = trial.of_floor();
  row["staged"]["of_floor"] = by_block(ratios);
  row["wrong"] = options.checks > 0 ? json(trial.wrong) : json(nullptr);
  return row;
}

std::vector<table_column> host_columns() {
  std::vector<table_column> all{{"size", "(B)", 12, "size_bytes"}, {"memory", "", 8, "memory"}};
  for (const std::string name : staging_ways)
    all.insert(all.end(), {{name, "p50 us", 11, name + "/p50"},
                           {"", "p99 us", 10, name + "/p99"},
                           {"", "(GB/s)", 8, name + "/gb_per_s"}});
  all.push_back({"of floor", "", 8, "staged/of_floor/p50"});
  all.push_back({"#wrong", "", 6, "wrong"});
  return all;
}

int run(const host_options& options) {
  const dtype type = parse_dtype(options.type);
  const std::size_t size = options.bytes / size_bytes(type) * size_bytes(type);
  const std::vector<std::size_t> sizes =
      options.end == 0 ? std::vector{size} : sizes_between(size, options.end, {.factor = options.factor});
  if (size == 0)
    throw exception{errc::invalid_argument,
                    "--bytes " + std::to_string(options.bytes) + " is less than one " + options.type + ": give more"};
  std::vector<memory_kind> kinds;
  for (const std::string& name : options.kinds) kinds.push_back(parse_kind(name));
  bench_session session{"host", options.common};
  const configuration settings = options.common.runtime.settings();
  runtime rt{settings};
  const world where = rt.form_world();
  const auto who = make_thread_asker(where);

  session.begin(rt, where,
                {"all_reduce of " + options.type + ", sum, out of place, one request at a time; " +
                     std::to_string(options.common.iterations) + " of each in each of " +
                     std::to_string(options.common.blocks) + " interleaved blocks, medians of blocks; " +
                     std::to_string(options.checks) + " checked afterwards",
                 "copies: every rank's operands to its device and back, all at once, without a collective",
                 "collective: the same all_reduce on device memory; staged: on host memory, in chunks of " +
                     format_byte_size(settings.host_staging.chunk_bytes) + ", " +
                     std::to_string(settings.host_staging.slots) + " slots",
                 "GB/s: size / time of one rank; of floor: staged / the larger of copies and collective"},
                {{"iterations", options.common.iterations},
                 {"warmups", options.warmups},
                 {"blocks", options.common.blocks},
                 {"checks", options.checks},
                 {"type", options.type},
                 {"chunk_bytes", settings.host_staging.chunk_bytes},
                 {"slots", settings.host_staging.slots}});
  progress_line progress{
      stderr, static_cast<double>(kinds.size() * sizes.size() * (options.common.blocks + 1 + options.checks))};
  session.open_table(host_columns());
  std::size_t wrong = 0;
  for (const memory_kind kind : kinds)
    for (const std::size_t bytes : sizes) {
      host_trial trial{where, kind, bytes, type};
      measure_all(trial, options, *who, progress);
      session.add_row(row_report(trial, options));
      wrong += trial.wrong;
    }
  session.note_wrong(options.checks > 0 ? std::optional{wrong} : std::nullopt);
  return session.finish();
}

void add_options(CLI::App& command, host_options& options) {
  options.common.add_to(command, "samples of each figure in a block", 100'000);
  options.common.add_plot_to(command);
  add_size(command, "-b,--bytes", options.bytes, "bytes of each rank, e.g. 256M; the smallest size with -e", "1");
  add_size(command, "-e,--maxbytes", options.end, "largest size, e.g. 1G (default: only the size of -b)", "8");
  add_number(command, "-f,--stepfactor", options.factor, "factor from one size to the next", 2, 1024);
  add_list(command, "--memory", options.kinds, "pinned, pageable or both, comma-separated");
  command.add_option("-d,--datatype", options.type, "one of the dtypes")->capture_default_str();
  add_number(command, "-w,--warmup_iters", options.warmups, "warm-up samples of each before the blocks", 0, 100'000);
  add_number(command, "-c,--check", options.checks, "requests whose results are checked after the blocks; 0: none", 0,
             1'000);
}

} // namespace

bench_entry host_bench() {
  return {.name = "host",
          .what = "all_reduce of host memory, compared with its copies and its collective",
          .add = measured_by<host_options>(&add_options, &run)};
}

} // namespace troupe::program
