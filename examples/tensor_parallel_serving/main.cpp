/// A transformer served by tensor parallelism, with users, batches, and a rank that is lost under traffic. See
/// README.md.
#include "shard.hpp"
#include "user.hpp"

#include "../command_line.hpp"

#include <troupe/collectives/faults/armed_faults.hpp>

#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>

namespace {

using namespace std::chrono_literals;
using milliseconds = std::chrono::duration<double, std::milli>;

/// Prompts whose answers do not hang on how sums are rounded, which differs with the number of ranks.
std::vector<known_answer> make_known(const model& of, std::size_t wanted) {
  constexpr float clear = 0.02F;
  std::mt19937 draw{11};
  std::vector<known_answer> known;
  while (known.size() < wanted) {
    prompt asked{.tokens = {}, .length = static_cast<std::size_t>(of.shape().context)};
    for (std::size_t i = 0; i < 3 + known.size() % 4; ++i)
      asked.tokens.push_back(static_cast<int>(draw() % static_cast<unsigned>(of.shape().vocabulary)));
    auto [right, margin] = generate_alone(of, asked.tokens, asked.length);
    if (margin > clear) known.push_back({std::move(asked), std::move(right)});
  }
  return known;
}

double percentile(const std::vector<double>& sorted, double part) {
  return sorted.empty() ? 0 : sorted[static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1))];
}

} // namespace

int main(int argc, char** argv) try {
  const command_line asked{argc,
                           argv,
                           {"--seconds", "--fault-after", "--users", "--batch", "--gather-ms", "--width", "--layers"},
                           {{"recovery.policy", "keep_size"}, {"limits.hang", "200ms"}, {"log_level", "error"}}};
  const auto seconds = asked.number<double>("--seconds", 5);
  const auto fault_after = asked.number<double>("--fault-after", 0);
  const auto user_count = asked.number<int>("--users", 16);
  model_shape shape;
  shape.slots = asked.number<int>("--batch", shape.slots);
  shape.width = asked.number<int>("--width", shape.width);
  shape.layers = asked.number<int>("--layers", shape.layers);
  TROUPE_REGISTER_LOCAL_TYPES(serving); // before the runtime, which starts the actor system
  auto settings = asked.settings();
  const auto faults = std::make_shared<troupe::armed_faults>();
  settings.faults = faults;
  troupe::runtime runtime{settings};
  troupe::world world = runtime.form_world();
  const int ranks = world.size();
  if (shape.slots < 1 || shape.width < 1 || shape.width % shape.heads != 0 || shape.heads % ranks != 0)
    throw troupe::exception{troupe::errc::invalid_argument,
                            "--width " + std::to_string(shape.width) + ", --batch " + std::to_string(shape.slots) +
                                ", " + std::to_string(ranks) + " ranks: the width must be a multiple of the " +
                                std::to_string(shape.heads) + " heads, and these of the ranks"};
  if (fault_after > 0 && ranks == 1)
    throw troupe::exception{troupe::errc::invalid_argument, "--fault-after takes two ranks: one alone has no peers"};

  const troupe::buffer weights = world.allocate_pinned(shape.weight_count() * sizeof(float));
  const model whole{shape, weights.host_span<float>()};
  const std::vector<known_answer> known = make_known(whole, 16);
  seats devices;
  for (const troupe::rank self : world.local_ranks()) {
    const auto make = [&]() -> seat {
      troupe::stream queue{world.device_of(self)};
      auto maths = make_compute(queue);
      return {std::move(queue), std::move(maths)};
    };
    devices.emplace(world.device_of(self)->id(), std::array<seat, 2>{make(), make()});
  }
  std::printf("%s\n%d ranks, %d layers of width %d, %d heads; up to %d sequences in a step; %d users\n",
              runtime.describe().c_str(), ranks, shape.layers, shape.width, shape.heads, shape.slots, user_count);

  batch_figures batches;
  user_figures seen;
  std::counting_semaphore<> batcher_ended{0};
  std::counting_semaphore<> users_ended{0};
  const auto server = spawn_batcher(runtime.system(), {world, &whole, &devices,
                                                       std::chrono::duration_cast<troupe::nanoseconds>(
                                                           milliseconds{asked.number<double>("--gather-ms", 2)}),
                                                       &batches, &batcher_ended});
  const auto begin = troupe::monotonic_clock{}.now();
  const auto after = [&](double span) {
    return begin + std::chrono::duration_cast<troupe::nanoseconds>(std::chrono::duration<double>{span});
  };
  std::vector<user_handle> users;
  for (int i = 0; i < user_count; ++i)
    users.push_back(runtime.system().spawn<user>(
        user_terms{server, &known, after(seconds), static_cast<std::uint32_t>(i), &seen, &users_ended}));
  for (const user_handle& one : users) troupe::compat::post(one, start_asking{});

  std::future<troupe::time_point> raised;
  if (fault_after > 0) {
    std::this_thread::sleep_until(after(fault_after));
    raised = faults->arm(troupe::armed_call::withheld_launch, troupe::rank{world.size() - 1});
  }
  int waited_for = 0;
  while (waited_for < user_count && users_ended.try_acquire_until(after(seconds + 30))) ++waited_for;
  const milliseconds took = troupe::monotonic_clock{}.now() - begin;
  for (const user_handle& one : users) caf::anon_send_exit(one, caf::exit_reason::user_shutdown);
  for (; waited_for < user_count; ++waited_for) users_ended.acquire();
  caf::anon_send_exit(server, caf::exit_reason::user_shutdown);
  batcher_ended.acquire();
  faults->release();
  world.stop();

  bool recovered = fault_after <= 0;
  if (raised.valid() && raised.wait_for(0s) == std::future_status::ready) {
    std::printf("a rank was lost at %.1f ms\n", milliseconds{raised.get() - begin}.count());
    recovered = !batches.faults.empty() && batches.faults.back().served_again.has_value();
  }
  for (const seen_fault& one : batches.faults) {
    std::printf("a step was given up at %.1f ms, %zu requests were asked again", milliseconds{one.seen - begin}.count(),
                one.asked_again);
    if (one.served_again)
      std::printf("; the next step ended at %.1f ms, in epoch %s on %zu ranks",
                  milliseconds{*one.served_again - begin}.count(), to_string(one.epoch).c_str(), one.ranks);
    std::printf("\n");
  }
  std::ranges::sort(seen.latencies_ms);
  const std::size_t lost = seen.asked - seen.answered;
  std::printf("%.0f requests/s, %.0f tokens/s, %.1f sequences in a step; latency p50 %.2f ms, p99 %.2f ms\n",
              1000 * static_cast<double>(seen.answered) / took.count(),
              1000 * static_cast<double>(batches.tokens) / took.count(),
              static_cast<double>(batches.tokens) / static_cast<double>(std::max<std::size_t>(batches.steps, 1)),
              percentile(seen.latencies_ms, 0.5), percentile(seen.latencies_ms, 0.99));
  std::printf("answered %zu/%zu, wrong %zu, lost %zu%s\n", seen.answered, seen.asked, seen.wrong, lost,
              recovered ? "" : "; the fault did not happen, or was not recovered from");
  return seen.wrong == 0 && lost == 0 && seen.answered > 0 && recovered ? 0 : 1;
} catch (const troupe::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
