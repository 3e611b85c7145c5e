#include <troupe/program/bench/cpu_report.hpp>

#include <algorithm>

namespace troupe::program {

void cpu_figures::add_block(const thread_times& before, const thread_times& after, std::size_t requests) {
  const auto uses = after.since(before);
  const double took_us = in_microseconds(after.taken_at() - before.taken_at());
  const auto count = static_cast<double>(std::max<std::size_t>(1, requests));
  double all_us = 0;
  for (const thread_group group : all_thread_groups) {
    const double used_us = in_microseconds(sum_of(uses, group));
    all_us += used_us;
    cores_[group].push_back(used_us / took_us);
    group_us_[group].push_back(used_us / count);
  }
  all_cores_.push_back(all_us / took_us);
  us_each_.push_back(all_us / count);
}

double cpu_figures::cores(thread_group group) const {
  const auto found = cores_.find(group);
  return found == cores_.end() ? 0 : median(found->second);
}

json cpu_figures::report() const {
  json made{{"cores", cores()}, {"us_per_request", us_each()}};
  for (const auto& [group, blocks] : cores_)
    made[std::string{to_string(group)}] = {{"cores", median(blocks)}, {"us_per_request", median(group_us_.at(group))}};
  return made;
}

} // namespace troupe::program
