#include <troupe/program/bench/finished_program.hpp>
#include <troupe/program/bench/plot_file.hpp>
#include <troupe/program/command_line.hpp>

#include <troupe/device/error.hpp>

#include <cstdio>

namespace troupe::program {

std::string why_no_plots() {
  try {
    const finished_program done = run_to_end({find_tool("plot"), "--check"});
    return done.status.succeeded() ? "" : done.last_words();
  } catch (const exception& failure) {
    return failure.what();
  }
}

std::string report_text(const json& report) {
  return report.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

plot_file::plot_file(const std::string& path) {
  if (path.empty()) return;
  file_.emplace(path);
  if (const std::string why = why_no_plots(); !why.empty())
    std::fprintf(stderr, "%s; the bench continues, and will leave its report beside the named file\n", why.c_str());
}

void plot_file::draw(const json& report) const {
  if (!file_) return;
  const std::string text = report_text(report);
  std::string why;
  try {
    const finished_program done = run_to_end({find_tool("plot"), "-", "-"}, text);
    if (done.status.succeeded()) return file_->write(done.output);
    why = done.last_words();
  } catch (const exception& failure) {
    if (failure.why().code == errc::invalid_argument) throw; // The file cannot be written.
    why = failure.what();
  }
  const whole_file kept{file_->path().string() + ".json"};
  kept.write(text);
  throw exception{errc::unsupported, "there is no plot: " + why + "; the report is " + kept.path().string()};
}

} // namespace troupe::program
