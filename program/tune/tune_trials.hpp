/// The trials of `troupe tune`: the values that it tries for each setting, and the bench whose figures decide.
#pragma once

#include <troupe/program/bench/bench_report.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace troupe::program {

/// A number in a bench's report.
struct tune_figure {
  std::string name;     ///< With the unit, for people.
  std::string pointer;  ///< JSON pointer.
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
  std::string remark{};             ///< Costs or requirements of a choice, for people.

  /// Returns the setting's name or, if there is none, the option's.
  [[nodiscard]] std::string_view name() const { return setting.empty() ? option : setting; }
};

struct tune_scope {
  bool is_quick = false;
  bool is_mock = false; ///< Small sizes, and no NCCL settings.
};

[[nodiscard]] std::vector<tune_trial> tune_trials(tune_scope scope);

} // namespace troupe::program
