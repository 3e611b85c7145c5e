// Measures how many milliseconds a test needs to start and to end a mock world of 4 ranks.
// Exits with 1 if the median start takes longer than bar_ms. Run it on an idle machine.
#include <troupe/testing/mock_world.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <vector>

namespace {

constexpr double bar_ms = 20;
constexpr std::size_t rounds = 31;

using clock_type = std::chrono::steady_clock;

double ms_between(clock_type::time_point begin, clock_type::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

} // namespace

int main() try {
  std::vector<double> starts;
  std::vector<double> ends;
  for (std::size_t i = 0; i < rounds; ++i) {
    const auto began = clock_type::now();
    auto world = std::make_unique<troupe::testing::mock_world>(4);
    const auto ready = clock_type::now();
    if (world->world().status().phase != troupe::world_phase::ready) throw std::runtime_error{"the world is not ready"};
    world = nullptr;
    starts.push_back(ms_between(began, ready));
    ends.push_back(ms_between(ready, clock_type::now()));
  }
  const double first = starts.front();
  std::ranges::sort(starts);
  std::ranges::sort(ends);
  std::printf("mock world of 4: ready in %.2f ms (median of %zu; first %.2f, worst %.2f), ended in %.2f ms (median)\n",
              starts[rounds / 2], rounds, first, starts.back(), ends[rounds / 2]);
  if (starts[rounds / 2] <= bar_ms) return 0;
  std::fprintf(
      stderr,
      "the median start took %.2f ms, more than the limit of %.0f ms: run it on an idle machine; if it fails there, "
      "the start of a mock world has become slower\n",
      starts[rounds / 2], bar_ms);
  return 1;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "mock_world_bench: %s\n", failure.what());
  return 1;
}
