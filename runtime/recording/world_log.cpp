#include <troupe/runtime/recording/world_log.hpp>

#include <troupe/runtime/logging.hpp>
#include <troupe/runtime/recording/record_file.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

using nlohmann::ordered_json;

ordered_json text_or_null(const std::string& text) {
  return text.empty() ? ordered_json(nullptr) : ordered_json(text);
}

template <class Number>
ordered_json number_or_null(const std::optional<Number>& number) {
  return number ? ordered_json(number->value()) : ordered_json(nullptr);
}

ordered_json of(const std::optional<operation_mark>& one) {
  if (!one) return nullptr;
  return {{"what", one->what}, {"lane", one->lane.name()}, {"request", one->position}};
}

ordered_json seconds_until(time_point taken, const std::optional<time_point>& since) {
  if (!since) return nullptr;
  return std::chrono::duration<double>(taken - *since).count();
}

/// Limits the length of a report with thousands of ranks.
constexpr std::size_t most_ranges = 64;

ordered_json of(const std::shared_ptr<const undefined_buffers>& all) {
  if (!all) return nullptr;
  ordered_json ranges = ordered_json::array();
  for (std::size_t i = 0; i < std::min(all->size(), most_ranges); ++i) {
    const undefined_buffer& one = (*all)[i];
    std::array<char, 24> at{};
    std::snprintf(at.data(), at.size(), "0x%jx",
                  static_cast<std::uintmax_t>(reinterpret_cast<std::uintptr_t>(one.address)));
    ranges.push_back({{"rank", one.rank.value()},
                      {"device", number_or_null(one.device)},
                      {"address", at.data()},
                      {"bytes", one.size_bytes}});
  }
  return {{"count", all->size()}, {"ranges", ranges}};
}

ordered_json of(const error& why) {
  if (!why) return nullptr;
  ordered_json made{{"code", to_string(why.code)},
                    {"effect", why.effect == effect::rejected ? "rejected" : "unknown_outcome"},
                    {"text", why.text},
                    {"call", nullptr},
                    {"rank", number_or_null(why.rank)},
                    {"ticket", number_or_null(why.ticket)},
                    {"epoch", number_or_null(why.epoch)},
                    {"undefined", of(why.undefined)}};
  if (!why.call.empty()) made["call"] = {{"name", why.call}, {"code", why.native_code}, {"text", why.native_text}};
  return made;
}

ordered_json of(const fault_report::standing& one, time_point taken) {
  const pipeline_progress& at = one.progress;
  return {{"rank", one.rank.value()},
          {"device", one.device.value()},
          {"asked", of(at.submitted)},
          {"launched", of(at.launched)},
          {"started", of(at.started)},
          {"finished", of(at.finished)},
          {"collectives",
           {{"asked", at.collectives.submitted},
            {"launched", at.collectives.launched},
            {"finished", at.collectives.finished}}},
          {"in_flight", one.in_flight},
          {"launching_for_s", seconds_until(taken, at.launching_since)},
          {"running_for_s", seconds_until(taken, at.running_since)},
          {"fault", of(one.fault)},
          {"library_error", text_or_null(one.last_error)}};
}

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& why) {
  throw exception{errc::invalid_argument, "the report of a fault cannot be written to " + path.string() + ": " + why +
                                              ": set report.folder to a writable folder"};
}

} // namespace

std::string as_json(const fault_report& report, const record_stamp& stamp, int indent) {
  ordered_json suspects = ordered_json::array(), ranks = ordered_json::array();
  for (const suspect& one : report.suspects)
    suspects.push_back({{"rank", one.rank.value()}, {"why", to_string(one.why)}, {"reason", one.reason}});
  for (const auto& one : report.ranks) ranks.push_back(of(one, report.taken));
  const ordered_json document{{"schema", 1},
                              {"written", utc_of(stamp.system, utc_form::separated)},
                              {"pid", stamp.pid},
                              {"world", report.world},
                              {"epoch", report.epoch.value()},
                              {"world_size", report.world_size},
                              {"fault", of(report.fault)},
                              {"suspects", suspects},
                              {"remark", text_or_null(report.remark)},
                              {"ranks", ranks},
                              {"ask", report.asking}};
  // Native texts come from other libraries: bytes that are not UTF-8 are replaced, not refused.
  return document.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

std::filesystem::path write_fault_report(const std::filesystem::path& folder, const fault_report& report,
                                         const record_stamp& stamp) {
  std::filesystem::path path =
      folder / ("world" + std::to_string(report.world) + "-epoch" + to_string(report.epoch) + "-pid" +
                std::to_string(stamp.pid) + "-" + utc_of(stamp.system, utc_form::compact) + ".json");
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  if (problem) refuse(path, problem.message());
  if (const std::string why = replace_file(path, as_json(report, stamp, 2) + '\n'); !why.empty()) refuse(path, why);
  return path;
}

namespace {

/// Time limit for writing a report. A report is small, so a write that takes longer means that the disk does not
/// respond.
constexpr std::chrono::seconds time_to_write{10};

void write_beside(const std::filesystem::path& folder, const std::shared_ptr<const fault_report>& report,
                  const recorded_by& recorder, deadline_pool& helpers) {
  helpers.run(
      "writing the report of a fault", time_to_write,
      [folder, report, recorder, stamp = record_stamp::now(recorder.about)] {
        log_info("the report of a fault is in " + write_fault_report(folder, *report, stamp).string());
        if (!recorder.log) return;
        const auto path = flight_record_path(folder, stamp);
        write_flight_record(path, *recorder.log, stamp, "a fault: " + to_string(report->fault));
        log_info("the flight record is in " + path.string());
      },
      [](const error& why) {
        if (why) log_warning(to_string(why));
      });
}

/// Returns whether \p report names no other cause than its fault.
bool repeats_reason(const fault_report& report) {
  return !report.suspects.empty() &&
         std::ranges::all_of(report.suspects, [](const suspect& one) { return one.why == suspicion::named; });
}

} // namespace

world_status::listener make_world_log(std::optional<std::filesystem::path> report_folder,
                                      std::shared_ptr<deadline_pool> helpers, recorded_by recorder) {
  return [folder = std::move(report_folder), helpers = std::move(helpers),
          recorder = std::move(recorder)](const world_event& event) {
    try {
      if (event.reason && event.phase != world_phase::forming) // forming repeats the reason of rebuilding
        log_warning(describe(event));
      else if (!event.report) // an event with a report is not a change of phase
        log_info(describe(event));
      if (!event.report) return;
      repeats_reason(*event.report) ? log_info(describe(*event.report)) : log_warning(describe(*event.report));
      if (folder)
        write_beside(*folder, event.report, recorder, *helpers);
      else
        log_debug(as_json(*event.report, record_stamp::now()));
    } catch (...) { // a failure to report or log must not fail the world
      log_warning(to_string(current_error()));
    }
  };
}

} // namespace troupe
