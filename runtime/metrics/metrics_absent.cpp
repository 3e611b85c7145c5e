// Replaces the metrics endpoint if troupe is built without prometheus-cpp.
#include <troupe/device/error.hpp>
#include <troupe/runtime/metrics.hpp>
#include <troupe/runtime/metrics/metrics_endpoint.hpp>

namespace troupe {

namespace {

[[noreturn]] void refuse(const char* otherwise) {
  throw exception{errc::missing, std::string{"this troupe was built without prometheus-cpp: install it (on Debian and "
                                             "Ubuntu: apt-get install prometheus-cpp-dev) and build with "
                                             "-DTROUPE_METRICS=ON"} +
                                     otherwise};
}

} // namespace

bool has_metrics() noexcept {
  return false;
}

std::unique_ptr<metrics_endpoint> serve_metrics(const metrics_settings& settings,
                                                std::shared_ptr<const metrics_source>) {
  check(settings);
  refuse(", or leave metrics.address empty");
}

std::string metrics_text(const metrics_source&) {
  refuse("");
}

std::shared_ptr<prometheus::Collectable> make_collectable(std::shared_ptr<const metrics_source>) {
  refuse("");
}

} // namespace troupe
