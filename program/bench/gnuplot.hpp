/// Makes plots with gnuplot, an external program (package gnuplot-nox) that is searched for when it is needed.
#pragma once

#include <troupe/program/bench/plot.hpp>

#include <string>

namespace troupe::program {

/// Returns a complete gnuplot script, data included, that writes \p what as SVG to standard output. Names and titles
/// are shown literally: gnuplot interprets nothing in them as a command or markup. \p terminal names another gnuplot
/// terminal than svg, with its options, to view the same plot elsewhere.
/// Errors: invalid_argument when there is nothing to draw.
[[nodiscard]] std::string gnuplot_script(const plot& what, const std::string& terminal = {});

/// Returns the path of gnuplot. Errors: missing, whose text names the package.
[[nodiscard]] std::string find_gnuplot();

/// Returns the plot that gnuplot makes of \p script. Errors: missing, whose text names the package; unsupported, with
/// gnuplot's message.
[[nodiscard]] std::string drawn_by_gnuplot(const std::string& script);

} // namespace troupe::program
