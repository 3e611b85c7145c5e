#include <troupe/program/support/statistics.hpp>
#include <troupe/program/trace/trace_record.hpp>

#include <troupe/device/error.hpp>
#include <troupe/runtime/configuration/user_input.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace troupe::program {

namespace {

using json = nlohmann::ordered_json;

std::optional<trace_time> time_at(const json& from, const char* name) {
  const auto found = from.find(name);
  if (found == from.end()) return std::nullopt;
  return found->get<trace_time>();
}

traced_request request_of(const json& from) {
  traced_request one{.ticket = from.at("ticket").get<std::uint64_t>(), .epoch = from.at("epoch").get<std::uint64_t>()};
  one.of_world = from.value("of_world", false);
  one.what = from.value("what", one.what);
  one.lane = from.value("lane", std::string{});
  one.position = from.value("position", std::uint64_t{0});
  one.needs_all_ranks = from.value("reach", std::string{}) == "all_ranks";
  one.bytes = from.value("bytes", std::size_t{0});
  one.site = from.value("site", std::string{});
  one.asked = time_at(from, "asked");
  one.matched = time_at(from, "matched");
  one.launch_began = time_at(from, "launch_began");
  one.launched = time_at(from, "launched");
  one.finished = time_at(from, "finished");
  one.replied = time_at(from, "replied");
  one.launch = from.value("launch", std::uint64_t{0});
  one.fused = from.value("fused", std::size_t{0});
  one.result = from.value("result", std::string{});
  return one;
}

/// One process's record, before its times are converted to the common clock.
struct process_record {
  std::string boot;
  trace_time steady = 0, system = 0;
  std::string about{};
  std::vector<traced_rank> ranks{};
};

process_record record_of(const json& document) {
  if (document.value("kind", std::string{}) != "troupe flight record")
    throw exception{errc::invalid_argument, "it is not a flight record of troupe"};
  if (const int schema = document.at("schema").get<int>(); schema != 1)
    throw exception{errc::too_old, "its schema is " + std::to_string(schema) + ", this troupe reads 1: use the " +
                                       "troupe that wrote it"};
  process_record made{.boot = document.at("boot").get<std::string>(),
                      .steady = document.at("clock").at("steady_ns").get<trace_time>(),
                      .system = document.at("clock").at("system_ns").get<trace_time>(),
                      .about = document.at("about").get<std::string>()};
  for (const json& line : document.at("lines")) {
    traced_rank one{.host = document.at("host").get<std::string>(),
                    .pid = document.at("pid").get<int>(),
                    .world = line.at("world").get<std::uint64_t>(),
                    .rank = line.at("rank").get<int>(),
                    .world_size = line.at("world_size").get<int>(),
                    .device = line.at("device").get<int>(),
                    .asked_in_all = line.at("asked_in_all").get<std::uint64_t>()};
    for (const json& request : line.at("requests")) one.requests.push_back(request_of(request));
    made.ranks.push_back(std::move(one));
  }
  return made;
}

process_record read_record(const std::filesystem::path& file) {
  constexpr std::size_t most_bytes = std::size_t{4} << 30U; // A million requests of each of several ranks.
  const std::string text = read_bounded_file("the flight record", file, most_bytes, "name a file that troupe wrote");
  try {
    return record_of(json::parse(text));
  } catch (const json::exception& problem) {
    throw exception{errc::invalid_argument, file.string() + ": it is not a flight record: " + problem.what()};
  } catch (const exception& problem) {
    throw exception{problem.why().code, file.string() + ": " + problem.why().text};
  }
}

void shift(std::vector<traced_rank>& ranks, trace_time by) {
  for (traced_rank& rank : ranks)
    for (traced_request& one : rank.requests)
      for (auto* when : {&one.asked, &one.matched, &one.launch_began, &one.launched, &one.finished, &one.replied})
        if (*when) **when += by;
}

using collective_name = std::tuple<std::uint64_t, std::uint64_t, bool, std::string, std::uint64_t>;

collective_name name_of(const traced_rank& where, const traced_request& one) {
  return {where.world, one.epoch, one.of_world, one.of_world ? std::string{} : one.lane,
          one.of_world ? one.ticket : one.position};
}

/// Returns by how much later the same collectives finished in \p other than in \p known. They finish at the same time,
/// so this is the difference of the clocks. Empty if the two share no collective.
std::optional<trace_time> lateness(const std::vector<traced_rank>& known, const std::vector<traced_rank>& other) {
  std::map<collective_name, trace_time> ends;
  for (const traced_rank& rank : known)
    for (const traced_request& one : rank.requests)
      if (one.needs_all_ranks && one.finished) ends[name_of(rank, one)] = *one.finished;
  std::vector<trace_time> differences;
  for (const traced_rank& rank : other)
    for (const traced_request& one : rank.requests)
      if (one.needs_all_ranks && one.finished)
        if (const auto same = ends.find(name_of(rank, one)); same != ends.end())
          differences.push_back(*one.finished - same->second);
  if (differences.empty()) return std::nullopt;
  return median(std::move(differences));
}

void work_out_beginnings(traced_rank& rank) {
  std::vector<traced_request*> in_order;
  for (traced_request& one : rank.requests)
    if (one.launch != 0 && one.finished && one.launched) in_order.push_back(&one);
  std::ranges::stable_sort(in_order, {}, [](const traced_request* one) { return std::pair{one->epoch, one->launch}; });
  trace_time free_from = 0;
  for (std::size_t i = 0; i < in_order.size();) {
    trace_time end = free_from;
    std::size_t next = i;
    for (; next < in_order.size() && in_order[next]->launch == in_order[i]->launch; ++next) {
      traced_request& one = *in_order[next];
      one.began = std::min(std::max(*one.launched, free_from), *one.finished);
      end = std::max(end, *one.finished);
    }
    free_from = end;
    i = next;
  }
}

} // namespace

std::string traced_request::operation() const {
  return what.substr(0, what.find(' '));
}

std::string traced_rank::name() const {
  return "rank " + std::to_string(rank) + " of world " + std::to_string(world);
}

std::vector<std::vector<flight_trace::part>> flight_trace::collectives() const {
  std::map<collective_name, std::vector<part>> all;
  for (std::size_t r = 0; r < ranks.size(); ++r)
    for (std::size_t i = 0; i < ranks[r].requests.size(); ++i)
      if (const traced_request& one = ranks[r].requests[i]; one.needs_all_ranks && one.asked)
        all[name_of(ranks[r], one)].push_back({r, i});
  std::vector<std::vector<part>> several;
  for (auto& [name, parts] : all)
    if (parts.size() > 1) several.push_back(std::move(parts));
  return several;
}

flight_trace read_flight_records(const std::vector<std::filesystem::path>& files) {
  flight_trace made;
  std::string boot;
  trace_time difference = 0; // The difference of the two clocks in the first record.
  for (const auto& file : files) {
    process_record one = read_record(file);
    if (made.about.empty()) {
      made.about = one.about;
      boot = one.boot;
      difference = one.steady - one.system;
    } else if (one.boot != boot) {
      shift(one.ranks, difference - (one.steady - one.system));
      const auto late = lateness(made.ranks, one.ranks);
      if (late) shift(one.ranks, -*late);
      made.remarks.push_back(
          file.string() +
          (late ? " is from another machine: its times are aligned by the collectives that both finished"
                : " is from another machine and shares no collective: its times are aligned by the hosts' clocks"));
    }
    for (traced_rank& rank : one.ranks) made.ranks.push_back(std::move(rank));
  }
  std::ranges::stable_sort(made.ranks, {}, [](const traced_rank& one) { return std::pair{one.world, one.rank}; });
  for (traced_rank& rank : made.ranks) work_out_beginnings(rank);
  return made;
}

namespace {

using json = nlohmann::ordered_json;

enum class row : int { requests = 1, launcher = 2, gpu = 3 };

class event_list {
public:
  explicit event_list(const flight_trace& trace) : trace_{trace} {
    for (const traced_rank& rank : trace.ranks)
      for (const traced_request& one : rank.requests)
        for (const auto& when : {one.asked, one.launch_began, one.finished})
          if (when) zero_ = std::min(zero_, *when);
  }

  json all() {
    for (std::size_t r = 0; r < trace_.ranks.size(); ++r) add_rank(r);
    add_arrows();
    return {{"traceEvents", std::move(events_)},
            {"displayTimeUnit", "ns"},
            {"otherData", {{"about", trace_.about}, {"remarks", trace_.remarks}}}};
  }

private:
  [[nodiscard]] double at(trace_time when) const { return static_cast<double>(when - zero_) / 1000.0; }

  static json on(std::size_t rank, row where) { return {{"pid", rank + 1}, {"tid", static_cast<int>(where)}}; }

  void add(json one, std::size_t rank, row where) {
    one.update(on(rank, where));
    events_.push_back(std::move(one));
  }

  void name(std::size_t rank, row where, const char* text) {
    add({{"ph", "M"}, {"name", "thread_name"}, {"args", {{"name", text}}}}, rank, where);
    add({{"ph", "M"}, {"name", "thread_sort_index"}, {"args", {{"sort_index", static_cast<int>(where)}}}}, rank, where);
  }

  void add_rank(std::size_t r) {
    const traced_rank& rank = trace_.ranks[r];
    const std::string text = rank.name() + ", GPU " + std::to_string(rank.device) + " (" + rank.host + ", process " +
                             std::to_string(rank.pid) + ')';
    add({{"ph", "M"}, {"name", "process_name"}, {"args", {{"name", text}}}}, r, row::requests);
    add({{"ph", "M"}, {"name", "process_sort_index"}, {"args", {{"sort_index", r}}}}, r, row::requests);
    name(r, row::requests, "requests");
    name(r, row::launcher, "launcher");
    name(r, row::gpu, "GPU");
    std::set<std::pair<std::uint64_t, std::uint64_t>> launches;
    for (const traced_request& one : rank.requests) {
      add_life(r, one);
      if (one.launch != 0 && launches.insert({one.epoch, one.launch}).second) add_launch(r, one);
    }
  }

  static json details(const traced_request& one) {
    json made{{"bytes", one.bytes}, {"epoch", one.epoch}, {"ticket", one.ticket}};
    if (!one.of_world) made["lane"] = one.lane + ", request " + std::to_string(one.position);
    if (!one.site.empty()) made["asked at"] = one.site;
    if (!one.result.empty()) made["error"] = one.result;
    return made;
  }

  void add_span(std::size_t r, const std::string& id, const std::string& text, trace_time from, trace_time to,
                json details = json::object()) {
    add({{"ph", "b"}, {"cat", "request"}, {"id", id}, {"name", text}, {"ts", at(from)}, {"args", std::move(details)}},
        r, row::requests);
    add({{"ph", "e"}, {"cat", "request"}, {"id", id}, {"name", text}, {"ts", at(std::max(from, to))}}, r,
        row::requests);
  }

  void add_life(std::size_t r, const traced_request& one) {
    if (!one.asked) return;
    const auto end = one.finished ? one.finished : one.replied;
    const std::string id =
        std::to_string(r) + '.' + std::to_string(one.epoch) + (one.of_world ? ".w" : ".r") + std::to_string(one.ticket);
    if (!end) { // Still in progress when the record was written.
      add({{"ph", "i"}, {"s", "t"}, {"name", one.what + ": not over"}, {"ts", at(*one.asked)}, {"args", details(one)}},
          r, row::requests);
      return;
    }
    add_span(r, id, one.what, *one.asked, *end, details(one));
    if (one.matched) add_span(r, id, "waits for its peers", *one.asked, *one.matched);
    if (one.matched && one.launch_began) add_span(r, id, "waits for the launcher", *one.matched, *one.launch_began);
  }

  void add_launch(std::size_t r, const traced_request& one) {
    const std::string text = one.fused > 1 ? std::to_string(one.fused) + " together: " + one.what : one.what;
    const auto slice = [&](row where, trace_time from, trace_time to) {
      add({{"ph", "X"},
           {"name", text},
           {"cat", where == row::gpu ? "gpu" : "launch"},
           {"ts", at(from)},
           {"dur", static_cast<double>(std::max<trace_time>(to - from, 0)) / 1000.0},
           {"args", details(one)}},
          r, where);
    };
    if (one.launch_began && one.launched) slice(row::launcher, *one.launch_began, *one.launched);
    if (one.began && one.finished) slice(row::gpu, *one.began, *one.finished);
  }

  void add_arrows() {
    std::size_t id = 0;
    for (auto parts : trace_.collectives()) {
      std::erase_if(parts, [&](flight_trace::part one) { return !trace_.at(one).began; });
      if (parts.size() < 2) continue;
      std::ranges::sort(parts, {}, [&](flight_trace::part one) { return *trace_.at(one).began; });
      ++id;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const char* const phase = i == 0 ? "s" : i + 1 < parts.size() ? "t" : "f";
        json arrow{{"ph", phase},
                   {"cat", "collective"},
                   {"name", "collective"},
                   {"id", id},
                   {"ts", at(*trace_.at(parts[i]).began)}};
        if (i > 0) arrow["bp"] = "e";
        add(std::move(arrow), parts[i].rank, row::gpu);
      }
    }
  }

  const flight_trace& trace_;
  trace_time zero_ = std::numeric_limits<trace_time>::max();
  json events_ = json::array();
};

} // namespace

nlohmann::ordered_json trace_events(const flight_trace& trace) {
  return event_list{trace}.all();
}

} // namespace troupe::program
