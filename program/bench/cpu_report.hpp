/// What a stretch of work cost in CPU time, by who the threads work for.
#pragma once

#include <troupe/program/bench/bench_report.hpp>
#include <troupe/program/bench/thread_times.hpp>

#include <cstddef>
#include <map>
#include <vector>

namespace troupe::program {

/// Of one way to do something, over several blocks.
class cpu_figures {
public:
  void add_block(const thread_times& before, const thread_times& after, std::size_t requests);

  /// Cores that \p group kept busy: CPU seconds for each second, median of blocks.
  [[nodiscard]] double cores(thread_group group) const;
  /// Of all threads.
  [[nodiscard]] double cores() const { return median(all_cores_); }
  /// CPU time of all threads for each request, in microseconds.
  [[nodiscard]] double us_each() const { return median(us_each_); }
  /// cores and us_per_request, of all and by group.
  [[nodiscard]] json report() const;

private:
  std::map<thread_group, std::vector<double>> cores_; ///< By block.
  std::map<thread_group, std::vector<double>> group_us_;
  std::vector<double> all_cores_;
  std::vector<double> us_each_;
};

} // namespace troupe::program
