#include <troupe/collectives/faults/faulty_backend.hpp>

#include <array>
#include <cstddef>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

namespace troupe {

namespace {

class faulty_communicator final : public communicator {
public:
  faulty_communicator(std::shared_ptr<communicator> real, std::shared_ptr<fault_injector> injector, fault_place place)
    : communicator{real->self(), real->world_size(), real->where()},
      real_{std::move(real)},
      injector_{std::move(injector)},
      place_{place} {}

  void init() override {
    injector_->before_init(place_);
    real_->init();
  }
  void launch(const operation& what, stream_ref stream) override {
    const std::array one{&what};
    if (injector_->before_launch(place_, one)) real_->launch(what, stream);
  }
  void launch_together(std::span<const operation* const> all, stream_ref stream) override {
    if (injector_->before_launch(place_, all)) real_->launch_together(all, stream);
  }
  void check() override {
    injector_->before_check(place_);
    real_->check();
  }
  void abort() override {
    injector_->before_abort(place_);
    real_->abort();
    injector_->after_abort(place_);
  }
  void destroy() override {
    injector_->before_destroy(place_);
    real_->destroy();
  }
  [[nodiscard]] std::shared_ptr<communicator> split(const split_seat& as) override {
    return std::make_shared<faulty_communicator>(real_->split(as), injector_, place_);
  }
  void split_none() override { real_->split_none(); }
  [[nodiscard]] std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes) override {
    return real_->allocate_region(size_bytes);
  }
  void register_region(registered_region& region) override { real_->register_region(region); }

private:
  std::shared_ptr<communicator> real_;
  std::shared_ptr<fault_injector> injector_;
  fault_place place_;
};

class faulty_backend final : public backend {
public:
  faulty_backend(std::shared_ptr<backend> real, std::shared_ptr<fault_injector> injector)
    : real_{std::move(real)}, injector_{std::move(injector)} {}

  [[nodiscard]] std::string_view name() const noexcept override { return real_->name(); }
  [[nodiscard]] std::string version() const override { return real_->version(); }
  [[nodiscard]] capabilities examine(std::span<const std::shared_ptr<device>> devices) override {
    return real_->examine(devices);
  }
  [[nodiscard]] unique_id make_unique_id() override { return real_->make_unique_id(); }
  [[nodiscard]] std::shared_ptr<communicator> create(const unique_id& id, rank self, int world_size,
                                                     std::shared_ptr<device> where) override {
    std::uint64_t formation = 0;
    {
      const std::lock_guard lock{guard_};
      formation = formations_.try_emplace(id.bytes, formations_.size()).first->second;
    }
    return std::make_shared<faulty_communicator>(real_->create(id, self, world_size, std::move(where)), injector_,
                                                 fault_place{self, formation});
  }

private:
  std::shared_ptr<backend> real_;
  std::shared_ptr<fault_injector> injector_;
  std::mutex guard_;
  std::map<decltype(unique_id::bytes), std::uint64_t> formations_;
};

} // namespace

std::shared_ptr<backend> make_faulty_backend(std::shared_ptr<backend> real, std::shared_ptr<fault_injector> injector) {
  return std::make_shared<faulty_backend>(std::move(real), std::move(injector));
}

} // namespace troupe
