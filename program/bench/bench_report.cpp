#include <troupe/program/bench/bench_report.hpp>

#include <troupe/actors/caf/caf_compat.hpp>

#include <sys/utsname.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <thread>

namespace troupe::program {

namespace {

/// Returns the command line of this process, as far as the system provides it.
json command_line() {
  std::ifstream file{"/proc/self/cmdline", std::ios::binary};
  json words = json::array();
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
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

bool is_of_mock(const json& report) {
  return report.contains("devices") && std::ranges::any_of(report.at("devices"), [](const json& one) {
           return one.at("pci").get<std::string>().starts_with("mock:");
         });
}

json figures_report(const block_figures& figures) {
  return {{"p50", median(figures.p50)},
          {"p99", median(figures.p99)},
          {"blocks", {{"p50", figures.p50}, {"p99", figures.p99}}}};
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

} // namespace troupe::program
