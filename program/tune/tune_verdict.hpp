/// Decides whether a value of a setting is better than the default by more than the measurement noise.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::program {

/// Measurements of one quantity by round; lower is better. Each round measures the default twice.
struct tune_samples {
  std::vector<double> standard{};
  std::vector<double> again{}; ///< The second measurement of the default; the difference is noise.
  std::vector<double> candidate{};
};

struct tune_verdict {
  double standard = 0; ///< Medians over rounds.
  double candidate = 0;
  double ratio = 1;       ///< Candidate over default: the median of the rounds' ratios.
  double noise = 0;       ///< Largest relative difference between the two measurements of the default; at least 0.02.
  bool is_better = false; ///< By more than the noise, in every round.
  bool is_worse = false;  ///< By more than the noise.
};

/// Errors: internal, for rounds without figures.
[[nodiscard]] tune_verdict judge(const tune_samples& samples);

/// Returns whether a candidate is taken: one of its figures is better and none is worse.
[[nodiscard]] bool is_taken(const std::vector<tune_verdict>& figures);

/// Returns the product of the ratios, so that no figure outweighs another. Among candidates, the smallest product is
/// the best.
[[nodiscard]] double gain_of(const std::vector<tune_verdict>& figures);

} // namespace troupe::program
