#include <troupe/collectives/backend/gloo/gloo_backend.hpp>
#include <troupe/collectives/backend/gloo/gloo_communicator.hpp>
#include <troupe/collectives/backend/host_staged/host_staged_backend.hpp>

#include <gloo/config.h>

#include <string>
#include <utility>

namespace troupe {

namespace {

/// Returns whether Gloo has a feature, and the reason.
feature_finding find_in_gloo(feature what) {
  switch (what) {
    case feature::fp8_reductions: return {what, availability::yes, "troupe's own arithmetic on the host"};
    case feature::buffer_registration:
      return {what, availability::yes, "sockets read and write any host memory: there is nothing to register"};
    case feature::split: return {what, availability::yes, "the ranks of each part connect again"};
    case feature::shrink:
    case feature::revoke:
      return {what, availability::no, "Gloo's connections fail together: forming a new world costs as little"};
    case feature::suspend:
      return {what, availability::no, "Gloo's communicators hold no device memory: there is nothing to release"};
    case feature::multicast:
    case feature::symmetric_windows:
    case feature::copy_engine:
    case feature::device_communicators:
    case feature::gpu_direct_rdma:
    case feature::collnet: break;
  }
  return {what, availability::no, "Gloo works in host memory and over TCP: use NCCL, which needs GPUs"};
}

class gloo_backend final : public backend {
public:
  explicit gloo_backend(gloo_options options) : network_{std::make_shared<gloo_network>(std::move(options))} {}

  [[nodiscard]] std::string_view name() const noexcept override { return "gloo"; }
  [[nodiscard]] std::string version() const override {
    return "Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) + "." +
           std::to_string(GLOO_VERSION_PATCH) + " over TCP at " + network_->address();
  }

  [[nodiscard]] capabilities examine(std::span<const std::shared_ptr<device>>) override {
    capabilities found{.backend = std::string{name()}, .version = version(), .features = {}, .exclusions = {}};
    for (const feature one : all_features) {
      found.features.push_back(find_in_gloo(one));
      const feature_finding& what = found.features.back();
      if (what.available != availability::no) continue;
      for (exclusion& each : consequences_of(one, what.why)) found.exclusions.push_back(std::move(each));
    }
    return found;
  }

  [[nodiscard]] unique_id make_unique_id() override { return to_unique_id(network_->stores().open()); }

  [[nodiscard]] std::shared_ptr<communicator> create(const unique_id& id, rank self, int world_size,
                                                     std::shared_ptr<device> where) override {
    if (world_size < 1 || self.value() < 0 || self.value() >= world_size)
      throw exception{errc::invalid_argument, "rank " + to_string(self) + " is not in a world of " +
                                                  std::to_string(world_size) + " (ranks count from 0)"};
    auto* const driver = where ? dynamic_cast<mock_driver*>(&where->api()) : nullptr;
    if (driver == nullptr)
      throw exception{errc::invalid_argument, "Gloo's communicators need a device of the mock driver, not of " +
                                                  (where ? std::string{where->api().name()} : "none")};
    return std::make_shared<gloo_communicator>(network_, to_endpoint(id), self, world_size, std::move(where), *driver);
  }

private:
  const std::shared_ptr<gloo_network> network_;
};

} // namespace

bool has_gloo() noexcept {
  return true;
}

std::shared_ptr<backend> make_gloo_backend(gloo_options options) {
  const gloo_memory memory = options.memory;
  auto made = std::make_shared<gloo_backend>(std::move(options));
  if (memory == gloo_memory::device) return make_host_staged_backend(std::move(made));
  return made;
}

} // namespace troupe
