/// Runs the server of serving_loop.hpp in real time, on GPUs if there are any, otherwise on the mock.
#include "serving_loop.hpp"

#include <troupe/runtime/runtime.hpp>

#include <cstdio>
#include <thread>

int main() try {
  troupe::configuration settings = troupe::configuration::from_environment();
  settings.recovery.policy = troupe::recovery_policy::keep_size;
  troupe::runtime runtime{settings};
  troupe::world world = runtime.form_world();

  constexpr std::size_t requests = 100;
  serving_loop server{world, 1024};
  for (std::size_t i = 0; i < requests; ++i) server.submit(static_cast<float>(i));
  while (server.answers().size() < requests) {
    server.turn();
    std::this_thread::yield();
  }
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < requests; ++i)
    if (server.answers()[i] != static_cast<float>(i) * static_cast<float>(world.size())) ++wrong;
  std::printf("%d ranks, %zu requests served, %zu wrong\n", world.size(), requests, wrong);
  return wrong == 0 ? 0 : 1;
} catch (const troupe::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
