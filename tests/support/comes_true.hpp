/// Waits in tests with an end, so that what never comes fails the test instead of hanging it.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

namespace troupe::tests {

/// The pause between two looks at what a test waits for. The first looks follow at once, because most waits are short.
/// A thread that went on so would take a core from what it waits for, and spend half of its time in the kernel.
class look_pause {
public:
  void operator()() {
    ++looks_;
    if (looks_ <= 20)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds{looks_ <= 100 ? 200 : 1'000});
  }

private:
  int looks_ = 0;
};

/// Waits until \p reached returns true, at most \p at_most, which is long even for a busy machine. Returns whether it
/// did.
template <class Condition>
[[nodiscard]] bool comes_true(Condition reached, std::chrono::seconds at_most = std::chrono::seconds{60}) {
  const auto until = std::chrono::steady_clock::now() + at_most;
  for (look_pause pause; !reached(); pause())
    if (std::chrono::steady_clock::now() > until) return false;
  return true;
}

/// As comes_true(), where no assertion can be made. Throws if it does not come true.
template <class Condition>
void await(const std::string& what, Condition reached) {
  if (!comes_true(reached)) throw std::runtime_error{"waited 60 s in vain: " + what};
}

} // namespace troupe::tests
