#include <troupe/collectives/backend/host_staged/host_staged_backend.hpp>
#include <troupe/collectives/backend/host_staged/host_staged_communicator.hpp>

#include <string>
#include <utility>

namespace troupe {

namespace {

class host_staged_backend final : public backend {
public:
  explicit host_staged_backend(std::shared_ptr<backend> inner) : inner_{std::move(inner)} {}

  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }
  [[nodiscard]] std::string version() const override { return inner_->version() + ", through host memory"; }
  [[nodiscard]] capabilities examine(std::span<const std::shared_ptr<device>> devices) override {
    capabilities found = inner_->examine(devices);
    found.version = version();
    return found;
  }
  [[nodiscard]] unique_id make_unique_id() override { return inner_->make_unique_id(); }

  [[nodiscard]] std::shared_ptr<communicator> create(const unique_id& id, rank self, int world_size,
                                                     std::shared_ptr<device> where) override {
    const host_staged_device by = devices_->of(where);
    return std::make_shared<host_staged_communicator>(inner_->create(id, self, world_size, by.host), std::move(where),
                                                      by.memory);
  }

private:
  std::shared_ptr<backend> inner_;
  std::shared_ptr<host_staged_devices> devices_ = std::make_shared<host_staged_devices>();
};

} // namespace

std::shared_ptr<backend> make_host_staged_backend(std::shared_ptr<backend> inner) {
  return std::make_shared<host_staged_backend>(std::move(inner));
}

} // namespace troupe
