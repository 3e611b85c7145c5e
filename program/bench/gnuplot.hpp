/// Drawings made by gnuplot, a program of the distribution's (package gnuplot-nox) that is looked for when it is
/// needed.
#pragma once

#include <troupe/program/bench/plot.hpp>

#include <string>

namespace troupe::program {

/// A whole script, data included, that writes \p what as SVG to standard output. Whatever is in names and titles is
/// shown as it is: nothing is a command or markup to gnuplot. \p terminal is another of gnuplot's than svg, with its
/// options, to look at the same drawing elsewhere.
/// Errors: invalid_argument, when there is nothing to draw.
[[nodiscard]] std::string gnuplot_script(const plot& what, const std::string& terminal = {});

/// The path of gnuplot. Errors: missing, naming the package.
[[nodiscard]] std::string find_gnuplot();

/// \p script's drawing. Errors: missing, naming the package; unsupported, with what gnuplot said.
[[nodiscard]] std::string drawn_by_gnuplot(const std::string& script);

} // namespace troupe::program
