/// A transformer served by tensor parallelism, with users, batches, and a rank that is lost under traffic. See
/// README.md.
#include "rank_server.hpp"

#include "../command_line.hpp"

#include <chrono>
#include <troupe/testing/fault_script.hpp>

#include <caf/scoped_actor.hpp>

#include <thread>

namespace {

/// The state of the users' actor: questions, the right answers, and the results.
struct traffic {
  server_handle server;
  std::vector<hidden_states> questions, answers;
  troupe::time_point end;
  std::size_t wrong = 0, lost = 0, late = 0;
  std::vector<double> took_ms{};
};

/// Sends one user's request, and the next as soon as it is answered, until the time is over or a request fails.
void ask(caf::event_based_actor* users, traffic& all, std::size_t which) {
  const auto began = std::chrono::steady_clock::now();
  if (began >= all.end) return;
  troupe::request_unbounded(users, all.server, all.questions[which])
      .then(
          [=, &all](const hidden_states& answer) {
            all.took_ms.push_back(ms_since(began));
            const auto is_near = [](float one, float other) { return std::abs(one - other) < 1e-3F; };
            if (!std::ranges::equal(answer, all.answers[which], is_near)) ++all.wrong;
            ask(users, all, which);
          },
          [=, &all](const caf::error& why) {
            if (why != caf::sec::request_timeout) return static_cast<void>(++all.lost);
            ++all.late;
            ask(users, all, which);
          });
}

} // namespace

int main(int argc, char** argv) try {
  const command_line line{argc,
                          argv,
                          {"--seconds", "--fault-after", "--patience", "--users", "--batch", "--width", "--layers"},
                          {{"recovery.policy", "keep_size"}, {"limits.hang", "200ms"}, {"log_level", "error"}}};
  const auto size = [&](const char* name, std::size_t otherwise) {
    return std::max(line.number(name, otherwise), std::size_t{1});
  };
  const std::size_t width = (size("--width", 96) + heads - 1) / heads * heads, user_count = size("--users", 16);
  const shard model{width, size("--layers", 2), size("--batch", 8), 0, width};
  const auto fault_after = line.number<double>("--fault-after", 0);
  TROUPE_REGISTER_LOCAL_TYPES(serving); // before the runtime, which starts the actor system
  auto settings = line.settings();
  const auto faults = std::make_shared<troupe::testing::fault_script>(troupe::testing::launch_recording::off);
  settings.faults = faults;
  troupe::runtime runtime{settings};
  troupe::world world = runtime.form_world();
  std::printf("%s\n%d ranks, %zu layers of width %zu; up to %zu requests in a step; %zu users\n",
              runtime.describe().c_str(), world.size(), model.layers, width, model.batch, user_count);

  // The right answers are computed by loops, which are slow, so the users repeat a few questions.
  const shard alone{width, model.layers, std::min(model.batch, std::size_t{4}), 0, width};
  std::vector<float> questions(alone.batch_size());
  for (std::size_t i = 0; i < questions.size(); ++i) questions[i] = drawn(~i);
  const std::vector<float> answers = answer_alone(alone, questions);

  const troupe::epoch first = world.epoch();
  const auto begin = std::chrono::steady_clock::now();
  const auto after = [begin](double seconds) { return begin + troupe::nanoseconds{std::llround(seconds * 1e9)}; };
  const troupe::nanoseconds patience{std::llround(line.number<double>("--patience", 0) * 1e9)};
  std::vector<server_handle> servers;
  for (const troupe::rank each : world.local_ranks())
    servers.emplace_back(runtime.system().spawn<rank_server, caf::detached>(world, each, model, patience));
  traffic all{servers.front(), {}, {}, after(line.number<double>("--seconds", 5))};
  for (std::size_t i = 0; i < questions.size(); i += tokens * width) {
    all.questions.emplace_back(&questions[i], &questions[i] + tokens * width);
    all.answers.emplace_back(&answers[i], &answers[i] + tokens * width);
  }
  const auto first_questions = [](caf::event_based_actor* self, traffic* of, std::size_t users) {
    for (std::size_t i = 0; i < users; ++i) ask(self, *of, i % of->questions.size());
  };
  const auto users = runtime.system().spawn(first_questions, &all, user_count);
  if (fault_after > 0) {
    std::this_thread::sleep_until(after(fault_after));
    faults->on(troupe::rank{world.size() - 1}).next_operation().hang();
  }
  caf::scoped_actor self{runtime.system()};
  self->monitor(users); // the actor ends with the last answer
  self->receive([](const caf::down_msg&) {},
                caf::after(all.end - std::chrono::steady_clock::now() + std::chrono::seconds{30}) >> [] {});
  const double took_ms = ms_since(begin);
  // The leader fails the requests that are still pending, and ends the steps of the others.
  caf::anon_send_exit(servers.front(), caf::exit_reason::user_shutdown);
  self->wait_for(servers.front(), users);
  const bool is_as_asked = fault_after == 0 || world.epoch() != first;
  faults->release();
  world.stop();
  for (const server_handle& one : servers) caf::anon_send_exit(one, caf::exit_reason::user_shutdown);
  for (const server_handle& one : servers) self->wait_for(one);

  std::ranges::sort(all.took_ms);
  const auto count = static_cast<double>(all.took_ms.size());
  const auto percentile = [&](double part) {
    return count == 0 ? 0 : all.took_ms[static_cast<std::size_t>(part * (count - 1))];
  };
  std::printf("%.0f requests/s, latency p50 %.2f ms, p99 %.2f ms; answered %.0f, late %zu, wrong %zu, lost %zu%s\n",
              1000 * count / took_ms, percentile(0.5), percentile(0.99), count, all.late, all.wrong, all.lost,
              is_as_asked ? "" : "; the fault did not happen, or was not recovered from");
  return count > 0 && all.wrong + all.lost == 0 && is_as_asked ? 0 : 1;
} catch (const troupe::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
