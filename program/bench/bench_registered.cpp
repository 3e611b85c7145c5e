/// `troupe bench registered`: compares small requests on registered memory with those on ordinary memory.

#include <troupe/program/bench/bench.hpp>
#include <troupe/program/bench/frame/asker.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>
#include <troupe/program/support/statistics.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <memory>

namespace troupe::program {

namespace {

struct registered_options {
  bench_options common{7, 200};
  std::string operation = "all_reduce";
  std::size_t depth = 20;
};

/// The times of the same request on one kind of memory.
struct memory_contender {
  std::string memory;
  std::vector<operation> parts{};
  block_figures alone{}; ///< From request to reply, one request at a time.
  block_figures rate{};  ///< Time per request with many in flight.
};

constexpr std::array<std::size_t, 10> sizes_bytes{8,          64,          1U << 10U,   4U << 10U,   16U << 10U,
                                                  64U << 10U, 128U << 10U, 256U << 10U, 512U << 10U, 1U << 20U};

/// Makes the out-of-place f32 operation of each rank, with \p bytes in its larger buffer.
std::vector<operation> make_parts(const std::string& name, const std::vector<buffer>& send,
                                  const std::vector<buffer>& recv, std::size_t bytes) {
  std::vector<operation> parts;
  const std::size_t elements = bytes / sizeof(float);
  const std::size_t share = std::max<std::size_t>(elements / send.size(), 1);
  for (std::size_t i = 0; i < send.size(); ++i)
    if (name == "all_gather")
      parts.emplace_back(all_gather{send[i], recv[i], share});
    else if (name == "reduce_scatter")
      parts.emplace_back(reduce_scatter{send[i], recv[i], share});
    else
      parts.emplace_back(all_reduce{send[i], recv[i], elements});
  return parts;
}

/// \p ask sends operations as asker::ask() does.
template <class Ask>
void measure(memory_contender& one, const registered_options& options, const Ask& ask) {
  one.alone.add_block(in_microseconds(ask(one.parts, options.common.iterations, std::size_t{1}).each));
  const series many = ask(one.parts, options.common.iterations, options.depth);
  one.rate.add_block({in_microseconds(many.all) / static_cast<double>(options.common.iterations)});
}

int run(const registered_options& options) {
  bench_session session{"registered", options.common};
  runtime rt{options.common.runtime.settings()};
  world where = rt.form_world();
  where.register_memory(8U << 20U);
  const auto status = where.registered_memory();
  raw_ranks raw{rt, where};
  const auto client = make_thread_asker(where);

  session.begin(
      rt, where,
      {options.operation + " of f32, out of place, " + std::to_string(where.size()) + " ranks",
       std::to_string(options.common.blocks) + " interleaved blocks of " + std::to_string(options.common.iterations) +
           ", medians of blocks, us; alone: one at a time, request to reply; rate: " + std::to_string(options.depth) +
           " in flight, time for each",
       status.why_ordinary.empty() ? "registered memory is used through windows"
                                   : "registered memory is used as ordinary: " + status.why_ordinary,
       "raw: NCCL's own calls on ordinary memory, a thread for each GPU"},
      {{"operation", options.operation}, {"depth", options.depth}});
  session.open_table({{"size", "B", 10, "bytes"},
                      {"raw", "alone p50", 10, "raw/alone/p50"},
                      {"ordinary", "alone p50", 10, "ordinary/alone/p50"},
                      {"", "p99", 8, "ordinary/alone/p99"},
                      {"registered", "alone p50", 10, "registered/alone/p50"},
                      {"", "p99", 8, "registered/alone/p99"},
                      {"ratio", "", 7, "alone_ratio", 3},
                      {"raw", "rate", 8, "raw/rate/p50"},
                      {"ordinary", "rate", 9, "ordinary/rate/p50"},
                      {"registered", "rate", 10, "registered/rate/p50"},
                      {"ratio", "", 7, "rate_ratio", 3}});
  progress_line progress{stderr, static_cast<double>(std::size(sizes_bytes))};
  for (const std::size_t bytes : sizes_bytes) {
    const std::size_t room = std::max(bytes, where.local_ranks().size() * sizeof(float));
    std::array<memory_contender, 3> all{memory_contender{.memory = "raw"}, memory_contender{.memory = "ordinary"},
                                        memory_contender{.memory = "registered"}};
    const auto send = allocate_operands(where, operand_memory::pool, room);
    const auto recv = allocate_operands(where, operand_memory::pool, room);
    all[0].parts = all[1].parts = make_parts(options.operation, send, recv, bytes);
    all[2].parts = make_parts(options.operation, where.allocate_all(room), where.allocate_all(room), bytes);
    for (std::size_t block = 0; block < options.common.blocks + 1; ++block) {
      progress.show(at_block("registered, " + std::to_string(bytes) + " bytes", block, options.common.blocks));
      if (block == 1)
        for (memory_contender& one : all) one.alone = one.rate = {}; // Discards the warm-up.
      measure(all[0], options, [&](const auto&... what) { return raw.run(what...); });
      for (const std::size_t ours : {1U, 2U})
        measure(all[ours], options, [&](const auto&... what) { return client->ask(what...); });
    }
    progress.done(1);
    progress.clear();
    json row{{"bytes", bytes},
             {"alone_ratio", median(paired_ratios(all[2].alone.p50, all[1].alone.p50))},
             {"rate_ratio", median(paired_ratios(all[2].rate.p50, all[1].rate.p50))}};
    for (const memory_contender& one : all)
      row[one.memory] = {{"alone", figures_report(one.alone)}, {"rate", figures_report(one.rate)}};
    session.add_row(std::move(row));
  }
  return session.finish();
}

void add_options(CLI::App& command, registered_options& options) {
  options.common.add_to(command, "requests in a block", 100'000);
  options.common.add_plot_to(command);
  command.add_option("--operation", options.operation, "all_reduce, all_gather or reduce_scatter")
      ->capture_default_str()
      ->check(CLI::IsMember({"all_reduce", "all_gather", "reduce_scatter"}));
  add_number(command, "--depth", options.depth, "requests in flight for the rates", 1, 1'000);
}

} // namespace

bench_entry registered_bench() {
  return {.name = "registered",
          .what = "small requests on registered memory, compared with ordinary memory",
          .add = measured_by<registered_options>(&add_options, &run)};
}

} // namespace troupe::program
