#include <troupe/program/bench/frame/report.hpp>
#include <troupe/program/subcommands.hpp>
#include <troupe/program/support/finished_program.hpp>

#include <troupe/actors/caf/caf_compat.hpp>
#include <troupe/device/error.hpp>
#include <troupe/runtime/recording/record_file.hpp>

#include <nlohmann/json.hpp>

#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

namespace troupe::program {

namespace {

/// Returns the command line of this process, as far as the system provides it.
json command_line() {
  std::ifstream file{"/proc/self/cmdline", std::ios::binary};
  json words = json::array();
  for (std::string one; std::getline(file, one, '\0');) words.push_back(one);
  return words;
}

std::string format_time(const char* format, const std::tm& when) {
  char text[64];
  const std::size_t length = std::strftime(text, sizeof text, format, &when);
  return {text, length};
}

} // namespace

json begin_report(std::string_view bench, const std::vector<std::string>& heading) {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  utsname system{};
  ::uname(&system);
  return {{"schema", bench_schema},
          {"bench", bench},
          {"troupe", TROUPE_VERSION},
          {"caf", std::to_string(CAF_MAJOR_VERSION) + "." + std::to_string(CAF_MINOR_VERSION) + "." +
                      std::to_string(CAF_PATCH_VERSION)},
          {"command", command_line()},
          {"date", format_time("%Y-%m-%dT%H:%M:%SZ", utc)},
          {"machine",
           {{"host", system.nodename},
            {"system", std::string{system.sysname} + " " + system.release + " " + system.machine},
            {"cores", std::thread::hardware_concurrency()}}},
          {"heading", heading}};
}

std::string device_line(const device& which) {
  const device_description what = which.api().describe(which.id());
  return what.name + " " + what.pci_bus_id;
}

json device_report(const device& which) {
  const device_description what = which.api().describe(which.id());
  return {{"device", which.id().value()}, {"name", what.name}, {"pci", what.pci_bus_id}};
}

json figures_report(const block_figures& figures) {
  return {{"p50", median(figures.p50)},
          {"p99", median(figures.p99)},
          {"blocks", {{"p50", figures.p50}, {"p99", figures.p99}}}};
}

json by_block(const std::vector<double>& values) {
  return {{"p50", median(values)}, {"blocks", values}};
}

std::vector<double> in_microseconds(const std::vector<std::chrono::nanoseconds>& spans) {
  std::vector<double> times;
  times.reserve(spans.size());
  for (const auto one : spans) times.push_back(in_microseconds(one));
  return times;
}

void print_heading(std::FILE* to, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) std::fprintf(to, "# %s\n", line.c_str());
}

std::string local_time(const char* format) {
  const std::time_t now = std::time(nullptr);
  std::tm here{};
  ::localtime_r(&now, &here);
  return format_time(format, here);
}

namespace {

/// Returns \p report as text. A host name may contain any bytes; those that are not UTF-8 are replaced.
std::string report_text(const json& report) {
  return report.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

/// Returns why troupe-plot cannot draw here, with the remedy, or an empty string if it can.
std::string why_no_plots() {
  try {
    const finished_program done = run_to_end({find_tool("plot"), "--check"});
    return done.status.succeeded() ? "" : done.last_words();
  } catch (const exception& failure) {
    return failure.what();
  }
}

} // namespace

void whole_file::refuse(const std::string& why) const {
  throw exception{errc::invalid_argument, "cannot write " + path_.string() + ": " + why + ": " + remedy_};
}

whole_file::whole_file(const std::string& path, std::string remedy) : remedy_{std::move(remedy)} {
  std::error_code problem;
  path_ = std::filesystem::weakly_canonical(path, problem); // A link is kept; its target is replaced.
  while (!problem && std::filesystem::is_symlink(path_))    // The link's target does not exist yet.
    path_ = std::filesystem::weakly_canonical(path_.parent_path() / std::filesystem::read_symlink(path_), problem);
  if (problem) {
    path_ = path;
    refuse(problem.message());
  }
  const auto status = std::filesystem::status(path_, problem);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    refuse("it exists and is not a regular file");
  const auto folder = std::filesystem::absolute(path_).parent_path();
  if (::access(folder.c_str(), W_OK | X_OK) != 0) refuse(std::generic_category().message(errno));
}

void whole_file::write(std::string_view text) const {
  if (const std::string why = replace_file(path_, text, 0666); !why.empty()) refuse(why);
}

json_file::json_file(const std::string& path) : standard_output_{path == "-"} {
  if (path.empty() || standard_output_) return;
  file_.emplace(path, "name a file in a folder that you may write to, or - for standard output");
}

void json_file::write(const nlohmann::ordered_json& document) const {
  if (!wanted()) return;
  const std::string text = report_text(document);
  if (file_) return file_->write(text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw exception{errc::invalid_argument, "cannot write standard output: " + std::generic_category().message(errno) +
                                                ": name a file instead"};
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
  throw exception{errc::unsupported, "the plot was not drawn: " + why + "; the report is " + kept.path().string()};
}

} // namespace troupe::program
