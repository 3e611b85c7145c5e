/// Where the time of a burst of requests goes.
#pragma once

#include <troupe/program/bench/bench_client.hpp>
#include <troupe/program/bench/bench_report.hpp>

#include <algorithm>
#include <vector>

namespace troupe::program {

/// When the last request of a burst was at each of its stations, in microseconds after the first one was asked.
struct burst_stations {
  std::vector<double> asked{}, queued{}, launched{}, done{};

  void add(const std::vector<std::vector<request_times>>& burst) {
    time_point first = time_point::max();
    request_times last{};
    for (const auto& client : burst)
      for (const request_times& one : client) {
        first = std::min(first, one.asked);
        last.asked = std::max(last.asked, one.asked);
        last.between.queued = std::max(last.between.queued, one.between.queued);
        last.between.launched = std::max(last.between.launched, one.between.launched);
        last.between.done = std::max(last.between.done, one.between.done);
      }
    asked.push_back(in_microseconds(last.asked - first));
    queued.push_back(in_microseconds(last.between.queued - first));
    launched.push_back(in_microseconds(last.between.launched - first));
    done.push_back(in_microseconds(last.between.done - first));
  }
};

} // namespace troupe::program
