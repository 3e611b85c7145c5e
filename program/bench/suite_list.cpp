#include <troupe/program/bench/bench_operation.hpp>
#include <troupe/program/bench/suite_list.hpp>

namespace troupe::program {

namespace {

using word_list = std::vector<std::string>;

/// Selects \p full, \p quick or \p tiny.
word_list by_scale(suite_scale scale, word_list full, word_list quick, word_list tiny) {
  if (scale == suite_scale::full) return full;
  return scale == suite_scale::quick ? quick : tiny;
}

} // namespace

std::vector<suite_bench> suite_benches(suite_scale scale) {
  std::vector<suite_bench> all{
      {.name = "completion",
       .what = "The cost of marking an operation and of seeing its completion, without collectives.",
       .arguments = by_scale(scale, {}, {"-n", "100", "--blocks", "5"}, {"-n", "20", "--blocks", "2", "--looks", "20"}),
       .takes_settings = false}};
  for (const bench_operation& one : bench_operations()) {
    const word_list sizes = by_scale(scale, {"-b", "8", "-e", one.name == "all_reduce" ? "1G" : "256M", "-f", "4"},
                                     {"-b", "8", "-e", "16M", "-f", "8"}, {"-b", "8", "-e", "256K", "-f", "8"});
    word_list arguments = one.moves_data ? sizes : word_list{};
    for (const std::string& word :
         by_scale(scale, {"--raw"}, {"-n", "10", "--blocks", "3", "--latency-iters", "100", "--raw"},
                  {"-n", "3", "-w", "1", "--blocks", "2", "--latency-iters", "5", "--raw"}))
      arguments.push_back(word);
    all.push_back({.name = std::string{one.name},
                   .what = one.moves_data
                               ? "Bandwidth and time by size, and the time from request to reply of the smallest size."
                               : "The time from request to reply, by completion strategy and client.",
                   .arguments = std::move(arguments)});
  }
  all.push_back({.name = "latency",
                 .what = "One small all_reduce at a time, through every kind of client.",
                 .arguments = by_scale(scale, {}, {"-n", "500", "--blocks", "3"}, {"-n", "30", "--blocks", "2"})});
  all.push_back({.name = "clients",
                 .what = "Many clients at once: a burst of one request each, and their rate.",
                 .arguments = by_scale(scale, {}, {"--requests", "5000", "-n", "10", "--blocks", "3"},
                                       {"--clients", "8", "--requests", "200", "-n", "2", "--blocks", "2"})});
  all.push_back({.name = "rate",
                 .what = "Small operations per second, by the number in flight.",
                 .arguments = by_scale(scale, {}, {"-n", "2000", "--blocks", "3"},
                                       {"-n", "64", "--blocks", "2", "--depths", "1,4,16"})});
  all.push_back({.name = "fusion",
                 .what = "Several all_reduces one by one, compared with a single launch.",
                 .arguments = by_scale(scale, {}, {"-n", "10", "--blocks", "3", "-f", "8"},
                                       {"-n", "2", "--blocks", "2", "--counts", "2,8", "-e", "32K", "-f", "8"})});
  all.push_back(
      {.name = "plan",
       .what = "A captured plan, compared with a graph captured by hand and eager requests.",
       .arguments = by_scale(scale, {}, {"-n", "10", "--blocks", "3"}, {"-n", "2", "--blocks", "2", "--steps", "4"})});
  all.push_back(
      {.name = "registered",
       .what = "Small requests on registered memory, compared with ordinary memory.",
       .arguments = by_scale(scale, {}, {"-n", "50", "--blocks", "3"}, {"-n", "4", "--blocks", "2", "--depth", "2"})});
  all.push_back({.name = "host",
                 .what = "all_reduce of host memory, compared with its copies and its collective.",
                 .arguments = by_scale(scale, {"-b", "1M", "-e", "256M"}, {"-b", "256K", "-e", "16M", "--blocks", "3"},
                                       {"-b", "64K", "-e", "1M", "-n", "2", "--blocks", "2"})});
  return all;
}

} // namespace troupe::program
