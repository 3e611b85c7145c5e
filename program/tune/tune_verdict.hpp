/// Whether a value of a setting is better than the default, by more than the default differs from itself.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace troupe::program {

/// One quantity, lower is better, by round. In each round the default was measured twice.
struct tune_samples {
  std::vector<double> standard{};
  std::vector<double> again{}; ///< The default once more: what differs is noise.
  std::vector<double> candidate{};
};

struct tune_verdict {
  double standard = 0; ///< Medians over rounds.
  double candidate = 0;
  double ratio = 1;       ///< Candidate over default, the median of the rounds' ratios.
  double noise = 0;       ///< By how much, as a share, the default differed from itself at most; 0.02 at least.
  bool is_better = false; ///< By more than the noise, and in every round.
  bool is_worse = false;  ///< By more than the noise.
};

/// Errors: internal, for rounds without figures.
[[nodiscard]] tune_verdict judge(const tune_samples& samples);

/// What comes of a candidate by its figures: taken where one of them is better and none is worse.
[[nodiscard]] bool is_taken(const std::vector<tune_verdict>& figures);

/// Of several that are taken: smaller is better. The product of the ratios, so that no figure outweighs another.
[[nodiscard]] double gain_of(const std::vector<tune_verdict>& figures);

} // namespace troupe::program
