/// Defines the trials of `troupe tune` (the values that it tries for each setting, and the bench whose figures decide),
/// the verdict on a value, and the settings file that is written: JSON with comments that state what was measured.
#pragma once

#include <troupe/program/bench/frame/report.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::program {

/// A number in a bench's report.
struct tune_figure {
  std::string name;     ///< The name with the unit, for users.
  std::string pointer;  ///< The JSON pointer to the number.
  bool is_rate = false; ///< True: larger is better; its inverse is compared.

  /// Returns the figure as a cost, where lower is better. Errors: unsupported, if \p report has no such figure above 0.
  [[nodiscard]] double cost(const json& report) const;
};

struct tune_trial {
  std::string option; ///< The bench's option.
  std::string
      setting{}; ///< The setting that is written into the file; empty if the choice is made in the client's program.
  std::string standard{};           ///< The default value, if there is no setting.
  std::vector<std::string> values;  ///< Candidates.
  std::vector<std::string> bench;   ///< The name and arguments of the bench.
  std::vector<tune_figure> figures; ///< A candidate is taken if one of them is better and none is worse.
  std::string remark{};             ///< Costs or requirements of a choice, for users.

  /// Returns the setting's name or, if there is none, the option's.
  [[nodiscard]] std::string_view name() const { return setting.empty() ? option : setting; }
};

struct tune_scope {
  bool is_quick = false;
  bool is_mock = false; ///< True: small sizes, and no NCCL settings.
};

[[nodiscard]] std::vector<tune_trial> tune_trials(tune_scope scope);

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
  bool is_better = false; ///< Better by more than the noise, and in every round.
  bool is_worse = false;  ///< Worse by more than the noise.
};

/// Compares the candidate with the default. Errors: internal, for rounds without figures.
[[nodiscard]] tune_verdict judge(const tune_samples& samples);

/// Returns whether a candidate is taken: one of its figures is better and none is worse.
[[nodiscard]] bool is_taken(const std::vector<tune_verdict>& figures);

/// Returns the product of the ratios, so that no figure outweighs another. Among candidates, the smallest product is
/// the best.
[[nodiscard]] double gain_of(const std::vector<tune_verdict>& figures);

struct tuned_setting {
  std::string name;                    ///< The name of one of all_settings().
  std::string value;                   ///< The value as on a command line.
  std::vector<std::string> comments{}; ///< The measurements, one line each.
};

/// Returns a settings file (docs/configuration.md) with \p chosen settings, and \p heading as comments at the top. Text
/// in comments cannot end them. Errors: invalid_argument for a name that is not a setting.
[[nodiscard]] std::string tuned_file(const std::vector<std::string>& heading, const std::vector<tuned_setting>& chosen);

} // namespace troupe::program
