#include <troupe/actors/world/recovery/culprits.hpp>
#include <troupe/collectives/pipeline/fault_suspects.hpp>

#include <algorithm>

namespace troupe {

namespace {

bool is_named(const error& why, fault_time when) noexcept {
  switch (when) {
    case fault_time::serving: return is_of_its_own(why.code);
    case fault_time::forming: return why.code != errc::deadline_exceeded;
    case fault_time::forming_of_failed:
      return why.code == errc::device_failed || why.code == errc::out_of_memory || why.code == errc::abandoned;
  }
  return false;
}

} // namespace

std::vector<rank> culprits_of(const error& why, const fault_report* report, fault_time when) {
  std::vector<rank> blamed;
  if (report != nullptr && when == fault_time::serving)
    for (const suspect& one : report->suspects) blamed.push_back(one.rank);
  if (why.rank && is_named(why, when)) blamed.push_back(*why.rank);
  std::ranges::sort(blamed);
  blamed.erase(std::unique(blamed.begin(), blamed.end()), blamed.end());
  return blamed;
}

} // namespace troupe
