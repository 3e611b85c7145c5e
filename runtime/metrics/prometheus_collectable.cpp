#include <troupe/runtime/metrics.hpp>
#include <troupe/runtime/metrics/metric_families.hpp>
#include <troupe/runtime/metrics/metrics_endpoint.hpp>
#include <troupe/runtime/metrics/prometheus_collectable.hpp>

#include <cstdint>
#include <future>
#include <limits>
#include <string>
#include <system_error>

namespace troupe {

namespace {

prometheus::MetricType type_of(metric_kind kind) {
  switch (kind) {
    case metric_kind::counter: return prometheus::MetricType::Counter;
    case metric_kind::gauge: return prometheus::MetricType::Gauge;
    case metric_kind::histogram: return prometheus::MetricType::Histogram;
  }
  return prometheus::MetricType::Untyped;
}

void add_histogram(prometheus::ClientMetric::Histogram& to, const metric_sample& from) {
  to.sample_count = from.count;
  to.sample_sum = from.value;
  for (const metric_sample::bucket& one : from.buckets) to.bucket.push_back({one.count, one.upper_bound});
  to.bucket.push_back({from.count, std::numeric_limits<double>::infinity()});
}

} // namespace

std::vector<prometheus::MetricFamily> as_prometheus(const std::vector<metric_family>& all) {
  std::vector<prometheus::MetricFamily> made;
  for (const metric_family& one : all) {
    prometheus::MetricFamily family{
        std::string{one.what->name}, std::string{one.what->help}, type_of(one.what->kind), {}};
    for (const metric_sample& sample : one.samples) {
      prometheus::ClientMetric metric;
      for (const auto& [name, value] : sample.labels) metric.label.push_back({std::string{name}, value});
      switch (one.what->kind) {
        case metric_kind::counter: metric.counter.value = sample.value; break;
        case metric_kind::gauge: metric.gauge.value = sample.value; break;
        case metric_kind::histogram: add_histogram(metric.histogram, sample); break;
      }
      family.metric.push_back(std::move(metric));
    }
    made.push_back(std::move(family));
  }
  return made;
}

std::vector<prometheus::MetricFamily> prometheus_collectable::Collect() const {
  // Runs on a thread of its own: the threads of the web server have stacks of 100 KiB, which a sanitized build exceeds.
  const auto look = [this] {
    const auto seen = from_->read();
    return seen ? as_prometheus(families_of(*seen)) : std::vector<prometheus::MetricFamily>{};
  };
  try {
    return std::async(std::launch::async, look).get();
  } catch (const std::system_error&) { // no thread could be started
    return look();
  }
}

bool has_metrics() noexcept {
  return true;
}

std::shared_ptr<prometheus::Collectable> make_collectable(std::shared_ptr<const metrics_source> from) {
  return std::make_shared<prometheus_collectable>(std::move(from));
}

} // namespace troupe
