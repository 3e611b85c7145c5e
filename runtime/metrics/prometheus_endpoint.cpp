#include <troupe/device/error.hpp>
#include <troupe/runtime/metrics/metrics_endpoint.hpp>

#include <prometheus/collectable.h>
#include <prometheus/exposer.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// A scraper, somebody with `troupe top`, and one that is slow.
constexpr const char* thread_count = "3";
/// Of a request: a client that does not ask holds a thread no longer.
constexpr const char* timeout_ms = "5000";

class prometheus_endpoint final : public metrics_endpoint {
public:
  prometheus_endpoint(metrics_address where, std::shared_ptr<const metrics_source> from)
    : where_{std::move(where)},
      shown_{make_collectable(std::move(from))},
      exposer_{std::vector<std::string>{"listening_ports", to_string(where_), "num_threads", thread_count,
                                        "request_timeout_ms", timeout_ms}} {
    if (const auto ports = exposer_.GetListeningPorts(); !ports.empty())
      where_.port = static_cast<std::uint16_t>(ports.front());
    exposer_.RegisterCollectable(shown_);
  }

  [[nodiscard]] const metrics_address& where() const noexcept override { return where_; }

private:
  metrics_address where_;
  std::shared_ptr<prometheus::Collectable> shown_; ///< Which the exposer holds weakly.
  prometheus::Exposer exposer_;                    ///< Ends before what it shows.
};

} // namespace

std::unique_ptr<metrics_endpoint> serve_metrics(const metrics_settings& settings,
                                                std::shared_ptr<const metrics_source> from) {
  check(settings);
  try {
    return std::make_unique<prometheus_endpoint>(parse_metrics_address(settings.address), std::move(from));
  } catch (const exception&) {
    throw;
  } catch (const std::exception& failure) { // civetweb's, which says no more
    throw exception{errc::invalid_argument, "metrics.address is " + settings.address +
                                                ", and that cannot be listened on (" + failure.what() +
                                                "): is the port in use, and is the address one of this machine's? "
                                                "Choose another, or port 0 for any that is free"};
  }
}

} // namespace troupe
