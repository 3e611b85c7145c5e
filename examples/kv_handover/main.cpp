/// Transfers blocks of KV caches from prefill ranks to decode ranks, while a rank is lost under traffic. See README.md.
#include "handover.hpp"

#include "../command_line.hpp"

#include <chrono>
#include <troupe/testing/fault_script.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

using namespace std::chrono_literals;

int main(int argc, char** argv) try {
  const command_line asked{argc,
                           argv,
                           {"--seconds", "--fault-after", "--prefill", "--slots", "--blocks", "--block-elements"},
                           {{"recovery.policy", "keep_size"}, {"limits.hang", "200ms"}, {"log_level", "error"}}};
  const auto seconds = asked.number<double>("--seconds", 5);
  const auto fault_after = asked.number<double>("--fault-after", 0);
  auto settings = asked.settings();
  const auto faults = std::make_shared<troupe::testing::fault_script>(troupe::testing::launch_recording::off);
  settings.faults = faults;
  troupe::runtime runtime{settings};
  troupe::world world = runtime.form_world();

  handover_shape shape;
  shape.prefill_ranks = asked.number<int>("--prefill", std::max(world.size() / 2, 1));
  shape.slots = asked.number<int>("--slots", shape.slots);
  shape.blocks = asked.number<int>("--blocks", shape.blocks);
  shape.block_elements = asked.number<std::size_t>("--block-elements", shape.block_elements);
  if (shape.prefill_ranks < 1 || shape.prefill_ranks >= world.size())
    throw troupe::exception{troupe::errc::invalid_argument,
                            std::to_string(shape.prefill_ranks) + " of " + std::to_string(world.size()) +
                                " ranks would prefill: give --prefill at least 1 and less than --ranks"};
  std::printf("%s\n%d ranks prefill, %d decode; %d requests at once, of %d blocks of %zu bytes\n",
              runtime.describe().c_str(), shape.prefill_ranks, world.size() - shape.prefill_ranks, shape.slots,
              shape.blocks, shape.block_elements * sizeof(float));

  handover caches{world, shape};
  std::future<troupe::time_point> raised;
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>{std::chrono::steady_clock::now() - begin}.count(); };
  while (elapsed() < seconds || (!caches.idle() && elapsed() < seconds + 30)) {
    caches.turn(elapsed() < seconds);
    if (fault_after > 0 && !raised.valid() && elapsed() >= fault_after)
      raised = faults->on(troupe::rank{world.size() - 1}).next_operation().hang();
    std::this_thread::yield();
  }
  const double took = elapsed();
  const bool as_asked = fault_after <= 0 || (raised.valid() && raised.wait_for(0s) == std::future_status::ready);
  faults->release();

  const handover_figures& seen = caches.figures();
  auto sorted = seen.took_ms;
  std::ranges::sort(sorted);
  const auto percentile = [&](double part) {
    return sorted.empty() ? 0 : sorted[static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1))];
  };
  const double bytes =
      static_cast<double>(seen.arrived) * shape.blocks * static_cast<double>(shape.block_elements * sizeof(float));
  std::printf("%.0f requests/s, %.2f GB/s; a request took p50 %.2f ms, p99 %.2f ms\n",
              static_cast<double>(seen.arrived) / took, bytes / took / 1e9, percentile(0.5), percentile(0.99));
  if (fault_after > 0)
    std::printf("a rank was lost%s; epoch %s, %zu requests begun again\n", as_asked ? "" : ": NOT as asked",
                to_string(world.epoch()).c_str(), seen.asked_again);
  const std::size_t lost = seen.admitted - seen.arrived;
  std::printf("arrived %zu/%zu, wrong %zu, lost %zu\n", seen.arrived, seen.admitted, seen.wrong, lost);
  return seen.wrong == 0 && lost == 0 && seen.arrived > 0 && as_asked ? 0 : 1;
} catch (const troupe::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
