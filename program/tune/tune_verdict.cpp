#include <troupe/program/support/statistics.hpp>
#include <troupe/program/tune/tune_verdict.hpp>

#include <troupe/device/error.hpp>

#include <algorithm>
#include <cmath>

namespace troupe::program {

namespace {

/// Two or three rounds may agree by chance; a smaller difference is not worth a setting.
constexpr double least_noise = 0.02;

} // namespace

tune_verdict judge(const tune_samples& samples) {
  const auto ratios = paired_ratios(samples.candidate, samples.standard);
  const auto same = paired_ratios(samples.again, samples.standard);
  if (ratios.empty() || same.size() != ratios.size())
    throw exception{errc::internal, "a candidate is judged without rounds of its own and of the default"};
  tune_verdict verdict{.standard = median(samples.standard),
                       .candidate = median(samples.candidate),
                       .ratio = median(ratios),
                       .noise = least_noise};
  for (const double one : same) verdict.noise = std::max(verdict.noise, std::abs(one - 1));
  verdict.is_better =
      verdict.ratio < 1 - verdict.noise && std::ranges::all_of(ratios, [](double one) { return one < 1; });
  verdict.is_worse = verdict.ratio > 1 + verdict.noise;
  return verdict;
}

bool is_taken(const std::vector<tune_verdict>& figures) {
  return std::ranges::any_of(figures, &tune_verdict::is_better) &&
         std::ranges::none_of(figures, &tune_verdict::is_worse);
}

double gain_of(const std::vector<tune_verdict>& figures) {
  double product = 1;
  for (const tune_verdict& one : figures) product *= one.ratio;
  return product;
}

} // namespace troupe::program
