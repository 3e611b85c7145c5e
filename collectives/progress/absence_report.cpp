#include <troupe/collectives/progress/absence_report.hpp>

#include <algorithm>
#include <array>
#include <cstdio>

namespace troupe {

namespace {

constexpr std::size_t most_missing_named = 8; // the first few of a thousand ranks are enough

std::string name_standing(const absence_report::standing& one) {
  std::string text = "rank " + to_string(one.rank);
  text += one.last_asked ? " last asked for " + describe(*one.last_asked) : " has asked for nothing yet";
  if (one.last_launched) text += ", launched " + describe(*one.last_launched);
  if (one.last_finished) text += ", finished " + describe(*one.last_finished);
  return text;
}

} // namespace

std::vector<rank> absence_report::missing() const {
  std::vector<rank> all;
  for (const standing& one : ranks)
    if (one.participates && !one.asked) all.push_back(one.rank);
  return all;
}

std::string name_ranks(const std::vector<rank>& all) {
  std::string text = all.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < all.size() && i < most_missing_named; ++i)
    text += (i == 0 ? "" : ", ") + to_string(all[i]);
  if (all.size() > most_missing_named) text += " and " + std::to_string(all.size() - most_missing_named) + " more";
  return text;
}

std::string describe(const operation_mark& one) {
  return one.what + " (lane " + one.lane.name() + ", request " + std::to_string(one.position) + ")";
}

std::string describe(nanoseconds span) {
  const auto count = static_cast<double>(span.count());
  std::array<char, 32> text{};
  if (count >= 1e8)
    std::snprintf(text.data(), text.size(), "%.1f s", count / 1e9);
  else if (count >= 1e5)
    std::snprintf(text.data(), text.size(), "%.1f ms", count / 1e6);
  else
    std::snprintf(text.data(), text.size(), "%.1f us", count / 1e3);
  return text.data();
}

std::string describe(const absence_report& report) {
  std::vector<rank> asked;
  for (const auto& one : report.ranks)
    if (one.participates && one.asked) asked.push_back(one.rank);
  const std::vector<rank> missing = report.missing();
  const std::string where = report.sub_world.empty() ? std::string{} : " of sub-world '" + report.sub_world + "'";
  std::string text = report.what + " in lane " + report.lane.name() + where + " has waited " + describe(report.waited);
  if (missing.empty())
    return text + ": all participants have asked, but it waits behind other requests of " + name_ranks(asked) +
           " in the lane: let ranks that ask in different orders use different lanes, or one group";
  text += ": " + name_ranks(missing) + (missing.size() == 1 ? " has" : " have") + " not asked";
  if (!asked.empty()) text += ", " + name_ranks(asked) + (asked.size() == 1 ? " has" : " have");
  std::size_t named = 0;
  for (const auto& one : report.ranks)
    if (one.participates && !one.asked && named++ < most_missing_named) text += "; " + name_standing(one);
  return text;
}

} // namespace troupe
