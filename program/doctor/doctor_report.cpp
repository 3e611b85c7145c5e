#include <troupe/program/commands.hpp>
#include <troupe/program/doctor/doctor_report.hpp>
#include <troupe/program/support/runtime_options.hpp>

#include <troupe/runtime/configuration/user_input.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <string_view>

namespace troupe::program {

namespace {

using json = nlohmann::ordered_json;

template <class Value>
json or_null(const std::optional<Value>& value) {
  return value ? json(*value) : json(nullptr);
}

json of(const found_host& host) {
  return {{"cores", host.cores},
          {"usable_cpus", host.usable_cpus.cpus()},
          {"numa_nodes", host.numa_nodes},
          {"hwloc_version", host.hwloc_version}};
}

json of(const found_device& device, const device_place* place) {
  const bool cpus_known = place != nullptr && !place->local.cpus.empty();
  return {{"id", device.id.value()},
          {"name", device.what.name},
          {"compute_capability",
           std::to_string(device.what.compute_major) + "." + std::to_string(device.what.compute_minor)},
          {"total_bytes", device.what.total_bytes},
          {"free_bytes", device.what.free_bytes},
          {"pci_bus_id", device.what.pci_bus_id},
          {"multicast", or_null(device.what.traits.multicast)},
          {"gpu_direct_rdma", or_null(device.what.traits.gpu_direct_rdma)},
          {"dma_buf", or_null(device.what.traits.dma_buf)},
          {"numa_node", place != nullptr ? or_null(place->local.numa_node) : json(nullptr)},
          {"local_cpus", cpus_known ? json(place->local.cpus.cpus()) : json(nullptr)}};
}

json of(const device_pair& pair) {
  return {{"from", pair.from.value()},
          {"to", pair.to.value()},
          {"peer_access", pair.peer_access},
          {"link", to_string(pair.link)},
          {"nvlink_count", or_null(pair.nvlink_count)},
          {"nvlink_source", pair.nvlink_source}};
}

json of(const capabilities& able) {
  json features = json::array();
  for (const feature_finding& one : able.features)
    features.push_back({{"feature", to_string(one.what)}, {"available", to_string(one.available)}, {"why", one.why}});
  json refused = json::array();
  for (const exclusion& one : able.exclusions) {
    json kinds = json::array(), dtypes = json::array(), ops = json::array();
    for (const std::size_t kind : one.kinds) kinds.push_back(name_of_kind(kind));
    for (const dtype type : one.types) dtypes.push_back(to_string(type));
    for (const reduction op : one.ops) ops.push_back(to_string(op));
    refused.push_back({{"operations", kinds},
                       {"dtypes", dtypes},
                       {"reductions", ops},
                       {"ranks", to_string(one.size)},
                       {"why", one.why}});
  }
  return {{"backend", able.backend}, {"version", able.version}, {"features", features}, {"refused", refused}};
}

json of(const probe_findings& probed) {
  json uses = json::array();
  for (const probed_use& one : probed.uses)
    uses.push_back({{"operation", one.operation},
                    {"size_bytes", one.size_bytes},
                    {"function", one.function},
                    {"algorithm", one.algorithm.empty() ? json(nullptr) : json(one.algorithm)},
                    {"protocol", one.protocol.empty() ? json(nullptr) : json(one.protocol)},
                    {"channels", one.channels},
                    {"host_threads", one.by_proxy}});
  json transports = json::array();
  for (const probed_pair& one : probed.transports)
    transports.push_back({{"from", one.from.value()},
                          {"to", one.to.value()},
                          {"transport", one.transport.name},
                          {"deduced_from", one.transport.how}});
  json pools = json::array();
  for (const probed_pool& one : probed.pools)
    pools.push_back({{"device", one.where.value()},
                     {"reserved_bytes", one.now.reserved_bytes},
                     {"used_bytes", one.now.used_bytes}});
  return {{"backend", probed.backend}, {"ranks", probed.ranks}, {"uses", uses},
          {"transports", transports},  {"pools", pools},        {"note", probed.note}};
}

json of(const one_shot_finding& kernels) {
  return {{"compiled", kernels.is_compiled},
          {"architectures", kernels.architectures},
          {"automatic_bytes", kernels.automatic_bytes},
          {"why", kernels.why}};
}

json of(const missing_part& missing) {
  json part{{"part", missing.part},
            {"code", to_string(missing.why.code)},
            {"remedy", missing.why.text},
            {"needed_by_gpus", missing.needed_by_gpus}};
  if (!missing.why.call.empty())
    part["call"] = {{"name", missing.why.call}, {"code", missing.why.native_code}, {"text", missing.why.native_text}};
  return part;
}

} // namespace

std::string as_json(const doctor_findings& findings) {
  json document{
      {"troupe",
       {{"version", findings.troupe_version},
        {"caf_version", findings.caf_version},
        {"compiler", findings.compiler},
        {"built_with_cuda", findings.built_with_cuda}}},
      {"host", findings.host ? of(*findings.host) : json(nullptr)},
      {"driver", or_null(findings.driver_version)},
      {"devices", json::array()},
      {"pairs", json::array()},
      {"memory", {{"pool_keep_bytes", findings.pool_keep_bytes}, {"pool_reserve_bytes", findings.pool_reserve_bytes}}},
      {"one_shot", of(findings.one_shot)},
      {"nccl", nullptr},
      {"capabilities", findings.able ? of(*findings.able) : json(nullptr)},
      {"probe", findings.probed ? of(*findings.probed) : json(nullptr)},
      {"missing", json::array()},
      {"ready", {{"mock", true}, {"gpus", findings.ready_for_gpus()}}}};
  for (std::size_t i = 0; i < findings.devices.size(); ++i)
    document["devices"].push_back(of(findings.devices[i], findings.where ? &findings.where->places()[i] : nullptr));
  if (findings.where)
    for (const auto& pair : findings.where->pairs())
      if (pair.from != pair.to) document["pairs"].push_back(of(pair));
  if (findings.nccl) document["nccl"] = {{"version", findings.nccl->version}, {"path", findings.nccl->path}};
  for (const auto& missing : findings.missing) document["missing"].push_back(of(missing));
  // Names and native texts come from other software. Invalid UTF-8 in them is replaced, not refused.
  return document.dump(2, ' ', false, json::error_handler_t::replace) + '\n';
}

namespace {

constexpr std::size_t part_width = 11;
constexpr std::size_t verdict_width = 9;
constexpr std::size_t link_width = 22;

std::string padded(std::string_view text, std::size_t width) {
  std::string cell;
  cell.reserve(std::max(width, text.size()));
  cell += text;
  while (cell.size() < width) cell += ' ';
  return cell;
}

std::string line(const std::string& part, const std::string& verdict, const std::string& what) {
  return padded(part, part_width) + padded(verdict, verdict_width) + what + '\n';
}

std::string line_of(const missing_part& missing) {
  // The error code is printed unless the part is simply absent.
  const bool absent = missing.why.code == errc::missing;
  return line(missing.part, absent ? "missing" : "bad", absent ? missing.why.text : to_string(missing.why));
}

std::string line_of(const found_host& host) {
  const std::string nodes = host.numa_nodes == 1 ? " NUMA node" : " NUMA nodes";
  return line("host", "ok",
              std::to_string(host.cores) + " cores, this process may use the CPUs " + to_string(host.usable_cpus) +
                  "; " + std::to_string(host.numa_nodes) + nodes + "; hwloc " + host.hwloc_version);
}

std::string line_of(const found_device& device) {
  const auto in_gib = [](std::uint64_t size_bytes) { return static_cast<double>(size_bytes) / (1U << 30U); };
  std::array<char, 128> text{};
  std::snprintf(text.data(), text.size(), ", compute capability %d.%d, %.1f of %.1f GiB free, PCI ",
                device.what.compute_major, device.what.compute_minor, in_gib(device.what.free_bytes),
                in_gib(device.what.total_bytes));
  return line("GPU " + to_string(device.id), "ok", device.what.name + text.data() + device.what.pci_bus_id);
}

std::string line_of(const device_place& place) {
  const auto& [node, cpus] = place.local;
  return line("", "",
              (node ? "NUMA node " + std::to_string(*node) : "NUMA node unknown") +
                  (cpus.empty() ? ", local CPUs unknown" : ", local CPUs " + to_string(cpus)));
}

std::string cell_of(const device_pair& pair) {
  if (pair.link == link_kind::same) return "-";
  std::string text{to_string(pair.link)};
  if (pair.nvlink_count) text += " x" + std::to_string(*pair.nvlink_count);
  return pair.peer_access ? text : text + ", no peer";
}

std::string lines_of(const capabilities& able) {
  std::string text = line("can", able.backend, able.version);
  // Features with the same reason share a line.
  for (auto first = able.features.begin(); first != able.features.end();) {
    const auto alike = [&](const feature_finding& one) {
      return one.available == first->available && one.why == first->why;
    };
    const auto end = std::find_if_not(first, able.features.end(), alike);
    std::string names;
    for (auto one = first; one != end; ++one) names += (names.empty() ? "" : ", ") + std::string{to_string(one->what)};
    text += line("", std::string{to_string(first->available)}, names + ": " + first->why);
    first = end;
  }
  for (const exclusion& one : able.exclusions) text += line("", "refused", describe(one));
  return text;
}

std::string size_text(std::size_t size_bytes) {
  return size_bytes % 1024 == 0 ? format_byte_size(size_bytes) : std::to_string(size_bytes) + " B";
}

std::string line_of_pools(const doctor_findings& findings) {
  return line("memory", "ok",
              "the pool of each GPU keeps up to " + size_text(findings.pool_keep_bytes) +
                  " unused (pool_keep_bytes), and reserves " + size_text(findings.pool_reserve_bytes) +
                  " at the start (pool_reserve_bytes)");
}

std::string lines_of(const one_shot_finding& kernels) {
  std::string built = "for small collectives: not compiled in, because troupe was built without nvcc";
  if (kernels.is_compiled) {
    built = "for small collectives, compiled for ";
    for (const std::string& one : kernels.architectures)
      built += (&one == &kernels.architectures.front() ? "" : ", ") + one;
  }
  return line("kernels", kernels.is_compiled ? "ok" : "none", built) +
         line("", "",
              kernels.automatic_bytes > 0 ? "one_shot_bytes=auto: up to " + size_text(kernels.automatic_bytes) +
                                                " from one rank to another in the first world over these GPUs"
                                          : "one_shot_bytes=auto: none, " + kernels.why);
}

std::string lines_of(const probe_findings& probed) {
  std::string text = line("probe", "ok", "a world of " + std::to_string(probed.ranks) + " by " + probed.backend);
  if (!probed.note.empty()) text += line("", "", probed.note);
  for (const probed_use& one : probed.uses)
    text += line("", "",
                 one.operation + " of " + size_text(one.size_bytes) + ": " + one.function +
                     (one.algorithm.empty() ? "" : ", " + one.algorithm + ", " + one.protocol) + ", " +
                     std::to_string(one.channels) + " channels" + (one.by_proxy ? ", with host threads" : ""));
  if (!probed.uses.empty()) text += line("", "", "as reported by NCCL to its profiler");
  for (const probed_pair& one : probed.transports)
    text += line("", "",
                 "GPU " + to_string(one.from) + " to GPU " + to_string(one.to) + ": " + one.transport.name +
                     ", deduced: " + one.transport.how);
  for (const probed_pool& one : probed.pools)
    text += line("", "",
                 "the pool of GPU " + to_string(one.where) + " has " + size_text(one.now.reserved_bytes) +
                     " of its memory, of which " + size_text(one.now.used_bytes) + " are in use");
  return text;
}

/// Returns the table of links: from the device of the row to the device of the column.
std::string table_of(const topology& where) {
  std::string table = padded("links", part_width);
  for (const auto& to : where.places()) table += padded("GPU " + to_string(to.id), link_width);
  std::set<std::string> sources;
  for (const auto& from : where.places()) {
    table.erase(table.find_last_not_of(' ') + 1);
    table += '\n' + padded("GPU " + to_string(from.id), part_width);
    for (const auto& to : where.places()) {
      const device_pair& pair = where.between(from.id, to.id);
      table += padded(cell_of(pair), link_width);
      if (pair.link != link_kind::same) sources.insert(pair.nvlink_source);
    }
  }
  table.erase(table.find_last_not_of(' ') + 1);
  table += '\n';
  for (const auto& source : sources) table += "NVLink as reported by " + source + '\n';
  return table;
}

} // namespace

std::string as_text(const doctor_findings& findings) {
  std::string text = line("troupe", "ok",
                          findings.troupe_version + " with CAF " + findings.caf_version + ", built by " +
                              findings.compiler + (findings.built_with_cuda ? " with CUDA and NCCL" : " without CUDA"));
  if (findings.host) text += line_of(*findings.host);
  text += line("mock", "ok", "always available: troupe demo --backend mock");
  if (findings.driver_version) text += line("driver", "ok", *findings.driver_version);
  for (std::size_t i = 0; i < findings.devices.size(); ++i) {
    text += line_of(findings.devices[i]);
    if (findings.where) text += line_of(findings.where->places()[i]);
  }
  if (!findings.devices.empty()) text += line_of_pools(findings);
  if (findings.nccl) text += line("NCCL", "ok", findings.nccl->version + " from " + findings.nccl->path);
  text += lines_of(findings.one_shot);
  for (const auto& missing : findings.missing) text += line_of(missing);
  if (findings.able) text += lines_of(*findings.able);
  if (findings.where && findings.where->places().size() > 1) text += table_of(*findings.where);
  if (findings.probed) text += lines_of(*findings.probed);
  const auto lacking = std::ranges::count_if(findings.missing, &missing_part::needed_by_gpus);
  text += lacking == 0 ? "ready for GPUs\n" : "ready for the mock; " + std::to_string(lacking) + " missing for GPUs\n";
  return text;
}

namespace {

struct doctor_options {
  runtime_options common;
  bool json = false;
  bool probe = false;
};

int run(const doctor_options& options) {
  const doctor_findings findings = examine(options.common.settings(), options.probe);
  std::fputs((options.json ? as_json(findings) : as_text(findings)).c_str(), stdout);
  return 0;
}

} // namespace

void add_doctor(CLI::App& program, action& chosen) {
  auto options = std::make_shared<doctor_options>();
  CLI::App* command =
      program.add_subcommand("doctor", "report what this machine has, what is missing and how to get it");
  options->common.add_to(*command);
  command->add_flag("--json", options->json, "print one JSON document, and nothing else, to standard output");
  command->add_flag("--probe", options->probe,
                    "form a world and report which algorithms, protocols and transports it really uses");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

} // namespace troupe::program
