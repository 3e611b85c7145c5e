#include <troupe/collectives/backend/nccl/nccl_api.hpp>
#include <troupe/collectives/backend/nccl/nccl_backend.hpp>
#include <troupe/collectives/backend/nccl/nccl_capabilities.hpp>
#include <troupe/collectives/backend/nccl/nccl_communicator.hpp>
#include <troupe/collectives/backend/nccl/nccl_config.hpp>
#include <troupe/collectives/backend/nccl/nccl_library.hpp>

#include <cstring>
#include <string>
#include <utility>

namespace troupe {

namespace {

class nccl_backend final : public backend {
public:
  nccl_backend(std::shared_ptr<const nccl_library> library, const nccl_values& config)
    : library_{std::move(library)}, config_{native_config(config, library_->version_number())} {}

  [[nodiscard]] std::string_view name() const noexcept override { return "nccl"; }

  [[nodiscard]] std::string version() const override {
    return "NCCL " + library_->version() + " from " + library_->path().string();
  }

  [[nodiscard]] capabilities examine(std::span<const std::shared_ptr<device>> devices) override {
    nccl_facts facts{.version = library_->version_number(),
                     .about = version(),
                     .has = [this](std::string_view symbol) { return library_->has(symbol); },
                     .devices = {},
                     .config = config_,
                     .environment = nccl_process_variables(),
                     .collnet_plugin = find_collnet_plugin};
    for (const auto& one : devices) {
      facts.devices.push_back(one->api().describe(one->id()));
      for (const auto& other : devices)
        facts.all_peers = facts.all_peers && one->api().describe_peer(one->id(), other->id()).access;
    }
    return nccl_capabilities(facts);
  }

  [[nodiscard]] kernel_needs needs_of_kernels() const override {
    return nccl_kernel_needs(config_, library_->version_number(), nccl_process_variables());
  }

  [[nodiscard]] unique_id make_unique_id() override {
    ncclUniqueId native{};
    nccl_call(library_->functions(), library_->functions().get_unique_id(&native), "ncclGetUniqueId");
    unique_id id;
    static_assert(sizeof native == sizeof id.bytes);
    std::memcpy(id.bytes.data(), &native, sizeof native);
    return id;
  }

  [[nodiscard]] std::shared_ptr<communicator> create(const unique_id& id, rank self, int world_size,
                                                     std::shared_ptr<device> where) override {
    if (world_size < 1 || self.value() < 0 || self.value() >= world_size)
      throw exception{errc::invalid_argument, "rank " + to_string(self) + " is outside a world of " +
                                                  std::to_string(world_size) + " (ranks count from 0)"};
    if (where == nullptr || where->api().name() != "cuda")
      throw exception{errc::invalid_argument, "an NCCL communicator needs a CUDA device, and rank " + to_string(self) +
                                                  " has none: use the mock backend with mock devices"};
    return std::make_shared<nccl_communicator>(library_, words_, id, self, world_size, std::move(where), config_);
  }

private:
  std::shared_ptr<const nccl_library> library_;
  std::shared_ptr<nccl_barrier_memories> words_ = std::make_shared<nccl_barrier_memories>();
  nccl_native_config config_;
};

} // namespace

std::shared_ptr<backend> make_nccl_backend(const std::optional<std::string>& library, const nccl_values& config) {
  return std::make_shared<nccl_backend>(nccl_library::open(library), config);
}

} // namespace troupe
