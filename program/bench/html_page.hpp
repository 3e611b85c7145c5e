/// The report of `troupe bench suite`: one page that needs nothing else, neither network nor scripts.
#pragma once

#include <troupe/program/bench/bench_report.hpp>

#include <optional>
#include <string>
#include <vector>

namespace troupe::program {

/// What became of one bench.
struct suite_result {
  std::string name;
  std::string what;    ///< A sentence.
  std::string command; ///< To repeat it, for a shell.
  double seconds = 0;
  std::string failure{}; ///< Why it did not run or what went wrong; empty when all is well.
  std::string printed{}; ///< Its tables as it printed them.
  std::optional<json> report{};
  std::string drawing{}; ///< SVG; empty where there is none.
};

/// \p text as it is shown, in elements and attributes.
[[nodiscard]] std::string html_text(const std::string& text);

/// \p svg to be put into a page with others: without its prologue, its names ending in "-" and \p suffix.
[[nodiscard]] std::string inlined_svg(const std::string& svg, const std::string& suffix);

/// The page. \p command is the suite's own; \p note is said at the top where it is not empty.
[[nodiscard]] std::string html_page(const std::vector<suite_result>& results, const std::string& command,
                                    const std::string& note);

} // namespace troupe::program
