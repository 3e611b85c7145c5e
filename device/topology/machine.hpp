/// The host as hwloc sees it: which CPUs and NUMA nodes there are, and where on its PCI buses a device hangs.
#pragma once

#include <troupe/device/topology/link_kind.hpp>
#include <troupe/device/topology/locality.hpp>
#include <troupe/device/topology/pci_address.hpp>

#include <mutex>
#include <optional>
#include <string>

struct hwloc_topology; // hwloc's own, so that its header stays in device/

namespace troupe {

/// One host, examined at the first question about it: a program that asks nothing pays nothing.
/// Errors: every question throws unsupported where hwloc cannot examine the host.
/// Threads: safe from any.
class machine {
public:
  /// The machine that this process runs on; examined once in the process's life.
  [[nodiscard]] static const machine& here();
  /// A machine as hwloc's XML (`lstopo --of xml`) describes it: no thread can be bound on it.
  /// Errors: invalid_argument.
  [[nodiscard]] static machine from_xml(const std::string& description);

  machine(const machine&) = delete;
  machine& operator=(const machine&) = delete;
  ~machine();

  /// None if the machine has no such PCI device, or does not show it (as in some containers).
  [[nodiscard]] std::optional<locality> locate(const pci_address& device) const;
  /// What lies between two PCI devices, NVLink aside, which PCI does not show.
  [[nodiscard]] link_kind path(const pci_address& from, const pci_address& to) const;

  [[nodiscard]] int numa_node_count() const;
  /// hwloc's, e.g. "2.9.0".
  [[nodiscard]] std::string library_version() const;
  /// Whether threads of this process can be bound on it.
  [[nodiscard]] bool is_here() const;
  /// For thread_binding.
  [[nodiscard]] hwloc_topology* native() const;

private:
  machine() = default;
  explicit machine(const std::string& description);

  mutable std::mutex guard_;
  mutable hwloc_topology* loaded_ = nullptr; ///< Set once, and not changed after that.
};

} // namespace troupe
