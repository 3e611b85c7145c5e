/// A set of CPUs as a value, used for the CPUs near a device and for the CPUs that a thread may use, and the placement
/// of threads on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// CPU numbers of the operating system, sorted and unique.
class cpu_set {
public:
  cpu_set() = default;
  cpu_set(std::initializer_list<int> cpus);
  explicit cpu_set(std::vector<int> cpus);

  [[nodiscard]] const std::vector<int>& cpus() const noexcept { return cpus_; }
  [[nodiscard]] std::size_t size() const noexcept { return cpus_.size(); }
  [[nodiscard]] bool empty() const noexcept { return cpus_.empty(); }

  friend bool operator==(const cpu_set&, const cpu_set&) = default;

private:
  std::vector<int> cpus_;
};

[[nodiscard]] cpu_set union_of(const cpu_set& left, const cpu_set& right);
[[nodiscard]] cpu_set intersection_of(const cpu_set& left, const cpu_set& right);

/// Returns the set in the format of the kernel's lists, e.g. "0-15,32"; an empty string for an empty set.
[[nodiscard]] std::string to_string(const cpu_set& cpus);
/// Parses the format of to_string(). Errors: invalid_argument.
[[nodiscard]] cpu_set parse_cpu_set(std::string_view list);

/// Placement of troupe's threads.
enum class thread_placement : std::uint8_t {
  near_device, ///< "near": on the CPUs near the device that they serve.
  anywhere,    ///< "none": chosen by the operating system.
};

[[nodiscard]] std::string_view to_string(thread_placement placement) noexcept;
/// Parses the name of a placement. Errors: invalid_argument, naming the choices.
[[nodiscard]] thread_placement parse_thread_placement(std::string_view name);

} // namespace troupe
