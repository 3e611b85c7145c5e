/// The snippet of docs/operations/metrics.md. It is a separate program, which is built if prometheus-cpp is found.

#include <troupe/runtime/metrics.hpp>
#include <troupe/runtime/runtime.hpp>

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>
#include <prometheus/metric_family.h>

#include <algorithm>
#include <cstdio>
#include <memory>

int main() try {
  troupe::configuration settings;
  settings.backend = troupe::backend_choice::mock;
  settings.mock.devices = 2;
  troupe::runtime runtime{settings};
  troupe::world world = runtime.form_world();
  world.barrier().get();
  // [collectable]
  // Exports troupe's metrics together with the program's own metrics, at the program's own address.
  prometheus::Exposer exposer{"127.0.0.1:0"};
  const std::shared_ptr<prometheus::Collectable> shown = troupe::make_collectable(runtime);
  exposer.RegisterCollectable(shown); // a weak reference: keep `shown` alive as long as it is to be exported
  // [collectable]
  const auto all = shown->Collect();
  const auto found = std::ranges::find(all, "troupe_requests_total", &prometheus::MetricFamily::name);
  const bool is_right = found != all.end() && found->metric.size() == 2; // one barrier, at two ranks
  std::puts(is_right ? "the barrier was counted at both ranks" : "NOT SO");
  return is_right ? 0 : 1;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
