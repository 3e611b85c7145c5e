#include <troupe/device/threads/thread_scheduler.hpp>
#include <troupe/runtime/recording/flight_record.hpp>
#include <troupe/runtime/recording/record_file.hpp>

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <array>
#include <fstream>
#include <optional>
#include <system_error>

namespace troupe {

namespace {

using nlohmann::ordered_json;

void put(ordered_json& to, const char* name, const std::optional<time_point>& when) {
  if (when) to[name] = when->time_since_epoch().count();
}

ordered_json of(const flight& one) {
  ordered_json made{{"ticket", one.name.ticket.value()}, {"epoch", one.name.epoch.value()}};
  if (one.name.of_world) made["of_world"] = true;
  if (one.what) {
    made["what"] = one.what->what;
    if (!one.name.of_world) {
      made["lane"] = one.what->lane.name();
      made["position"] = one.what->position;
    }
    made["reach"] = one.what->reach == operation_reach::all_ranks ? "all_ranks"
                    : one.what->reach == operation_reach::peers   ? "peers"
                                                                  : "itself";
    made["bytes"] = one.bytes;
    if (one.client != 0) made["client"] = one.client;
    if (one.site.file != nullptr) made["site"] = std::string{one.site.file} + ':' + std::to_string(one.site.line);
  }
  put(made, "asked", one.asked);
  put(made, "matched", one.matched);
  put(made, "launch_began", one.launch_began);
  put(made, "launched", one.launched);
  put(made, "started", one.started);
  put(made, "finished", one.finished);
  put(made, "replied", one.replied);
  if (one.launch != 0) {
    made["launch"] = one.launch;
    made["fused"] = one.fused;
  }
  if (one.result != errc::none) made["result"] = to_string(one.result);
  return made;
}

ordered_json of(const flight_line& line) {
  ordered_json requests = ordered_json::array();
  for (const flight& one : line.read()) requests.push_back(of(one));
  const flight_place& who = line.who();
  return {{"world", who.world},
          {"rank", who.self.value()},
          {"world_size", who.world_size},
          {"device", who.where.value()},
          {"asked_in_all", line.asked_in_all()},
          {"requests", std::move(requests)}};
}

std::string boot_name() {
  std::string text;
  std::getline(std::ifstream{"/proc/sys/kernel/random/boot_id"}, text);
  return text;
}

[[noreturn]] void refuse_record(const std::filesystem::path& path, const std::string& why) {
  throw exception{errc::invalid_argument, "the flight record cannot be written to " + path.string() + ": " + why +
                                              ": name a file in a writable folder"};
}

} // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

record_stamp record_stamp::now(std::string about) {
  return {.pid = static_cast<int>(::getpid()),
          .host = host_name(),
          .boot = boot_name(),
          .steady = steady_now(),
          .system = std::chrono::system_clock::now(),
          .about = std::move(about)};
}

std::string as_json(const flight_recorder& recorder, const record_stamp& stamp, std::string_view why) {
  ordered_json lines = ordered_json::array();
  for (const auto& one : recorder.lines()) lines.push_back(of(*one));
  const auto system = std::chrono::duration_cast<nanoseconds>(stamp.system.time_since_epoch());
  const ordered_json document{
      {"schema", 1},
      {"kind", "troupe flight record"},
      {"written", utc_of(stamp.system, utc_form::separated)},
      {"why", why},
      {"host", stamp.host},
      {"boot", stamp.boot},
      {"pid", stamp.pid},
      {"about", stamp.about},
      {"clock", {{"steady_ns", stamp.steady.time_since_epoch().count()}, {"system_ns", system.count()}}},
      {"lines", std::move(lines)}};
  return document.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

void write_flight_record(const std::filesystem::path& path, const flight_recorder& recorder, const record_stamp& stamp,
                         std::string_view why) {
  const std::string problem = replace_file(path, as_json(recorder, stamp, why) + '\n');
  if (!problem.empty()) refuse_record(path, problem);
}

std::filesystem::path flight_record_path(const std::filesystem::path& folder, const record_stamp& stamp) {
  std::error_code problem;
  std::filesystem::create_directories(folder, problem);
  std::filesystem::path path = folder / ("flight-" + stamp.host + "-pid" + std::to_string(stamp.pid) + '-' +
                                         utc_of(stamp.system, utc_form::compact) + ".json");
  if (problem) refuse_record(path, problem.message());
  return path;
}

} // namespace troupe
