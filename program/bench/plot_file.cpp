#include <troupe/program/bench/bench_plots.hpp>
#include <troupe/program/bench/gnuplot.hpp>
#include <troupe/program/bench/plot_file.hpp>

#include <troupe/device/error.hpp>

#include <cstdio>

namespace troupe::program {

plot_file::plot_file(const std::string& path) {
  if (path.empty()) return;
  file_.emplace(path);
  try {
    static_cast<void>(find_gnuplot());
  } catch (const exception& failure) {
    std::fprintf(stderr, "troupe: %s; the bench continues, and will leave the plot's script beside the named file\n",
                 failure.what());
  }
}

void plot_file::draw(const json& report) const {
  if (!file_) return;
  const auto drawing = plot_of(report);
  if (!drawing)
    throw exception{errc::invalid_argument,
                    "bench " + report.at("bench").get<std::string>() + " has measured nothing that can be plotted"};
  const std::string script = gnuplot_script(*drawing);
  try {
    file_->write(drawn_by_gnuplot(script));
  } catch (const exception& failure) {
    const whole_file kept{file_->path().string() + ".gp"};
    kept.write(script);
    error why = failure.why();
    why.text += "; its script is " + kept.path().string();
    throw exception{why};
  }
}

} // namespace troupe::program
