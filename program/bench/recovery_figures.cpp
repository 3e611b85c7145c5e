#include <troupe/program/bench/recovery_figures.hpp>

#include <algorithm>
#include <chrono>
#include <optional>

namespace troupe::program {

namespace {

double as_milliseconds(nanoseconds span) {
  return std::chrono::duration<double, std::milli>(span).count();
}

void add_span(std::vector<double>& to, const std::optional<time_point>& from, const std::optional<time_point>& until) {
  if (from && until) to.push_back(as_milliseconds(*until - *from));
}

} // namespace

const std::vector<recovery_figures::measure>& recovery_figures::measures() {
  static const std::vector<measure> all{{"detected", "raised to detected", &recovery_figures::detected_},
                                        {"ready", "detected to ready", &recovery_figures::ready_},
                                        {"first_good", "detected to first good reply", &recovery_figures::good_},
                                        {"serving", "raised to first good reply", &recovery_figures::serving_},
                                        {"aborted", "detected to last abort", &recovery_figures::aborted_},
                                        {"registrations", "registering again, each", &recovery_figures::registered_},
                                        {"plans", "capturing again, each plan", &recovery_figures::captured_},
                                        {"slowest", "slowest request after", &recovery_figures::slowest_},
                                        {"median", "median request after", &recovery_figures::typical_}};
  return all;
}

void recovery_figures::add(const played_fault& one) {
  add_span(detected_, one.raised, one.detected);
  add_span(ready_, one.detected, one.ready);
  add_span(good_, one.detected, one.first_good);
  add_span(serving_, one.raised, one.first_good);
  add_span(aborted_, one.detected, one.aborted);
  if (one.restored)
    for (const restored_part& part : *one.restored) {
      if (part.state != restored_state::back) {
        ++not_restored_;
        continue;
      }
      if (part.kind == restored_kind::registration) registered_.push_back(as_milliseconds(part.took));
      if (part.kind == restored_kind::plan) captured_.push_back(as_milliseconds(part.took));
    }
  if (one.watched_ms.empty()) return;
  slowest_.push_back(std::ranges::max(one.watched_ms));
  typical_.push_back(median(one.watched_ms));
}

std::vector<table_column> recovery_figures::columns() {
  return {{"fault", "", 10},   {"rung", "", 11},    {"time", "", 28},   {"count", "", 6},
          {"p50", "(ms)", 10}, {"p95", "(ms)", 10}, {"max", "(ms)", 10}};
}

void recovery_figures::print(const text_table& table) const {
  for (const measure& one : measures()) {
    const auto& times = this->*one.times;
    if (times.empty()) continue;
    table.print_row({fault_, rung_, one.what, std::to_string(times.size()), fixed(percentile(times, 0.50), 3),
                     fixed(percentile(times, 0.95), 3), fixed(std::ranges::max(times), 3)});
  }
}

json recovery_figures::report() const {
  json row{{"fault", fault_}, {"rung", rung_}};
  for (const measure& one : measures()) {
    const auto& times = this->*one.times;
    if (times.empty()) continue;
    row[one.name] = {{"count", times.size()},
                     {"p50", percentile(times, 0.50)},
                     {"p95", percentile(times, 0.95)},
                     {"max", std::ranges::max(times)},
                     {"each", times}};
  }
  if (not_restored_ > 0) row["not_restored"] = not_restored_;
  return row;
}

} // namespace troupe::program
