#include <troupe/program/commands.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/statistics.hpp>
#include <troupe/program/support/text_table.hpp>
#include <troupe/program/support/whole_file.hpp>
#include <troupe/program/trace/trace_record.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

/// Prints times by operation, the ranks that come last, the use of the GPUs' time, the \p slowest requests, and the
/// requests that are not over.
void print_trace_summary(const flight_trace& trace, std::size_t slowest, std::FILE* to);

namespace {

std::string microseconds(trace_time span) {
  return fixed(static_cast<double>(span) / 1000.0, 1);
}

std::string percent(double part, double whole) {
  return whole > 0 ? fixed(100.0 * part / whole, 1) : "-";
}

std::optional<trace_time> between(const std::optional<trace_time>& from, const std::optional<trace_time>& to) {
  if (!from || !to) return std::nullopt;
  return std::max<trace_time>(*to - *from, 0);
}

void keep(std::vector<trace_time>& all, const std::optional<trace_time>& one) {
  if (one) all.push_back(*one);
}

struct operation_times {
  std::size_t requests = 0, bytes = 0, errors = 0, launched = 0;
  double launches = 0;
  std::vector<trace_time> total, peers, launcher, gpu;
};

void print_operations(const flight_trace& trace, std::FILE* to) {
  std::map<std::string, operation_times> all;
  for (const traced_rank& rank : trace.ranks)
    for (const traced_request& one : rank.requests) {
      if (!one.asked) continue;
      operation_times& mine = all[one.operation()];
      ++mine.requests;
      mine.bytes += one.bytes;
      mine.errors += one.result.empty() ? 0 : 1;
      if (one.fused > 0) {
        ++mine.launched;
        mine.launches += 1.0 / static_cast<double>(one.fused);
      }
      keep(mine.total, between(one.asked, one.finished));
      keep(mine.peers, between(one.asked, one.matched));
      keep(mine.launcher, between(one.matched, one.launched));
      keep(mine.gpu, between(one.began, one.finished));
    }
  std::fprintf(
      to, "\nBy operation, in microseconds. all: from request to end. peers: until all ranks had made the request.\n"
          "launch: from then to the launch. gpu: on the GPU, from the launch or the end of earlier work.\n");
  const text_table table{to,
                         {{"operation", "", 18},
                          {"parts", "", 9},
                          {"errors", "", 6},
                          {"bytes", "", 13},
                          {"p50", "all", 9},
                          {"p99", "all", 9},
                          {"max", "all", 10},
                          {"p50", "peers", 9},
                          {"p50", "launch", 9},
                          {"p50", "gpu", 9},
                          {"fused", "", 6}}};
  table.print_heading();
  for (const auto& [name, one] : all)
    table.print_row({name, std::to_string(one.requests), std::to_string(one.errors), std::to_string(one.bytes),
                     microseconds(median(one.total)), microseconds(percentile(one.total, 0.99)),
                     microseconds(percentile(one.total, 1.0)), microseconds(median(one.peers)),
                     microseconds(median(one.launcher)), microseconds(median(one.gpu)),
                     one.launches > 0 ? fixed(static_cast<double>(one.launched) / one.launches, 1) : "-"});
}

struct lateness_of_rank {
  std::size_t collectives = 0, asked_last = 0, launched_last = 0;
  std::vector<trace_time> behind; ///< The delays after the first rank's request.
};

using timestamp_field = std::optional<trace_time> traced_request::*;

/// Returns the part of \p parts that was last at a stage. Empty if not all have passed it, or if all passed it at the
/// same time.
std::optional<std::size_t> last_at(const flight_trace& trace, const std::vector<flight_trace::part>& parts,
                                   timestamp_field which) {
  const auto when = [&](flight_trace::part one) { return trace.at(one).*which; };
  if (!std::ranges::all_of(parts, [&](flight_trace::part one) { return when(one).has_value(); })) return std::nullopt;
  const auto [first, last] = std::ranges::minmax_element(parts, {}, when);
  if (when(*first) == when(*last)) return std::nullopt;
  return last->rank;
}

void print_stragglers(const flight_trace& trace, std::FILE* to) {
  std::vector<lateness_of_rank> all(trace.ranks.size());
  for (const auto& parts : trace.collectives()) {
    trace_time first = *trace.at(parts.front()).asked;
    for (const auto one : parts) first = std::min(first, *trace.at(one).asked);
    for (const auto one : parts) {
      ++all[one.rank].collectives;
      all[one.rank].behind.push_back(*trace.at(one).asked - first);
    }
    if (const auto late = last_at(trace, parts, &traced_request::asked)) ++all[*late].asked_last;
    if (const auto late = last_at(trace, parts, &traced_request::launch_began)) ++all[*late].launched_last;
  }
  std::fprintf(to, "\nThe ranks that come last to collectives of several ranks. Behind: delay after the first rank's "
                   "request, us.\n");
  const text_table table{to,
                         {{"rank", "", 28},
                          {"parts", "", 9},
                          {"asked", "last %", 8},
                          {"behind", "p50", 10},
                          {"behind", "p99", 10},
                          {"launched", "last %", 9}}};
  table.print_heading();
  for (std::size_t r = 0; r < all.size(); ++r) {
    const auto whole = static_cast<double>(all[r].collectives);
    table.print_row({trace.ranks[r].name(), std::to_string(all[r].collectives),
                     percent(static_cast<double>(all[r].asked_last), whole), microseconds(median(all[r].behind)),
                     microseconds(percentile(all[r].behind, 0.99)),
                     percent(static_cast<double>(all[r].launched_last), whole)});
  }
}

/// The use of a GPU's time between its first request and its last.
struct gpu_time {
  trace_time whole = 0, busy = 0, idle_at_most = 0;
  std::size_t gaps = 0;                  ///< The gaps longer than most_of_a_breath.
  const traced_request* after = nullptr; ///< The request after the longest gap.
};

constexpr trace_time most_of_a_breath = 100'000;

gpu_time time_of_gpu(const traced_rank& rank) {
  std::vector<const traced_request*> run;
  for (const traced_request& one : rank.requests)
    if (one.began && one.finished) run.push_back(&one);
  std::ranges::sort(run, {}, [](const traced_request* one) { return *one->began; });
  gpu_time made;
  if (run.empty()) return made;
  trace_time end = *run.front()->began;
  for (const traced_request* one : run) {
    const trace_time gap = *one->began - end;
    if (gap > most_of_a_breath) ++made.gaps;
    if (gap > made.idle_at_most) {
      made.idle_at_most = gap;
      made.after = one;
    }
    made.busy += std::max<trace_time>(*one->finished - std::max(*one->began, end), 0);
    end = std::max(end, *one->finished);
  }
  made.whole = end - *run.front()->began;
  return made;
}

/// Returns how long at least one request of the rank was in progress, and how long at least two were.
std::pair<trace_time, trace_time> time_under_way(const traced_rank& rank) {
  std::vector<std::pair<trace_time, int>> changes;
  for (const traced_request& one : rank.requests)
    if (one.asked && one.finished) {
      changes.emplace_back(*one.asked, 1);
      changes.emplace_back(*one.finished, -1);
    }
  std::ranges::sort(changes);
  trace_time some = 0, several = 0, before = 0;
  int now = 0;
  for (const auto& [when, change] : changes) {
    if (now >= 1) some += when - before;
    if (now >= 2) several += when - before;
    now += change;
    before = when;
  }
  return {some, several};
}

void print_gpus(const flight_trace& trace, std::FILE* to) {
  std::fprintf(
      to, "\nThe GPUs' time between the first request and the last: busy with requests, and the gaps. Overlap: the\n"
          "share of the time with a request in progress in which there were two or more.\n");
  const text_table table{to,
                         {{"rank", "", 28},
                          {"span", "ms", 10},
                          {"busy", "%", 6},
                          {"gaps", ">100us", 7},
                          {"longest", "us", 10},
                          {"overlap", "%", 8},
                          {"before", "", 28}}};
  table.print_heading();
  for (const traced_rank& rank : trace.ranks) {
    const gpu_time one = time_of_gpu(rank);
    const auto [some, several] = time_under_way(rank);
    table.print_row({rank.name(), fixed(static_cast<double>(one.whole) / 1e6, 2),
                     percent(static_cast<double>(one.busy), static_cast<double>(one.whole)), std::to_string(one.gaps),
                     microseconds(one.idle_at_most), percent(static_cast<double>(several), static_cast<double>(some)),
                     one.after != nullptr ? one.after->what : "-"});
  }
}

std::string place_of(const traced_request& one) {
  return one.of_world ? "world, request " + std::to_string(one.ticket)
                      : "lane " + one.lane + ", request " + std::to_string(one.position);
}

void print_slowest(const flight_trace& trace, std::size_t slowest, std::FILE* to) {
  std::vector<std::pair<trace_time, flight_trace::part>> all;
  for (std::size_t r = 0; r < trace.ranks.size(); ++r)
    for (std::size_t i = 0; i < trace.ranks[r].requests.size(); ++i)
      if (const auto span = between(trace.at({r, i}).asked, trace.at({r, i}).finished)) all.push_back({*span, {r, i}});
  const auto count = static_cast<std::ptrdiff_t>(std::min(slowest, all.size()));
  std::ranges::partial_sort(all, all.begin() + count, std::ranges::greater{},
                            [](const auto& one) { return one.first; });
  if (count == 0) return;
  std::fprintf(to, "\nThe slowest requests, us: until all ranks had made it + until its launch + on the GPU\n");
  for (auto one = all.begin(); one != all.begin() + count; ++one) {
    const traced_request& it = trace.at(one->second);
    const auto part = [&](const std::optional<trace_time>& from, const std::optional<trace_time>& until) {
      const auto span = between(from, until);
      return span ? microseconds(*span) : std::string{"?"};
    };
    std::fprintf(to, "  %10s = %s + %s + %s  %s, %s (%s)%s%s\n", microseconds(one->first).c_str(),
                 part(it.asked, it.matched).c_str(), part(it.matched, it.launched).c_str(),
                 part(it.launched, it.finished).c_str(), trace.ranks[one->second.rank].name().c_str(), it.what.c_str(),
                 place_of(it).c_str(), it.site.empty() ? "" : " asked at ", it.site.c_str());
  }
}

void print_unfinished(const flight_trace& trace, std::FILE* to) {
  constexpr std::size_t most = 20;
  std::size_t count = 0;
  for (const traced_rank& rank : trace.ranks)
    for (const traced_request& one : rank.requests) {
      if (one.is_over() || !one.asked) continue;
      if (count++ == 0) std::fprintf(to, "\nNot over when the record was written:\n");
      if (count > most) continue;
      const char* const at = one.launched ? "on the GPU" : one.matched ? "with the launcher" : "waits for its peers";
      std::fprintf(to, "  %s: %s (%s), %s%s%s\n", rank.name().c_str(), one.what.c_str(), place_of(one).c_str(), at,
                   one.site.empty() ? "" : ", asked at ", one.site.c_str());
    }
  if (count > most) std::fprintf(to, "  and %zu more\n", count - most);
}

} // namespace

void print_trace_summary(const flight_trace& trace, std::size_t slowest, std::FILE* to) {
  std::size_t parts = 0;
  std::uint64_t asked = 0;
  for (const traced_rank& rank : trace.ranks) {
    parts += rank.requests.size();
    asked += rank.asked_in_all;
  }
  std::fprintf(to, "%s\n%zu ranks, the last %zu of %llu requests to ranks\n", trace.about.c_str(), trace.ranks.size(),
               parts, static_cast<unsigned long long>(asked));
  for (const std::string& one : trace.remarks) std::fprintf(to, "%s\n", one.c_str());
  if (parts == 0) return;
  print_operations(trace, to);
  print_stragglers(trace, to);
  print_gpus(trace, to);
  print_slowest(trace, slowest, to);
  print_unfinished(trace, to);
}

namespace {

struct trace_options {
  std::vector<std::filesystem::path> files;
  std::string events;
  std::size_t slowest = 10;
};

int run(const trace_options& options) {
  const flight_trace trace = read_flight_records(options.files);
  print_trace_summary(trace, options.slowest, stdout);
  if (options.events.empty()) return 0;
  whole_file{options.events}.write(trace_events(trace).dump() + '\n');
  std::printf("\n%s: open it in Perfetto (ui.perfetto.dev) or chrome://tracing\n", options.events.c_str());
  return 0;
}

} // namespace

void add_trace(CLI::App& program, action& chosen) {
  auto* const command =
      program.add_subcommand("trace", "Read flight records: where requests spent their time, and a trace for Perfetto");
  const auto options = std::make_shared<trace_options>();
  command->add_option("FILE", options->files, "flight records, of one process each")->required();
  command->add_option("--events", options->events, "write Chrome's trace events (JSON) to this file");
  add_number(*command, "--slowest", options->slowest, "requests to list", 0, 1'000'000);
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

} // namespace troupe::program
