/// What `troupe tune` tries: which values of which settings, and the bench whose figures decide.
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
  bool is_rate = false; ///< More is better; it is compared as its inverse.

  /// In the form that is compared: lower is better. Errors: unsupported, when \p report has no such figure above 0.
  [[nodiscard]] double cost(const json& report) const;
};

struct tune_trial {
  std::string option;               ///< Of the bench.
  std::string setting{};            ///< What is written into the file; empty for what is the program's to choose.
  std::string standard{};           ///< The default, for what is no setting.
  std::vector<std::string> values;  ///< Candidates.
  std::vector<std::string> bench;   ///< The name and arguments of the bench.
  std::vector<tune_figure> figures; ///< One of them better and none worse: the candidate is taken.
  std::string remark{};             ///< What a choice costs or asks for besides, for people.

  /// The setting's name, else the option's.
  [[nodiscard]] std::string_view name() const { return setting.empty() ? option : setting; }
};

struct tune_scope {
  bool is_quick = false;
  bool is_mock = false; ///< Small sizes, and nothing of NCCL's.
};

[[nodiscard]] std::vector<tune_trial> tune_trials(tune_scope scope);

} // namespace troupe::program
