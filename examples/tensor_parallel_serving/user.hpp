/// Users, each of whom asks again as soon as it is answered, and knows what is right.
#pragma once

#include "batcher.hpp"

#include <cstdint>
#include <mutex>
#include <random>
#include <utility>
#include <vector>

/// A prompt and what one rank alone makes of it.
struct known_answer {
  prompt asked;
  std::vector<int> right;
};

/// What all users have seen. Threads: under its guard.
struct user_figures {
  std::mutex guard;
  std::size_t asked = 0;
  std::size_t answered = 0;
  std::size_t wrong = 0;
  std::size_t refused = 0;
  std::vector<double> latencies_ms;
};

struct user_terms {
  batcher_handle server;
  const std::vector<known_answer>* known = nullptr;
  troupe::time_point until;
  std::uint32_t seed = 0;
  user_figures* figures = nullptr;
  std::counting_semaphore<>* ended = nullptr;
};

class user final : public user_handle::base {
public:
  user(caf::actor_config& settings, user_terms terms)
    : user_handle::base{settings}, terms_{std::move(terms)}, draw_{terms_.seed} {}

  behavior_type make_behavior() override {
    return {[this](const start_asking&) { ask(); }};
  }
  void on_exit() override { terms_.ended->release(); }

private:
  void ask() {
    const troupe::time_point began = troupe::monotonic_clock{}.now();
    if (began >= terms_.until) return quit();
    const known_answer& chosen = (*terms_.known)[draw_() % terms_.known->size()];
    {
      const std::lock_guard lock{terms_.figures->guard};
      ++terms_.figures->asked;
    }
    troupe::compat::request_unbounded(this, terms_.server, chosen.asked)
        .then([this, began, &chosen](const generated& reply) { note(began, reply.tokens == chosen.right); },
              [this](const caf::error&) {
                const std::lock_guard lock{terms_.figures->guard};
                ++terms_.figures->refused;
                quit();
              });
  }

  void note(troupe::time_point began, bool is_right) {
    const std::chrono::duration<double, std::milli> took = troupe::monotonic_clock{}.now() - began;
    {
      const std::lock_guard lock{terms_.figures->guard};
      ++terms_.figures->answered;
      if (!is_right) ++terms_.figures->wrong;
      terms_.figures->latencies_ms.push_back(took.count());
    }
    ask();
  }

  user_terms terms_;
  std::mt19937 draw_;
};
