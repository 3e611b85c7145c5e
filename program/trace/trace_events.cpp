#include <troupe/program/trace/trace_events.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace troupe::program {

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
