#include <troupe/program/top/metric_scrape.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace troupe::program {

namespace {

constexpr double not_known = std::numeric_limits<double>::quiet_NaN();

bool passes(const text_sample& one, std::string_view name, const label_filter& of) {
  return one.name == name &&
         std::ranges::all_of(of, [&](const auto& wanted) { return one.label(wanted.first) == wanted.second; });
}

double bound_of(const text_sample& one) {
  const std::string_view text = one.label("le");
  if (text == "+Inf") return std::numeric_limits<double>::infinity();
  double bound = not_known;
  static_cast<void>(std::from_chars(text.data(), text.data() + text.size(), bound));
  return bound;
}

/// Sorts shorter numbers first: 2 before 10.
bool in_order(const std::string& one, const std::string& other) {
  const auto is_number = [](const std::string& text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  };
  if (is_number(one) && is_number(other) && one.size() != other.size()) return one.size() < other.size();
  return one < other;
}

} // namespace

double metric_scrape::sum(std::string_view name, const label_filter& of) const {
  double all = 0;
  for (const text_sample& one : samples)
    if (passes(one, name, of)) all += one.value;
  return all;
}

bool metric_scrape::has(std::string_view name, const label_filter& of) const {
  return std::ranges::any_of(samples, [&](const text_sample& one) { return passes(one, name, of); });
}

std::vector<std::string> metric_scrape::values(std::string_view name, std::string_view label,
                                               const label_filter& of) const {
  std::vector<std::string> all;
  for (const text_sample& one : samples)
    if (passes(one, name, of)) all.emplace_back(one.label(label));
  std::ranges::sort(all, in_order);
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::map<double, double> metric_scrape::buckets(std::string_view name, const label_filter& of) const {
  const std::string parts = std::string{name} + "_bucket";
  std::map<double, double> all;
  for (const text_sample& one : samples)
    if (passes(one, parts, of)) all[bound_of(one)] += one.value;
  return all;
}

double histogram_quantile(double quantile, const std::map<double, double>& up_to) {
  if (up_to.empty() || !(up_to.rbegin()->second > 0)) return not_known;
  const double wanted = quantile * up_to.rbegin()->second;
  double lower = 0, below = 0;
  for (const auto& [bound, count] : up_to) {
    if (count >= wanted && count > below)
      return std::isinf(bound) ? lower : lower + (bound - lower) * (std::max(wanted - below, 0.0) / (count - below));
    lower = bound;
    below = count;
  }
  return lower;
}

double scrape_interval::growth(std::string_view name, const label_filter& of) const {
  if (before_ == nullptr) return not_known;
  const double grown = now_.sum(name, of) - before_->sum(name, of);
  return grown >= 0 ? grown : now_.sum(name, of);
}

double scrape_interval::rate(std::string_view name, const label_filter& of) const {
  return has_rates() ? growth(name, of) / seconds() : not_known;
}

double scrape_interval::quantile(double which, std::string_view name, const label_filter& of) const {
  if (before_ == nullptr) return not_known;
  auto up_to = now_.buckets(name, of);
  const auto earlier = before_->buckets(name, of);
  const bool is_anew = !earlier.empty() && !up_to.empty() && earlier.rbegin()->second > up_to.rbegin()->second;
  for (auto& [bound, count] : up_to)
    if (const auto found = earlier.find(bound); found != earlier.end() && !is_anew) count -= found->second;
  return histogram_quantile(which, up_to);
}

} // namespace troupe::program
