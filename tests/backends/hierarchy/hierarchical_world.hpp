/// Worlds over pretended nodes, on the mock.
#pragma once

#include <troupe/backends/hierarchy/hierarchical_backend.hpp>
#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace troupe::tests {

/// What has been launched on communicators of each number of ranks, by rank 0 of each.
class counted_launches {
public:
  void add(const communicator& by, std::size_t operations) {
    const std::lock_guard lock{mutex_};
    if (by.self() != rank{0}) return;
    counts_[by.world_size()].push_back(operations);
  }
  /// How many operations each launch had.
  [[nodiscard]] std::vector<std::size_t> of(int world_size) const {
    const std::lock_guard lock{mutex_};
    const auto found = counts_.find(world_size);
    return found == counts_.end() ? std::vector<std::size_t>{} : found->second;
  }

private:
  mutable std::mutex mutex_;
  std::map<int, std::vector<std::size_t>> counts_;
};

/// A communicator, and what is split off it, that counts what it launches.
class counting_communicator final : public communicator {
public:
  counting_communicator(std::shared_ptr<communicator> real, std::shared_ptr<counted_launches> launches)
    : communicator{real->self(), real->world_size(), real->where()},
      real_{std::move(real)},
      launches_{std::move(launches)} {}

  void init() override { real_->init(); }
  bool do_launch(const operation& what, stream_ref stream, completion_word at_end) override {
    launches_->add(*this, 1);
    return real_->launch(what, stream, at_end);
  }
  bool do_launch_together(std::span<const operation* const> all, stream_ref stream, completion_word at_end) override {
    launches_->add(*this, all.size());
    return real_->launch_together(all, stream, at_end);
  }
  void check() override { real_->check(); }
  void abort() override { real_->abort(); }
  void destroy() override { real_->destroy(); }
  [[nodiscard]] std::shared_ptr<communicator> split(const split_spec& as) override {
    return std::make_shared<counting_communicator>(real_->split(as), launches_);
  }
  void split_none() override { real_->split_none(); }
  [[nodiscard]] std::shared_ptr<communicator> shrink(const shrink_spec& as) override {
    return std::make_shared<counting_communicator>(real_->shrink(as), launches_);
  }
  [[nodiscard]] std::shared_ptr<communicator> revoke_and_split() override {
    return std::make_shared<counting_communicator>(real_->revoke_and_split(), launches_);
  }

private:
  std::shared_ptr<communicator> real_;
  std::shared_ptr<counted_launches> launches_;
};

class counting_backend final : public backend {
public:
  explicit counting_backend(std::shared_ptr<counted_launches> launches) : launches_{std::move(launches)} {}
  [[nodiscard]] std::string_view name() const noexcept override { return real_->name(); }
  [[nodiscard]] std::string version() const override { return real_->version(); }
  [[nodiscard]] capabilities examine(std::span<const std::shared_ptr<device>> devices) override {
    return real_->examine(devices);
  }
  [[nodiscard]] unique_id make_unique_id() override { return real_->make_unique_id(); }
  [[nodiscard]] std::shared_ptr<communicator> create(const unique_id& id, rank self, int world_size,
                                                     std::shared_ptr<device> where) override {
    return std::make_shared<counting_communicator>(real_->create(id, self, world_size, std::move(where)), launches_);
  }

private:
  std::shared_ptr<backend> real_ = make_mock_backend();
  std::shared_ptr<counted_launches> launches_;
};

/// Formed ranks, each with a device, a pool and a stream of its own.
struct hierarchical_world {
  struct member {
    std::shared_ptr<device> gpu;
    std::shared_ptr<memory_pool> pool;
    std::shared_ptr<communicator> comm;
    stream line;
  };

  /// \p apart: what crosses between nodes goes through a backend of its own.
  explicit hierarchical_world(const std::vector<int>& nodes, hierarchy_terms terms = {.mode = hierarchy_mode::always},
                              bool apart = false)
    : kind{make_hierarchical_backend(std::make_shared<counting_backend>(launches), node_map{nodes}, terms,
                                     apart ? std::make_shared<counting_backend>(launches_apart) : nullptr)} {
    const int size = static_cast<int>(nodes.size());
    const auto api = make_mock_driver({.device_count = size});
    const unique_id id = kind->make_unique_id();
    for (int i = 0; i < size; ++i) {
      auto gpu = device::open(api, device_id{i});
      auto comm = kind->create(id, rank{i}, size, gpu);
      members.push_back({gpu, memory_pool::create(gpu), std::move(comm), stream{gpu}});
    }
    on_all([](member& one) { one.comm->init(); });
  }
  hierarchical_world(const hierarchical_world&) = delete;
  hierarchical_world& operator=(const hierarchical_world&) = delete;
  ~hierarchical_world() {
    for (member& one : members) one.comm->destroy();
  }

  void on_all(const std::function<void(member&)>& work) {
    std::vector<std::jthread> helpers;
    for (member& one : members) helpers.emplace_back([&work, &one] { work(one); });
  }
  void synchronize() {
    for (member& one : members) one.line.ref().synchronize();
  }

  std::shared_ptr<counted_launches> launches = std::make_shared<counted_launches>();
  std::shared_ptr<counted_launches> launches_apart = std::make_shared<counted_launches>();
  std::shared_ptr<backend> kind;
  std::vector<member> members;
};

} // namespace troupe::tests
