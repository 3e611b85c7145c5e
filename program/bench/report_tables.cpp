#include <troupe/program/bench/plot.hpp>
#include <troupe/program/bench/report_tables.hpp>
#include <troupe/program/support/text_table.hpp>

#include <algorithm>
#include <map>

namespace troupe::program {

namespace {

enum class form : std::uint8_t { text, bytes, whole, two, three, percent };

struct report_column {
  const char* title;
  const char* pointer; ///< A JSON pointer in a row.
  form shown = form::two;
};

using report_columns = std::vector<report_column>;

const report_columns collective_columns{{"size", "/size_bytes", form::bytes},
                                        {"type", "/type", form::text},
                                        {"redop", "/redop", form::text},
                                        {"time (µs)", "/out_of_place/troupe/time_us"},
                                        {"busbw (GB/s)", "/out_of_place/troupe/busbw_gb_per_s"},
                                        {"raw time (µs)", "/out_of_place/raw/time_us"},
                                        {"raw busbw (GB/s)", "/out_of_place/raw/busbw_gb_per_s"},
                                        {"of raw", "/out_of_place/of_raw/p50", form::percent},
                                        {"wrong", "/out_of_place/wrong", form::whole},
                                        {"in place (µs)", "/in_place/troupe/time_us"},
                                        {"busbw (GB/s)", "/in_place/troupe/busbw_gb_per_s"},
                                        {"raw (µs)", "/in_place/raw/time_us"},
                                        {"of raw", "/in_place/of_raw/p50", form::percent},
                                        {"wrong", "/in_place/wrong", form::whole}};
const report_columns strategy_columns{{"completion", "/strategy", form::text},
                                      {"asked by", "/asker", form::text},
                                      {"p50 (µs)", "/time/p50"},
                                      {"p99 (µs)", "/time/p99"},
                                      {"added to raw (µs)", "/added/p50"}};
const std::map<std::string, report_columns> columns_of_bench{
    {"completion",
     {{"strategy", "/strategy", form::text},
      {"arm alone (µs)", "/arm_alone/p50", form::three},
      {"arm behind (µs)", "/arm_behind/p50", form::three},
      {"look (µs)", "/look/p50", form::three},
      {"release to seen (µs)", "/release_to_seen/p50", form::three},
      {"enqueue to seen (µs)", "/enqueue_to_seen/p50", form::three},
      {"marking adds (µs)", "/operation_marked/added/p50", form::three}}},
    {"latency",
     {{"asked by", "/way", form::text},
      {"p50 (µs)", "/time/p50"},
      {"p90 (µs)", "/time/p90"},
      {"p99 (µs)", "/time/p99"},
      {"p99.9 (µs)", "/time/p99_9"},
      {"max (µs)", "/time/max"},
      {"added to raw's p50 (µs)", "/added/p50"},
      {"first ask to last reply (µs)", "/span/p50"}}},
    {"rate",
     {{"fusion", "/fusion", form::text},
      {"in flight", "/depth", form::whole},
      {"operations /s", "/operations_per_s/p50", form::whole},
      {"raw /s", "/raw_per_s/p50", form::whole},
      {"of raw", "/of_raw/p50", form::three}}},
    {"clients",
     {{"fusion", "/fusion", form::text},
      {"burst p50 (µs)", "/burst_us/p50"},
      {"burst p99 (µs)", "/burst_us/p99"},
      {"raw, one group (µs)", "/raw/group_us/p50"},
      {"raw, separate (µs)", "/raw/separate_us/p50"},
      {"operations /s", "/operations_per_s/p50", form::whole},
      {"rank requests /s", "/rank_requests_per_s", form::whole},
      {"reply p50 (µs)", "/reply_us/p50"},
      {"reply p99 (µs)", "/reply_us/p99"}}},
    {"fusion",
     {{"count", "/count", form::whole},
      {"size of each", "/size_bytes", form::bytes},
      {"separate (µs)", "/pipelines/separate/p50"},
      {"together (µs)", "/pipelines/together/p50"},
      {"ratio", "/pipelines/together/of_separate/p50", form::three},
      {"raw separate (µs)", "/raw/separate/p50"},
      {"raw together (µs)", "/raw/together/p50"},
      {"ratio", "/raw/together/of_separate/p50", form::three}}},
    {"plan",
     {{"workload", "/workload", form::text},
      {"size", "/size_bytes", form::bytes},
      {"plan p50 (µs)", "/plan/p50"},
      {"plan p99 (µs)", "/plan/p99"},
      {"raw graph p50 (µs)", "/raw graph/p50"},
      {"eager p50 (µs)", "/eager/p50"},
      {"plan / raw", "/plan/of_raw/p50", form::three},
      {"plan / eager", "/plan/of_eager/p50", form::three},
      {"wrong", "/wrong", form::whole}}},
    {"host",
     {{"memory", "/memory", form::text},
      {"size", "/size_bytes", form::bytes},
      {"copies (µs)", "/copies/p50"},
      {"collective (µs)", "/collective/p50"},
      {"staged (µs)", "/staged/p50"},
      {"of floor", "/staged/of_floor/p50"},
      {"wrong", "/wrong", form::whole}}},
    {"registered",
     {{"size", "/bytes", form::bytes},
      {"raw alone (µs)", "/raw/alone/p50"},
      {"ordinary alone (µs)", "/ordinary/alone/p50"},
      {"registered alone (µs)", "/registered/alone/p50"},
      {"ratio", "/alone_ratio", form::three},
      {"raw, each of many (µs)", "/raw/rate/p50"},
      {"ordinary, each (µs)", "/ordinary/rate/p50"},
      {"registered, each (µs)", "/registered/rate/p50"},
      {"ratio", "/rate_ratio", form::three}}}};

std::string bytes_text(double value) {
  const auto ticks = log_ticks(plot_values::bytes, value, value); // Has a tick only if it is a power of two.
  return ticks.empty() ? fixed(value, 0) + " B" : ticks.front().label;
}

std::string cell(const json& row, const report_column& one) {
  const json::json_pointer at{one.pointer};
  if (!row.contains(at)) return "";
  const json& value = row.at(at);
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_number()) return "";
  const auto figure = value.get<double>();
  switch (one.shown) {
    case form::text: return value.dump();
    case form::bytes: return bytes_text(figure);
    case form::whole: return fixed(figure, 0);
    case form::two: return fixed(figure, 2);
    case form::three: return fixed(figure, 3);
    case form::percent: return fixed(100 * figure, 1) + " %";
  }
  return "";
}

report_table table(std::string caption, const json& rows, const report_columns& all) {
  report_table made{.caption = std::move(caption)};
  made.rows.resize(rows.size());
  for (const report_column& one : all) {
    std::vector<std::string> cells;
    for (const json& row : rows) cells.push_back(cell(row, one));
    if (std::ranges::all_of(cells, &std::string::empty)) continue;
    made.titles.emplace_back(one.title);
    for (std::size_t i = 0; i < cells.size(); ++i) made.rows[i].push_back(std::move(cells[i]));
  }
  return made;
}

} // namespace

std::vector<report_table> tables_of(const json& report) {
  std::vector<report_table> all;
  const auto bench = report.at("bench").get<std::string>();
  const bool has_rows = report.contains("rows") && !report.at("rows").empty();
  if (const auto known = columns_of_bench.find(bench); known != columns_of_bench.end()) {
    if (!has_rows) return all;
    json rows = report.at("rows");
    if (report.contains("raw")) rows.insert(rows.begin(), json{{"way", "raw"}, {"time", report.at("raw")}});
    all.push_back(table("Medians of blocks", rows, known->second));
    return all;
  }
  if (has_rows && report.at("rows").front().contains("out_of_place"))
    all.push_back(table("Bandwidth and time by size, medians of blocks", report.at("rows"), collective_columns));
  if (report.contains("latency")) {
    const json& latency = report.at("latency");
    json rows = latency.at("rows");
    if (latency.contains("raw")) rows.insert(rows.begin(), json{{"strategy", "raw"}, {"time", latency.at("raw")}});
    all.push_back(table("One request of " + latency.at("size_bytes").dump() + " B at a time, request to reply", rows,
                        strategy_columns));
  }
  return all;
}

} // namespace troupe::program
