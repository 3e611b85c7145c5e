#include <troupe/program/bench/bench_operation.hpp>
#include <troupe/program/bench/bench_plots.hpp>

#include <troupe/runtime/configuration/settings.hpp>

#include <algorithm>
#include <map>

namespace troupe::program {

namespace {

constexpr std::size_t most_combinations =
    4; ///< Combinations of dtype and reduction in one plot; more are hard to tell apart.

plot_axis size_axis() {
  return {.label = "size", .values = plot_values::bytes};
}
plot_axis time_axis(const std::string& of) {
  return {.label = "time of " + of + " (µs)"};
}
plot_axis bandwidth_axis(const std::string& kind = "") {
  return {.label = kind + (kind.empty() ? "" : " ") + "bandwidth (GB/s, 1 GB = 10⁹ B)"};
}

double number_at(const json& row, const char* pointer) {
  const json::json_pointer at{pointer};
  return row.contains(at) && row.at(at).is_number() ? row.at(at).get<double>() : 0;
}

/// Makes a series of \p rows. \p x and \p y are JSON pointers to its numbers.
plot_series series_of(std::string name, const json& rows, const char* x, const char* y, bool reference = false) {
  plot_series one{.name = std::move(name), .reference = reference};
  for (const json& row : rows) one.points.emplace_back(number_at(row, x), number_at(row, y));
  return one;
}

/// Converts bytes and microseconds to GB/s.
plot_series as_bandwidth(plot_series times) {
  for (auto& [bytes, value] : times.points) value = value > 0 ? bytes / value / 1e3 : 0;
  return times;
}

/// Groups \p rows by the text of their member \p key, in order of first occurrence.
std::vector<std::pair<std::string, json>> grouped(const json& rows, const char* key) {
  std::vector<std::pair<std::string, json>> groups;
  for (const json& row : rows) {
    const std::string name = row.at(key).is_string() ? row.at(key).get<std::string>() : row.at(key).dump();
    auto found = std::ranges::find(groups, name, &std::pair<std::string, json>::first);
    if (found == groups.end()) found = groups.insert(found, {name, json::array()});
    found->second.push_back(row);
  }
  return groups;
}

std::string ranks_of(const json& report) {
  const std::size_t count = report.contains("devices") ? report.at("devices").size() : 0;
  return std::to_string(count) + (count == 1 ? " rank" : " ranks");
}

plot collective_plot(const json& report) {
  json rows = report.at("rows");
  for (json& row : rows) {
    const auto redop = row.at("redop").get<std::string>();
    row["combination"] = row.at("type").get<std::string>() + (redop == "none" ? "" : " " + redop);
  }
  auto groups = grouped(rows, "combination");
  plot made{.title = report.at("bench").get<std::string>() + ", " + ranks_of(report)};
  if (groups.size() == 1) made.title += ", " + groups.front().first;
  if (groups.size() > most_combinations) {
    made.small_print.push_back("Drawn are the first " + std::to_string(most_combinations) + " of " +
                               std::to_string(groups.size()) + " combinations of dtype and reduction.");
    groups.resize(most_combinations);
  }
  // A single rank sends nothing over links, so its bus bandwidth is 0.
  const bool has_bus = std::ranges::any_of(
      rows, [](const json& row) { return number_at(row, "/out_of_place/troupe/busbw_gb_per_s") > 0; });
  const std::string kind = has_bus ? "busbw_gb_per_s" : "algbw_gb_per_s";
  plot_panel bandwidth{.title = "Bandwidth", .x = size_axis(), .y = bandwidth_axis(has_bus ? "bus" : "algorithm")};
  const auto depth = static_cast<std::size_t>(number_at(report, "/options/depth"));
  plot_panel time{.title = "Time",
                  .x = size_axis(),
                  .y = time_axis(depth > 1 ? "each, " + std::to_string(depth) + " in flight" : "each, one at a time")};
  for (const auto& [name, mine] : groups)
    for (const bool raw : {false, true}) {
      const std::string who = raw ? "raw" : "troupe";
      const std::string label = groups.size() == 1 ? who : who + " " + name;
      const std::string base = "/out_of_place/" + who + "/";
      bandwidth.series.push_back(series_of(label, mine, "/size_bytes", (base + kind).c_str(), raw));
      time.series.push_back(series_of(label, mine, "/size_bytes", (base + "time_us").c_str(), raw));
    }
  made.small_print.emplace_back("Out of place, medians of blocks. raw: the same calls without actors, launchers or "
                                "poller, in the same blocks.");
  made.panels = {std::move(bandwidth), std::move(time)};
  return made;
}

plot host_plot(const json& report) {
  plot made{.title = "all_reduce of host memory, " + ranks_of(report)};
  plot_panel bandwidth{.title = "Bandwidth", .x = size_axis(), .y = bandwidth_axis()};
  plot_panel time{.title = "Time", .x = size_axis(), .y = time_axis("one request")};
  for (const auto& [memory, rows] : grouped(report.at("rows"), "memory"))
    for (const char* const what : {"staged", "copies", "collective"}) {
      const bool reference = what != std::string{"staged"};
      auto one = series_of(std::string{what} + ", " + memory, rows, "/size_bytes",
                           ("/" + std::string{what} + "/p50").c_str(), reference);
      time.series.push_back(one);
      bandwidth.series.push_back(as_bandwidth(std::move(one)));
    }
  made.panels = {std::move(bandwidth), std::move(time)};
  return made;
}

plot registered_plot(const json& report) {
  plot made{.title = "Requests on registered memory, " + ranks_of(report)};
  plot_panel bandwidth{.title = "Many in flight", .x = size_axis(), .y = bandwidth_axis()};
  plot_panel time{.title = "One at a time", .x = size_axis(), .y = time_axis("request to reply")};
  for (const char* const memory : {"registered", "ordinary", "raw"}) {
    const std::string base = "/" + std::string{memory};
    const bool raw = memory == std::string{"raw"};
    time.series.push_back(series_of(memory, report.at("rows"), "/bytes", (base + "/alone/p50").c_str(), raw));
    bandwidth.series.push_back(
        as_bandwidth(series_of(memory, report.at("rows"), "/bytes", (base + "/rate/p50").c_str(), raw)));
  }
  made.panels = {std::move(bandwidth), std::move(time)};
  return made;
}

plot fusion_plot(const json& report) {
  plot made{.title = "Several all_reduces, one by one and as one launch, " + ranks_of(report)};
  for (const auto& [count, rows] : grouped(report.at("rows"), "count")) {
    plot_panel panel{.title = count + " all_reduces",
                     .x = {.label = "size of each", .values = plot_values::bytes},
                     .y = time_axis("all")};
    for (const char* const who : {"pipelines", "raw"})
      for (const char* const way : {"separate", "together"}) {
        const std::string y = "/" + std::string{who} + "/" + way + "/p50";
        panel.series.push_back(series_of((who == std::string{"raw"} ? "raw, " : "troupe, ") + std::string{way}, rows,
                                         "/size_bytes", y.c_str(), who == std::string{"raw"}));
      }
    made.panels.push_back(std::move(panel));
  }
  return made;
}

plot rate_plot(const json& report) {
  plot made{.title = "Small operations (" + std::to_string(static_cast<int>(number_at(report, "/options/size_bytes"))) +
                     " B) by how many are in flight, " + ranks_of(report)};
  const plot_axis in_flight{.label = "operations in flight", .values = plot_values::counts};
  plot_panel rate{.title = "Rate", .x = in_flight, .y = {.label = "operations per second (1/s)"}};
  plot_panel time{.title = "Time", .x = in_flight, .y = time_axis("each")};
  const auto groups = grouped(report.at("rows"), "mode");
  for (const auto& [mode, rows] : groups)
    rate.series.push_back(series_of("troupe, " + mode, rows, "/depth", "/operations_per_s/p50"));
  rate.series.push_back(series_of("raw", groups.front().second, "/depth", "/raw_per_s/p50", true));
  time.series = rate.series;
  for (plot_series& one : time.series)
    for (auto& [depth, value] : one.points) value = value > 0 ? 1e6 / value : 0;
  made.panels = {std::move(rate), std::move(time)};
  return made;
}

/// Returns the share of the requests that were answered by each time.
plot_series share_of(std::string name, const json& histogram, bool reference) {
  plot_series one{.name = std::move(name), .reference = reference};
  double all = 0, sum = 0;
  for (const json& range : histogram) all += range.at("count").get<double>();
  for (const json& range : histogram) {
    if (sum == 0) one.points.emplace_back(range.at("from_us").get<double>(), 0);
    sum += range.at("count").get<double>();
    one.points.emplace_back(range.at("to_us").get<double>(), 100 * sum / all);
  }
  return one;
}

plot latency_plot(const json& report) {
  plot made{.title = "Request to reply, " + std::to_string(static_cast<int>(number_at(report, "/options/size_bytes"))) +
                     " B, one at a time, " + ranks_of(report)};
  plot_panel shares{.title = "Asked in various ways",
                    .x = {.label = "time (µs)"},
                    .y = {.label = "requests answered by then (%)", .scale = plot_scale::linear}};
  for (const json& row : report.at("rows"))
    shares.series.push_back(share_of(row.at("way").get<std::string>(), row.at("time").at("histogram"), false));
  if (report.contains("raw")) shares.series.push_back(share_of("raw", report.at("raw").at("histogram"), true));
  made.panels = {std::move(shares)};
  return made;
}

std::optional<plot> bare_plot(const json& report) {
  const auto bench = report.at("bench").get<std::string>();
  if (!report.contains("rows") || report.at("rows").empty()) return std::nullopt;
  if (bench == "host") return host_plot(report);
  if (bench == "registered") return registered_plot(report);
  if (bench == "fusion") return fusion_plot(report);
  if (bench == "rate") return rate_plot(report);
  if (bench == "latency") return latency_plot(report);
  if (std::ranges::any_of(bench_operations(), [&](const bench_operation& one) { return one.name == bench; }))
    return collective_plot(report);
  return std::nullopt;
}

/// Returns e.g. "4 × NVLink x18, 2 × PIX": counts of the texts of \p key in \p list.
std::string counted(const json& list, const char* key) {
  std::map<std::string, std::size_t> kinds;
  for (const json& one : list) ++kinds[one.at(key).get<std::string>()];
  std::string text;
  for (const auto& [kind, count] : kinds) text += (text.empty() ? "" : ", ") + std::to_string(count) + " × " + kind;
  return text;
}

std::string changed_settings(const json& report) {
  const configuration defaults;
  std::string text;
  for (const auto& [name, value] : report.at("settings").items()) {
    const auto found = std::ranges::find(all_settings(), name, &setting::name);
    if (found == all_settings().end() || found->text(defaults) == value.get<std::string>()) continue;
    text += (text.empty() ? "" : ", ") + name + " = " + value.get<std::string>();
  }
  return text.empty() ? "the defaults" : text;
}

} // namespace

bool is_of_mock(const json& report) {
  return report.contains("devices") && std::ranges::any_of(report.at("devices"), [](const json& one) {
           return one.at("pci").get<std::string>().starts_with("mock:");
         });
}

std::vector<std::string> circumstances(const json& report) {
  std::vector<std::string> all;
  std::string versions =
      "troupe " + report.at("troupe").get<std::string>() + ", CAF " + report.at("caf").get<std::string>();
  for (const auto& [part, text] : report.at("versions").items())
    versions += "; " + part + ": " + text.get<std::string>();
  all.push_back(versions);
  std::string devices = "Devices: " + (report.contains("devices") ? counted(report.at("devices"), "name") : "none");
  if (report.contains("links") && !report.at("links").empty())
    devices += "; links: " + counted(report.at("links"), "link");
  if (report.contains("settings")) devices += ". Settings: " + changed_settings(report);
  all.push_back(devices);
  const json& heading = report.at("heading"); // The heading lists the world and its devices first, then the method.
  std::size_t first = 0;
  for (std::size_t i = 0; i < heading.size(); ++i) {
    const auto line = heading[i].get<std::string>();
    if (line.starts_with(' ') || line.starts_with("device ") || line.starts_with("world ")) first = i + 1;
  }
  for (std::size_t i = std::max<std::size_t>(first, 1); i < heading.size(); ++i)
    all.push_back(heading[i].get<std::string>());
  const json& machine = report.at("machine");
  all.push_back(machine.at("host").get<std::string>() + ", " + machine.at("system").get<std::string>() + ", " +
                machine.at("cores").dump() + " cores, " + report.at("date").get<std::string>());
  return all;
}

std::optional<plot> plot_of(const json& report) {
  std::optional<plot> made = bare_plot(report);
  if (!made) return made;
  if (is_of_mock(report)) made->title += " (of the mock)";
  const auto more = circumstances(report);
  made->small_print.insert(made->small_print.end(), more.begin(), more.end());
  return made;
}

} // namespace troupe::program
