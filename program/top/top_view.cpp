#include <troupe/program/top/top_view.hpp>

#include <troupe/program/top/styled_line.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <string_view>
#include <utility>

namespace troupe::program {

namespace {

using enum text_style;
using rows = std::vector<styled_line>;

double now_since_epoch() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string age(const metric_scrape& now, std::string_view since, const label_filter& of = {}) {
  return now.has(since, of) ? short_time(std::max(0.0, now_since_epoch() - now.sum(since, of))) : "-";
}

std::string per_second(double rate) {
  return short_number(rate) + "/s";
}

/// Returns \p of / \p by, or NaN if \p by is 0.
double ratio(double of, double by) {
  return by > 0 ? of / by : std::numeric_limits<double>::quiet_NaN();
}

std::string in_percent(double share) {
  return std::isnan(share) ? "-" : short_number(std::round(1000 * std::clamp(share, 0.0, 1.0)) / 10) + "%";
}

text_style style_of_phase(std::string_view phase) {
  if (phase == "ready") return good;
  return phase == "failed" ? bad : warning;
}

/// Draws each rate as a bar, relative to the highest.
std::string curve(std::span<const double> rates) {
  constexpr std::array<std::string_view, 8> bars{"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const double highest = rates.empty() ? 0 : std::ranges::max(rates);
  std::string text;
  for (const double one : rates)
    text += bars.at(highest > 0 ? static_cast<std::size_t>(std::clamp(one / highest, 0.0, 1.0) * 7.0) : 0);
  return text;
}

std::string bar(double share, std::size_t width) {
  const auto full = static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(width) + 0.5);
  std::string text;
  for (std::size_t i = 0; i < width; ++i) text += i < full ? "█" : "░";
  return text;
}

std::string joined_counts(const metric_scrape& now, std::string_view metric, std::string_view label) {
  std::string text;
  for (const std::string& value : now.values(metric, label))
    text += (text.empty() ? "" : ", ") + value + " " + short_number(now.sum(metric, {{label, value}}));
  return text;
}

class top_page {
public:
  top_page(const scrape_interval& seen, const std::string& from)
    : seen_{seen}, now_{seen.now()}, from_{from}, worlds_{now_.values("troupe_world_epoch", "world")} {}

  /// Returns the lines above the tables.
  [[nodiscard]] rows head(std::span<const double> rates) const {
    rows all;
    const auto info = std::ranges::find(now_.samples, "troupe_build_info", &text_sample::name);
    styled_line title;
    title.add("troupe top", bold).add("  " + from_).add("  up " + age(now_, "troupe_start_time_seconds"));
    if (info != now_.samples.end())
      title.add("  " + std::string{info->label("backend")} + ", " + std::string{info->label("driver")} + ", profile " +
                    std::string{info->label("profile")},
                dim);
    all.push_back(std::move(title));
    for (const std::string& world : worlds_) all.push_back(world_line(world));
    if (worlds_.empty()) all.push_back(std::move(styled_line{}.add("no world has been formed", warning)));
    all.push_back(total_line(rates));
    if (now_.has("troupe_poller_seconds_total")) all.push_back(poller_line());
    const rows faults = fault_lines();
    all.insert(all.end(), faults.begin(), faults.end());
    return all;
  }

  [[nodiscard]] rows operations() const {
    struct row {
      double rate;
      styled_line line;
    };
    std::vector<row> found;
    for (const std::string& world : worlds_)
      for (const std::string& kind : now_.values("troupe_requests_total", "operation", {{"world", world}}))
        for (const std::string& size :
             now_.values("troupe_requests_total", "size", {{"world", world}, {"operation", kind}})) {
          const label_filter of{{"world", world}, {"operation", kind}, {"size", size}};
          const double rate = seen_.rate("troupe_requests_total", of);
          found.push_back({std::isnan(rate) ? 0 : rate, operation_line(world, kind, size, of)});
        }
    std::ranges::stable_sort(found, std::ranges::greater{}, &row::rate);
    rows all;
    for (row& one : found) all.push_back(std::move(one.line));
    return all;
  }
  [[nodiscard]] styled_line operation_heading() const {
    styled_line line;
    if (has_several()) line.left("WORLD", 6, inverse);
    line.left("OPERATION", 17, inverse).right("SIZE<=", 6, inverse).right("REQ/S", 9, inverse);
    line.right("BYTES/S", 9, inverse).right("P50", 9, inverse).right("P99", 9, inverse).right("QUEUED", 9, inverse);
    line.right("REQUESTS", 10, inverse);
    return line;
  }

  [[nodiscard]] rows ranks() const {
    rows all;
    for (const std::string& world : worlds_)
      for (const std::string& rank : now_.values("troupe_launches_total", "rank", {{"world", world}}))
        all.push_back(rank_line(world, rank));
    return all;
  }
  [[nodiscard]] styled_line rank_heading() const {
    styled_line line;
    if (has_several()) line.left("WORLD", 6, inverse);
    line.left("RANK", 6, inverse).right("LEAD", 7, inverse).right("QUEUE", 7, inverse).right("REQ/S", 10, inverse);
    line.right("LAUNCHES/S", 12, inverse).right("FUSION", 8, inverse).right("BYTES/S", 10, inverse);
    line.right("FAILED", 9, inverse).right("P99", 9, inverse);
    return line;
  }

private:
  [[nodiscard]] bool has_several() const { return worlds_.size() > 1; }

  [[nodiscard]] styled_line world_line(const std::string& world) const {
    const label_filter of{{"world", world}};
    std::string phase = "-";
    for (const text_sample& one : now_.samples)
      if (one.name == "troupe_world_phase" && one.label("world") == world && one.value == 1) phase = one.label("phase");
    const auto number = [&](std::string_view metric) { return short_number(now_.sum(metric, of)); };
    styled_line line;
    line.add("world " + world + "  ").add(phase, style_of_phase(phase)).add("  epoch " + number("troupe_world_epoch"));
    line.add("  " + number("troupe_world_ranks") + " ranks (" + number("troupe_world_local_ranks") + " here)");
    if (now_.sum("troupe_world_lost_ranks", of) > 0) line.add("  lost " + number("troupe_world_lost_ranks"), bad);
    line.add("  pending " + number("troupe_world_pending_requests"));
    if (now_.has("troupe_world_pending_limit", of)) line.add("/" + number("troupe_world_pending_limit"));
    if (now_.has("troupe_world_lead", of)) line.add("  lead " + number("troupe_world_lead"));
    // Last, because a narrow screen cuts it off.
    line.add("  up " + age(now_, "troupe_world_start_time_seconds", of));
    return line;
  }

  [[nodiscard]] styled_line total_line(std::span<const double> rates) const {
    styled_line line;
    line.add("requests ").add(per_second(request_rate(seen_)), bold).add("  ").add(curve(rates), accent);
    line.add(rates.empty() ? "" : "  ").add(short_bytes(seen_.rate("troupe_request_bytes_total")) + "B/s  ");
    line.add("launches " + per_second(seen_.rate("troupe_launches_total")) + "  ");
    line.add("fusion " + short_number(ratio(seen_.growth("troupe_launched_requests_total"),
                                            seen_.growth("troupe_launches_total"))));
    return line;
  }

  [[nodiscard]] styled_line poller_line() const {
    const auto share = [&](std::string_view state) {
      return seen_.has_rates() ? seen_.rate("troupe_poller_seconds_total", {{"state", state}})
                               : std::numeric_limits<double>::quiet_NaN();
    };
    const double busy = share("busy"), parked = share("parked");
    styled_line line;
    line.add("poller   busy ").add(in_percent(busy), bold).add("  ");
    line.add(bar(std::isnan(busy) ? 0 : busy, 20), busy > 0.8 ? warning : accent);
    line.add("  parked " + in_percent(parked) + "  looking " + in_percent(1 - busy - parked));
    return line;
  }

  [[nodiscard]] rows fault_lines() const {
    rows all;
    if (const std::string faults = joined_counts(now_, "troupe_world_faults_total", "code"); !faults.empty()) {
      styled_line line;
      line.add("faults   ").add(faults, bad);
      for (const std::string& rung :
           now_.values("troupe_world_recovery_seconds_count", "rung", {{"result", "ready"}})) {
        const label_filter of{{"rung", rung}, {"result", "ready"}};
        const double times = now_.sum("troupe_world_recovery_seconds_count", of);
        line.add("  back by " + rung + " " + short_number(times) + "x, in " +
                 short_time(now_.sum("troupe_world_recovery_seconds_sum", of) / times));
      }
      all.push_back(std::move(line));
    }
    if (const std::string failures = joined_counts(now_, "troupe_request_failures_total", "code"); !failures.empty())
      all.push_back(std::move(styled_line{}
                                  .add("failed   ")
                                  .add(failures, warning)
                                  .add("  now " + per_second(seen_.rate("troupe_request_failures_total")))));
    return all;
  }

  [[nodiscard]] styled_line operation_line(const std::string& world, const std::string& kind, const std::string& size,
                                           const label_filter& of) const {
    const auto latency = [&](double which) {
      return short_time(seen_.quantile(which, "troupe_request_latency_seconds", of));
    };
    styled_line line;
    if (has_several()) line.left(world, 6);
    line.left(kind, 17, bold).right(size, 6).right(short_number(seen_.rate("troupe_requests_total", of)), 9);
    line.right(short_bytes(seen_.rate("troupe_request_bytes_total", of)), 9)
        .right(latency(0.5), 9)
        .right(latency(0.99), 9);
    line.right(short_time(ratio(seen_.growth("troupe_request_queue_seconds_total", of),
                                seen_.growth("troupe_requests_total", of))),
               9);
    line.right(short_number(now_.sum("troupe_requests_total", of)), 10);
    return line;
  }

  [[nodiscard]] styled_line rank_line(const std::string& world, const std::string& rank) const {
    const label_filter of{{"world", world}, {"rank", rank}};
    const double failed = now_.sum("troupe_request_failures_total", of);
    styled_line line;
    if (has_several()) line.left(world, 6);
    line.left(rank, 6, bold);
    line.right(now_.has("troupe_rank_lead", of) ? short_number(now_.sum("troupe_rank_lead", of)) : "-", 7);
    line.right(short_number(now_.sum("troupe_rank_queue", of)), 7);
    line.right(short_number(seen_.rate("troupe_requests_total", of)), 10);
    line.right(short_number(seen_.rate("troupe_launches_total", of)), 12);
    line.right(short_number(ratio(seen_.growth("troupe_launched_requests_total", of),
                                  seen_.growth("troupe_launches_total", of))),
               8);
    line.right(short_bytes(seen_.rate("troupe_request_bytes_total", of)), 10);
    line.right(short_number(failed), 9, failed > 0 ? warning : plain);
    line.right(short_time(seen_.quantile(0.99, "troupe_request_latency_seconds", of)), 9);
    return line;
  }

  const scrape_interval& seen_;
  const metric_scrape& now_;
  const std::string& from_;
  std::vector<std::string> worlds_;
};

/// Adds a heading and as many rows of \p all as fit into \p lines. The last line counts the rows that are not shown.
void add_table(rows& to, styled_line heading, const rows& all, std::size_t lines, const char* what) {
  if (all.empty() || lines < 2) return;
  to.push_back(std::move(heading));
  const bool all_fit = all.size() + 1 <= lines;
  const std::size_t shown = all_fit ? all.size() : lines - 2;
  to.insert(to.end(), all.begin(), all.begin() + static_cast<std::ptrdiff_t>(shown));
  if (!all_fit)
    to.push_back(std::move(styled_line{}.add("... and " + std::to_string(all.size() - shown) + " more " + what, dim)));
}

} // namespace

double request_rate(const scrape_interval& seen) {
  return seen.rate("troupe_requests_total");
}

std::vector<std::string> draw_top(const scrape_interval& seen, std::span<const double> earlier_rates,
                                  const std::string& from, const top_screen& screen) {
  const top_page page{seen, from};
  rows all = page.head(earlier_rates);
  const rows operations = page.operations(), ranks = page.ranks();
  const std::size_t used = std::min(screen.lines, all.size() + 2); // An empty line precedes each table.
  const std::size_t room = screen.lines - used;
  // Ranks get the lines that operations leave, but at least half if both are many.
  const std::size_t for_ranks =
      std::min(ranks.size() + 1, std::max(room / 2, room - std::min(room, operations.size() + 1)));
  all.emplace_back();
  add_table(all, page.operation_heading(), operations, room - for_ranks, "operations");
  all.emplace_back();
  add_table(all, page.rank_heading(), ranks, for_ranks, "ranks");
  all.resize(std::min(all.size(), screen.lines));
  std::vector<std::string> lines;
  for (const styled_line& one : all) lines.push_back(one.text(screen.columns, screen.is_coloured));
  return lines;
}

} // namespace troupe::program
