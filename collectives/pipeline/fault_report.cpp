#include <troupe/collectives/pipeline/fault_report.hpp>
#include <troupe/collectives/pipeline/fault_suspects.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t most_named = 8;

fault_report::standing standing_of(const rank_pipeline& one, std::vector<std::string>& asking) {
  fault_report::standing made{
      .rank = one.self(), .device = one.where()->id(), .progress = one.progress(), .in_flight = one.load()};
  // Every rank of a failed world has a fault. A fault that the rank reported itself names this rank.
  if (error why = one.fault(); why.rank == made.rank) made.fault = std::move(why);
  library_diagnostics words = one.last_diagnostics();
  made.last_error = std::move(words.last_error);
  if (!words.ask.empty() && std::ranges::find(asking, words.ask) == asking.end())
    asking.push_back(std::move(words.ask));
  return made;
}

std::string name_standing(const fault_report::standing& one, time_point taken) {
  const pipeline_progress& at = one.progress;
  std::string text = "rank " + to_string(one.rank);
  text += at.submitted ? " was last asked for " + describe(*at.submitted) : " has been asked for nothing";
  if (at.launching_since) text += ", has been in a launch call for " + describe(taken - *at.launching_since);
  if (at.launched) text += ", launched " + describe(*at.launched);
  if (at.running_since && at.started)
    text += ", has run " + describe(*at.started) + " for " + describe(taken - *at.running_since);
  if (at.finished) text += ", finished " + describe(*at.finished);
  return text + ", " + std::to_string(one.in_flight) + " in flight";
}

bool is_suspect(const fault_report& report, rank who) {
  return std::ranges::find(report.suspects, who, &suspect::rank) != report.suspects.end();
}

/// Returns the last errors of all ranks' libraries, each text once.
std::string last_errors(const fault_report& report) {
  std::vector<std::string> told;
  std::string text;
  for (const auto& one : report.ranks) {
    if (one.last_error.empty() || std::ranges::find(told, one.last_error) != told.end()) continue;
    text += (told.empty() ? "" : " / ") + one.last_error;
    told.push_back(one.last_error);
  }
  return text;
}

} // namespace

std::shared_ptr<const fault_report>
take_fault_report(fault_scope scope, std::span<const std::shared_ptr<rank_pipeline>> pipelines, time_point now) {
  auto made = std::make_shared<fault_report>(fault_report{.fault = std::move(scope.fault),
                                                          .is_verdict = scope.is_verdict,
                                                          .world = scope.world,
                                                          .epoch = scope.epoch,
                                                          .world_size = scope.world_size,
                                                          .taken = now});
  for (const auto& one : pipelines)
    if (one) made->ranks.push_back(standing_of(*one, made->asking));
  diagnosis found = diagnose(*made);
  made->suspects = std::move(found.suspects);
  made->remark = std::move(found.remark);
  return made;
}

error fault_of(const fault_report& report) {
  error why = report.fault;
  if (report.suspects.empty() || (why.rank && is_suspect(report, *why.rank))) return why;
  std::vector<rank> all;
  for (const suspect& one : report.suspects) all.push_back(one.rank);
  if (why.rank) why.text += "; rank " + to_string(*why.rank) + " has noticed it";
  why.text += "; " + name_ranks(all) + (all.size() == 1 ? " is" : " are") + " suspected";
  why.rank = all.size() == 1 ? std::optional{all.front()} : std::nullopt;
  return why;
}

std::string describe(const fault_report& report) {
  std::string text = "world " + std::to_string(report.world) + ", epoch " + to_string(report.epoch) + ": " +
                     describe_reason(report.fault);
  std::size_t named = 0;
  for (const suspect& one : report.suspects) {
    if (named++ == most_named) break;
    text += (named == 1 ? "; suspected: rank " : "; rank ") + to_string(one.rank) + ", because " + one.reason;
  }
  if (report.suspects.size() > most_named)
    text += "; and " + std::to_string(report.suspects.size() - most_named) + " more";
  if (report.suspects.empty()) text += "; no rank is suspected: " + report.remark;
  std::vector<const fault_report::standing*> order;
  for (const auto& one : report.ranks) order.push_back(&one);
  std::stable_partition(order.begin(), order.end(), [&](const auto* one) { return is_suspect(report, one->rank); });
  for (std::size_t i = 0; i < order.size() && i < most_named; ++i)
    text += "; " + name_standing(*order[i], report.taken);
  if (order.size() > most_named) text += "; and " + std::to_string(order.size() - most_named) + " more ranks";
  if (const std::string words = last_errors(report); !words.empty())
    text += "; the library's last error, which may be an older one: " + words;
  for (const std::string& one : report.asking) text += "; to query it: " + one;
  return text;
}

} // namespace troupe
