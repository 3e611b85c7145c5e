#include <troupe/runtime/logging.hpp>
#include <troupe/runtime/recording/fault_report_json.hpp>
#include <troupe/runtime/recording/flight_record.hpp>
#include <troupe/runtime/world_log.hpp>

#include <chrono>
#include <utility>

namespace troupe {

namespace {

/// A report is small: a write that takes longer means that the disk does not respond.
constexpr std::chrono::seconds time_to_write{10};

void write_beside(const std::filesystem::path& folder, const std::shared_ptr<const fault_report>& report,
                  const recorded_by& recorder, deadline_pool& helpers) {
  helpers.run(
      "writing the report of a fault", time_to_write,
      [folder, report, recorder, stamp = report_stamp::now()] {
        log_info("the report of a fault is in " + write_fault_report(folder, *report, stamp).string());
        if (!recorder.log) return;
        const record_stamp now = record_stamp::now(recorder.about);
        const auto path = flight_record_path(folder, now);
        write_flight_record(path, *recorder.log, now, "a fault: " + to_string(report->fault));
        log_info("the flight record is in " + path.string());
      },
      [](const error& why) {
        if (why) log_warning(to_string(why));
      });
}

} // namespace

world_status::listener make_world_log(std::optional<std::filesystem::path> report_folder,
                                      std::shared_ptr<deadline_pool> helpers, recorded_by recorder) {
  return [folder = std::move(report_folder), helpers = std::move(helpers),
          recorder = std::move(recorder)](const world_event& event) {
    try {
      if (event.reason)
        log_warning(describe(event));
      else if (!event.report) // an event with a report is not a change of phase
        log_info(describe(event));
      if (!event.report) return;
      log_warning(describe(*event.report));
      if (folder)
        write_beside(*folder, event.report, recorder, *helpers);
      else
        log_info(as_json(*event.report, report_stamp::now()));
    } catch (...) { // a failure to report or log must not fail the world
      log_warning(to_string(current_error()));
    }
  };
}

} // namespace troupe
