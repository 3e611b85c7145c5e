#include <troupe/program/doctor/doctor_text.hpp>

#include <troupe/runtime/configuration/user_input.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>
#include <string>
#include <string_view>

namespace troupe::program {

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
  if (findings.nccl) text += line("NCCL", "ok", findings.nccl->version + " from " + findings.nccl->path);
  for (const auto& missing : findings.missing) text += line_of(missing);
  if (findings.able) text += lines_of(*findings.able);
  if (findings.where && findings.where->places().size() > 1) text += table_of(*findings.where);
  if (findings.probed) text += lines_of(*findings.probed);
  const auto lacking = std::ranges::count_if(findings.missing, &missing_part::needed_by_gpus);
  text += lacking == 0 ? "ready for GPUs\n" : "ready for the mock; " + std::to_string(lacking) + " missing for GPUs\n";
  return text;
}

} // namespace troupe::program
