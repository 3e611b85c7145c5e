#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/stream.hpp>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

/// Blocks that have no handle any more, but that work noted by note_use() may still use.
struct memory_pool::retired_blocks {
  struct entry {
    void* address;
    std::vector<event> uses;
  };

  std::mutex mutex; ///< Also serialises allocations and frees on the pool's stream.
  std::vector<entry> waiting;
};

class memory_pool::block final : public memory_block {
public:
  block(std::shared_ptr<memory_pool> pool, void* address, std::size_t size_bytes)
    : memory_block{pool->device_, memory_kind::device, address, size_bytes}, pool_{std::move(pool)} {}

  ~block() override {
    if (address() == nullptr) return;
    return_or_report("device memory", [this] {
      const std::lock_guard lock{pool_->retired_->mutex};
      pool_->retired_->waiting.push_back({address(), std::move(uses_)});
      pool_->release_finished();
    });
  }

  void note_use(stream_ref stream) override {
    event mark = event_behind(stream);
    const std::lock_guard lock{mutex_};
    uses_.push_back(std::move(mark));
  }

private:
  std::shared_ptr<memory_pool> pool_;
  std::mutex mutex_;
  std::vector<event> uses_;
};

std::shared_ptr<memory_pool> memory_pool::create(std::shared_ptr<device> where) {
  return std::make_shared<memory_pool>(std::move(where));
}

memory_pool::memory_pool(std::shared_ptr<device> where)
  : device_{std::move(where)},
    pool_{device_->api().create_pool(device_->id())},
    order_{device_},
    retired_{std::make_unique<retired_blocks>()} {}

memory_pool::~memory_pool() {
  return_or_report("a memory pool", [this] {
    for (const auto& entry : retired_->waiting) {
      // Work noted by note_use() may still run. The stream waits for it before the memory is freed and unmapped.
      for (const event& use : entry.uses) order_.ref().wait(use);
      device_->api().free(device_->id(), pool_, entry.address, order_.ref().native());
    }
    device_->api().destroy_pool(device_->id(), pool_);
  });
}

buffer memory_pool::allocate(std::size_t size_bytes) {
  if (size_bytes == 0) return buffer{std::make_shared<block>(shared_from_this(), nullptr, 0)};
  void* address = nullptr;
  {
    const std::lock_guard lock{retired_->mutex};
    release_finished();
    address = device_->api().allocate(device_->id(), pool_, size_bytes, order_.ref().native());
    // The stream carries only allocations and frees, so this takes microseconds and never waits for other work.
    order_.ref().synchronize();
  }
  return buffer{std::make_shared<block>(shared_from_this(), address, size_bytes)};
}

void memory_pool::reserve(std::size_t size_bytes) {
  static_cast<void>(allocate(size_bytes));
}

void memory_pool::release_finished() {
  auto& waiting = retired_->waiting;
  // All entries are checked before one is freed, because reached() throws on a failed device. Each entry is removed
  // before its memory is freed, so that nothing is freed twice.
  const auto first_finished = std::partition(waiting.begin(), waiting.end(), [](const auto& entry) {
    return !std::ranges::all_of(entry.uses, &event::reached);
  });
  for (auto left = waiting.end() - first_finished; left > 0; --left) {
    const retired_blocks::entry gone = std::move(waiting.back());
    waiting.pop_back();
    device_->api().free(device_->id(), pool_, gone.address, order_.ref().native());
  }
}

} // namespace troupe
