#include <troupe/runtime/recording/utc_time.hpp>

#include <array>
#include <cstdio>
#include <ctime>

namespace troupe {

std::string utc_of(std::chrono::system_clock::time_point at, utc_form form) {
  const auto since = std::chrono::floor<std::chrono::microseconds>(at.time_since_epoch());
  const auto whole = std::chrono::floor<std::chrono::seconds>(since);
  const std::time_t seconds = static_cast<std::time_t>(whole.count());
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 24> date{};
  std::strftime(date.data(), date.size(), form == utc_form::separated ? "%Y-%m-%dT%H:%M:%S" : "%Y%m%dT%H%M%S", &parts);
  std::array<char, 16> rest{};
  std::snprintf(rest.data(), rest.size(), ".%06dZ", static_cast<int>((since - whole).count()));
  return std::string{date.data()} + rest.data();
}

} // namespace troupe
