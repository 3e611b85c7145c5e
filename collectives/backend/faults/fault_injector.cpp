#include <troupe/collectives/backend/faults/fault_injector.hpp>

#include <troupe/collectives/backend/communicator.hpp>

#include <array>
#include <cstddef>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

namespace troupe {

namespace {

/// Numbers formations in the order in which the first rank of each is created. Threads: safe from any.
class formation_numbers {
public:
  [[nodiscard]] std::uint64_t of(const unique_id& id) {
    const std::lock_guard lock{mutex_};
    const auto [found, is_new] = named_.try_emplace(id.bytes, next_);
    if (is_new) ++next_;
    return found->second;
  }
  /// Returns the number of the formation that replaces \p failed; there is at most one.
  [[nodiscard]] std::uint64_t after(std::uint64_t failed) {
    const std::lock_guard lock{mutex_};
    const auto [found, is_new] = made_of_.try_emplace(failed, next_);
    if (is_new) ++next_;
    return found->second;
  }

  /// Numbers the communicators that are split off.
  [[nodiscard]] std::uint64_t next_split() {
    const std::lock_guard lock{mutex_};
    return ++splits_;
  }

private:
  std::mutex mutex_;
  std::uint64_t next_ = 0;
  std::uint64_t splits_ = 0;
  std::map<decltype(unique_id::bytes), std::uint64_t> named_;
  std::map<std::uint64_t, std::uint64_t> made_of_;
};

class faulty_communicator final : public communicator {
public:
  faulty_communicator(std::shared_ptr<communicator> real, std::shared_ptr<fault_injector> injector,
                      std::shared_ptr<formation_numbers> numbers, std::uint64_t formation)
    : communicator{real->self(), real->world_size(), real->where()},
      real_{std::move(real)},
      injector_{std::move(injector)},
      numbers_{std::move(numbers)},
      place_{self(), formation, where()->id()} {}

  void init() override {
    injector_->before_init(place_);
    real_->init();
  }
  void warm_up(stream_ref stream) override { real_->warm_up(stream); }
  void prepare_kernels(stream_ref stream) override { real_->prepare_kernels(stream); }
  void check() override {
    injector_->before_check(place_);
    real_->check();
  }
  void interrupt() noexcept override { real_->interrupt(); }
  void abort() override {
    injector_->before_abort(place_);
    real_->abort();
    injector_->after_abort(place_);
  }
  void drained() noexcept override { real_->drained(); }
  void destroy() override {
    injector_->before_destroy(place_);
    real_->destroy();
  }
  [[nodiscard]] std::string_view capture_objection() const noexcept override { return real_->capture_objection(); }
  [[nodiscard]] std::shared_ptr<communicator> split(const split_spec& as) override {
    auto made = std::make_shared<faulty_communicator>(real_->split(as), injector_, numbers_, place_.formation);
    made->place_ = place_; // faults use the rank and formation of the parent
    made->place_.split = numbers_->next_split();
    return made;
  }
  void split_none() override { real_->split_none(); }
  [[nodiscard]] std::shared_ptr<communicator> shrink(const shrink_spec& as) override {
    return made_of_this(real_->shrink(as));
  }
  [[nodiscard]] std::shared_ptr<communicator> revoke_and_split() override {
    return made_of_this(real_->revoke_and_split());
  }
  [[nodiscard]] std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes) override {
    return real_->allocate_region(size_bytes);
  }
  void register_region(registered_region& region) override {
    injector_->before_register(place_, region);
    real_->register_region(region);
  }
  std::size_t suspend() override { return real_->suspend(); }
  void resume() override { real_->resume(); }
  [[nodiscard]] library_diagnostics last_diagnostics() const override { return real_->last_diagnostics(); }
  [[nodiscard]] std::shared_ptr<const one_shot_status> one_shot() const override { return real_->one_shot(); }
  [[nodiscard]] launch_counts launched() const override { return real_->launched(); }

private:
  bool do_launch(const operation& what, stream_ref stream, completion_word at_end) override {
    return !is_replaced(std::array{&what}, stream) && real_->launch(what, stream, at_end);
  }
  bool do_launch_together(std::span<const operation* const> all, stream_ref stream, completion_word at_end) override {
    return !is_replaced(all, stream) && real_->launch_together(all, stream, at_end);
  }
  /// Asks the injector. Returns whether it has enqueued something else.
  [[nodiscard]] bool is_replaced(std::span<const operation* const> all, stream_ref stream) {
    if (injector_->before_launch(place_, all)) return false;
    injector_->in_place_of_launch(place_, stream);
    return true;
  }
  [[nodiscard]] std::shared_ptr<communicator> made_of_this(std::shared_ptr<communicator> next) const {
    return std::make_shared<faulty_communicator>(std::move(next), injector_, numbers_,
                                                 numbers_->after(place_.formation));
  }

  std::shared_ptr<communicator> real_;
  std::shared_ptr<fault_injector> injector_;
  std::shared_ptr<formation_numbers> numbers_;
  fault_place place_;
};

class faulty_backend final : public backend {
public:
  faulty_backend(std::shared_ptr<backend> real, std::function<std::shared_ptr<fault_injector>()> injector)
    : real_{std::move(real)}, injector_{std::move(injector)} {}

  [[nodiscard]] std::string_view name() const noexcept override { return real_->name(); }
  [[nodiscard]] std::string version() const override { return real_->version(); }
  [[nodiscard]] capabilities examine(std::span<const std::shared_ptr<device>> devices) override {
    return real_->examine(devices);
  }
  [[nodiscard]] unique_id make_unique_id() override { return real_->make_unique_id(); }
  [[nodiscard]] std::shared_ptr<communicator> create(const unique_id& id, rank self, int world_size,
                                                     std::shared_ptr<device> where) override {
    auto injector = injector_();
    const std::uint64_t formation = numbers_->of(id);
    return std::make_shared<faulty_communicator>(real_->create(id, self, world_size, std::move(where)),
                                                 std::move(injector), numbers_, formation);
  }

private:
  std::shared_ptr<backend> real_;
  std::function<std::shared_ptr<fault_injector>()> injector_;
  std::shared_ptr<formation_numbers> numbers_ = std::make_shared<formation_numbers>();
};

} // namespace

std::shared_ptr<launch_observer> observer_of(const std::shared_ptr<fault_injector>& injector) {
  launch_observer* const observer = injector ? injector->observer() : nullptr;
  return observer != nullptr ? std::shared_ptr<launch_observer>{injector, observer} : nullptr;
}

std::shared_ptr<backend> make_faulty_backend(std::shared_ptr<backend> real, std::shared_ptr<fault_injector> injector) {
  return make_faulty_backend(std::move(real), [injector = std::move(injector)] { return injector; });
}

std::shared_ptr<backend> make_faulty_backend(std::shared_ptr<backend> real,
                                             std::function<std::shared_ptr<fault_injector>()> injector) {
  return std::make_shared<faulty_backend>(std::move(real), std::move(injector));
}

} // namespace troupe
