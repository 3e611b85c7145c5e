/// A runtime's metrics in the classes of prometheus-cpp. Only in builds with that library.
#pragma once

#include <troupe/runtime/metrics/metric_families.hpp>
#include <troupe/runtime/metrics/metrics_source.hpp>

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <memory>
#include <utility>
#include <vector>

namespace troupe {

[[nodiscard]] std::vector<prometheus::MetricFamily> as_prometheus(const std::vector<metric_family>& all);

class prometheus_collectable final : public prometheus::Collectable {
public:
  explicit prometheus_collectable(std::shared_ptr<const metrics_source> from) : from_{std::move(from)} {}

  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override;

private:
  std::shared_ptr<const metrics_source> from_;
};

} // namespace troupe
