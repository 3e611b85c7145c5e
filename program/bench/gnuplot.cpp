#include <troupe/program/bench/finished_program.hpp>
#include <troupe/program/bench/gnuplot.hpp>

#include <troupe/device/error.hpp>
#include <troupe/runtime/launch/program_path.hpp>

namespace troupe::program {

std::string find_gnuplot() {
  try {
    return launch::find_program("gnuplot");
  } catch (const exception&) {
    throw exception{errc::missing, "gnuplot, which draws the plots, is not in PATH: install it (on Debian and "
                                   "Ubuntu: apt-get install gnuplot-nox), or omit --plot"};
  }
}

std::string drawn_by_gnuplot(const std::string& script) {
  // -d: without the user's own defaults; -: the script is read from standard input
  finished_program done = run_to_end({find_gnuplot(), "-d", "-"}, script);
  if (!done.status.succeeded() || done.output.find("</svg>") == std::string::npos)
    throw exception{errc::unsupported, "gnuplot could not draw: " + done.last_words()};
  return std::move(done.output);
}

} // namespace troupe::program
