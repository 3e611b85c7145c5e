#include <troupe/program/bench/bench_rig.hpp>

#include <troupe/device/topology/topology.hpp>
#include <troupe/runtime/configuration/settings.hpp>

#include <algorithm>
#include <map>

namespace troupe::program {

namespace {

/// Returns the links between different devices of \p where. Empty if there is only one device or no link is known.
std::vector<device_pair> links_of(runtime& rt, const world& where) {
  std::vector<device_id> devices;
  for (const rank self : where.local_ranks()) devices.push_back(where.device_of(self)->id());
  std::vector<device_pair> links;
  try {
    const auto found = topology::examine(rt.api(), devices);
    std::ranges::copy_if(found.pairs(), std::back_inserter(links),
                         [](const device_pair& one) { return one.from != one.to; });
  } catch (const exception&) { // The measurement does not need it.
  }
  return links;
}

std::string link_text(const device_pair& one) {
  std::string text{to_string(one.link)};
  if (one.nvlink_count) text += " x" + std::to_string(*one.nvlink_count);
  return one.peer_access ? text : text + " without peer access";
}

} // namespace

bench_rig::bench_rig(const configuration& settings, bool with_raw, const world_options& options)
  : rt{settings}, where{rt.form_world(options)} {
  if (!with_raw) return;
  raw.emplace(rt, where);
  raw->rest();
}

std::vector<std::string> world_heading(runtime& rt, const world& where) {
  std::vector<std::string> lines{rt.describe(), describe(where.status())};
  for (const rank self : where.local_ranks()) {
    const device& on = *where.device_of(self);
    lines.push_back(" rank " + to_string(self) + ": device " + to_string(on.id()) + ", " + device_line(on));
  }
  std::map<std::string, std::size_t> kinds;
  const auto links = links_of(rt, where);
  for (const device_pair& one : links) ++kinds[link_text(one)];
  std::string text;
  for (const auto& [kind, count] : kinds)
    text += (text.empty() ? "" : ", ") + kind + (kinds.size() > 1 ? " (" + std::to_string(count) + " pairs)" : "");
  if (!text.empty()) lines.push_back(" links: " + text);
  return lines;
}

json begin_world_report(std::string_view bench, const std::vector<std::string>& heading, runtime& rt,
                        const world& where) {
  json report = begin_report(bench, heading);
  report["versions"] = {{"collectives", rt.collectives().version()}, {"driver", rt.api().version()}};
  for (const rank self : where.local_ranks()) {
    json one = device_report(*where.device_of(self));
    one["rank"] = self.value();
    report["devices"].push_back(std::move(one));
  }
  json& links = report["links"] = json::array();
  for (const device_pair& one : links_of(rt, where))
    links.push_back({{"from", one.from.value()}, {"to", one.to.value()}, {"link", link_text(one)}});
  report["changed_settings"] = json::array();
  const configuration defaults;
  for (const setting& one : all_settings()) {
    const std::string text = one.text(rt.settings());
    report["settings"][std::string{one.name}] = text;
    if (text != one.text(defaults)) report["changed_settings"].push_back(one.name);
  }
  return report;
}

} // namespace troupe::program
