/// The samples of a metrics endpoint at one time, and the differences between two such times.
#pragma once

#include <troupe/program/top/prometheus_text.hpp>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::program {

/// Labels that a sample must have, with these values.
using label_filter = std::vector<std::pair<std::string_view, std::string_view>>;

struct metric_scrape {
  double at_seconds = 0; ///< Read from a monotonic clock.
  std::vector<text_sample> samples;

  /// Returns the sum over the samples called \p name that match \p of; 0 if there are none.
  [[nodiscard]] double sum(std::string_view name, const label_filter& of = {}) const;
  [[nodiscard]] bool has(std::string_view name, const label_filter& of = {}) const;
  /// Returns the distinct values of \p label among these samples. Numbers are sorted by value.
  [[nodiscard]] std::vector<std::string> values(std::string_view name, std::string_view label,
                                                const label_filter& of = {}) const;
  /// Returns, for a histogram, how many observations were at most each bound, over all samples that match. Ascending;
  /// the last bound is infinity.
  [[nodiscard]] std::map<double, double> buckets(std::string_view name, const label_filter& of = {}) const;
};

/// Returns the value below which the share \p quantile (0 to 1) of a histogram's observations lie, by linear
/// interpolation in its bucket as in Prometheus' histogram_quantile(): in the bucket without an upper bound it is the
/// highest bound. Returns NaN if there are no observations. \p up_to has the counts of observations that are at most
/// each bound.
[[nodiscard]] double histogram_quantile(double quantile, const std::map<double, double>& up_to);

/// The changes between two scrapes of one endpoint. A counter that has become smaller (another process) began at 0.
class scrape_interval {
public:
  /// Both must outlive this object. \p before may be null: then no rates are known.
  scrape_interval(const metric_scrape* before, const metric_scrape& now) : before_{before}, now_{now} {}

  [[nodiscard]] bool has_rates() const noexcept { return before_ != nullptr && seconds() > 0; }
  [[nodiscard]] double seconds() const noexcept {
    return before_ == nullptr ? 0 : now_.at_seconds - before_->at_seconds;
  }
  /// Returns the increase of the sum over a counter's samples. NaN without an earlier scrape.
  [[nodiscard]] double growth(std::string_view name, const label_filter& of = {}) const;
  /// Returns the increase per second.
  [[nodiscard]] double rate(std::string_view name, const label_filter& of = {}) const;
  /// Returns the quantile of the observations between the scrapes.
  [[nodiscard]] double quantile(double which, std::string_view name, const label_filter& of = {}) const;
  [[nodiscard]] const metric_scrape& now() const noexcept { return now_; }

private:
  const metric_scrape* before_;
  const metric_scrape& now_;
};

} // namespace troupe::program
