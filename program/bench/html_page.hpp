/// The report of `troupe bench suite`: one self-contained page, which needs neither a network nor scripts.
#pragma once

#include <troupe/program/bench/bench_report.hpp>

#include <optional>
#include <string>
#include <vector>

namespace troupe::program {

/// The outcome of one bench.
struct suite_result {
  std::string name;
  std::string what;    ///< One sentence.
  std::string command; ///< For a shell, to repeat the bench.
  double seconds = 0;
  std::string failure{}; ///< Why it did not run or what failed; empty if it succeeded.
  std::string printed{}; ///< Its tables as printed.
  std::optional<json> report{};
  std::string drawing{}; ///< SVG; empty if there is none.
};

/// Returns \p text escaped for elements and attributes.
[[nodiscard]] std::string html_text(const std::string& text);

/// Returns \p svg for a page with other drawings: without its prologue, and with "-" and \p suffix appended to its
/// names.
[[nodiscard]] std::string inlined_svg(const std::string& svg, const std::string& suffix);

/// Returns the page. \p command is the suite's own command line. \p note is shown at the top unless it is empty.
[[nodiscard]] std::string html_page(const std::vector<suite_result>& results, const std::string& command,
                                    const std::string& note);

} // namespace troupe::program
