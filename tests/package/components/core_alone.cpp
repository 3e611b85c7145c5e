// README's all-reduce with the core alone, and what it says of settings that need other packages.
#include <troupe/troupe.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace {

bool has_sums() {
  troupe::configuration settings;
  settings.backend = troupe::backend_choice::mock;
  settings.mock.devices = 2;
  troupe::runtime runtime{settings};
  troupe::world world = runtime.form_world();
  constexpr std::size_t count = 256;
  const troupe::buffer host = world.allocate_pinned(count * sizeof(float));
  const troupe::per_rank<troupe::buffer> values = world.allocate_all(host.size_bytes());
  for (const troupe::rank self : world.local_ranks()) {
    std::ranges::fill(host.host_span<float>(), static_cast<float>(self.value() + 1));
    world.copy(self, host, values[self]).get();
  }
  world.all_reduce(values, values, count, troupe::dtype::f32, troupe::reduction::sum).get();
  for (const troupe::rank self : world.local_ranks()) {
    world.copy(self, values[self], host).get();
    if (!std::ranges::all_of(host.host_span<float>(), [](float sum) { return sum == 3; })) return false;
  }
  return true;
}

/// Returns why a runtime is refused, or how its first world is.
std::string refusal_of(const troupe::configuration& settings) {
  try {
    troupe::runtime runtime{settings};
    static_cast<void>(runtime.form_world());
    return {};
  } catch (const troupe::exception& failure) {
    return failure.what();
  }
}

} // namespace

int main(int count, char** words) {
  const bool is_alone = count > 1 && std::string_view{words[1]} == "alone";
  if (!has_sums()) {
    std::puts("wrong sums");
    return 1;
  }
  if (!is_alone) return 0; // a shared library has everything
  troupe::configuration over_processes;
  over_processes.backend = troupe::backend_choice::mock;
  over_processes.control.address = "localhost:29999";
  troupe::configuration over_gloo;
  over_gloo.backend = troupe::backend_choice::gloo;
  for (const auto& [settings, target] :
       {std::pair{over_processes, "troupe::processes"}, {over_gloo, "troupe::backends"}}) {
    const std::string why = refusal_of(settings);
    if (why.find(target) == std::string::npos) {
      std::printf("the refusal does not name %s: %s\n", target, why.c_str());
      return 1;
    }
  }
  return 0;
}
