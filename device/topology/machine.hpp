/// The host as seen by hwloc: its CPUs and NUMA nodes, and the positions of devices on its PCI buses.
#pragma once

#include <troupe/device/topology/locality.hpp>

#include <mutex>
#include <optional>
#include <string>

struct hwloc_topology; // declared here so that hwloc's header stays inside device/

namespace troupe {

/// One host. It is examined at the first query, so a program without queries pays nothing.
/// Errors: every query throws unsupported if hwloc cannot examine the host.
/// Threads: all functions may be called from any thread.
class machine {
public:
  /// Returns the machine on which this process runs. It is examined once per process.
  [[nodiscard]] static const machine& here();
  /// Returns a machine described by hwloc's XML (`lstopo --of xml`). Threads cannot be bound on it.
  /// Errors: invalid_argument.
  [[nodiscard]] static machine from_xml(const std::string& description);

  machine(const machine&) = delete;
  machine& operator=(const machine&) = delete;
  ~machine();

  /// Returns the locality of a PCI device. Empty if the machine has no such device or hides it (as in some containers).
  [[nodiscard]] std::optional<locality> locate(const pci_address& device) const;
  /// Returns the connection between two PCI devices, except NVLink, which PCI does not show.
  [[nodiscard]] link_kind path(const pci_address& from, const pci_address& to) const;

  [[nodiscard]] int numa_node_count() const;
  /// Returns the version of hwloc, e.g. "2.9.0".
  [[nodiscard]] std::string library_version() const;
  /// Returns whether threads of this process can be bound on this machine.
  [[nodiscard]] bool is_here() const;
  /// Returns hwloc's topology, for thread_binding.
  [[nodiscard]] hwloc_topology* native() const;

private:
  machine() = default;
  explicit machine(const std::string& description);

  mutable std::mutex mutex_;
  mutable hwloc_topology* loaded_ = nullptr; ///< Set once and not changed afterwards.
};

} // namespace troupe
