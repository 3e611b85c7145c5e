/// What a metrics endpoint has said at one time, and what has happened between two such times.
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
  double at_seconds = 0; ///< Of a clock that goes steadily.
  std::vector<text_sample> samples;

  /// The sum over the samples called \p name that pass \p of; 0 where there is none.
  [[nodiscard]] double sum(std::string_view name, const label_filter& of = {}) const;
  [[nodiscard]] bool has(std::string_view name, const label_filter& of = {}) const;
  /// The values of \p label among them, each once; numbers by their size.
  [[nodiscard]] std::vector<std::string> values(std::string_view name, std::string_view label,
                                                const label_filter& of = {}) const;
  /// Of a histogram: how many were at most each bound, over all samples that pass. Ascending; the last bound is
  /// infinity.
  [[nodiscard]] std::map<double, double> buckets(std::string_view name, const label_filter& of = {}) const;
};

/// The value below which the share \p quantile (0 to 1) of a histogram's observations lie, by linear interpolation in
/// its bucket, as Prometheus' histogram_quantile() has it: in the bucket without a bound it is the highest bound. NaN
/// where there are none. \p up_to: counts of all that are at most each bound.
[[nodiscard]] double histogram_quantile(double quantile, const std::map<double, double>& up_to);

/// Between two scrapes of one endpoint. A counter that has become less (another process) began at 0.
class scrape_interval {
public:
  /// Both outlive this. \p before may be none: then nothing is known of rates.
  scrape_interval(const metric_scrape* before, const metric_scrape& now) : before_{before}, now_{now} {}

  [[nodiscard]] bool has_rates() const noexcept { return before_ != nullptr && seconds() > 0; }
  [[nodiscard]] double seconds() const noexcept {
    return before_ == nullptr ? 0 : now_.at_seconds - before_->at_seconds;
  }
  /// How much the sum over a counter's samples has grown. NaN without an earlier scrape.
  [[nodiscard]] double growth(std::string_view name, const label_filter& of = {}) const;
  /// The same in a second.
  [[nodiscard]] double rate(std::string_view name, const label_filter& of = {}) const;
  /// Of what was observed in between.
  [[nodiscard]] double quantile(double which, std::string_view name, const label_filter& of = {}) const;
  [[nodiscard]] const metric_scrape& now() const noexcept { return now_; }

private:
  const metric_scrape* before_;
  const metric_scrape& now_;
};

} // namespace troupe::program
