#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/process_mark.hpp>
#include <troupe/device/stream.hpp>

#include <algorithm>
#include <limits>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// Smaller allocations are tried without asking the driver for its figures first.
constexpr std::size_t least_checked_bytes = std::size_t{1} << 20U;
constexpr std::uint64_t everything = std::numeric_limits<std::uint64_t>::max();

} // namespace

struct memory_pool::shared_state {
  /// A block that has no handle any more, but that work noted by note_use() may still use.
  struct retired_block {
    void* address;
    std::size_t size_bytes;
    std::vector<event> uses;
  };

  std::mutex mutex; ///< Also serialises allocations and frees on the pool's stream.
  std::vector<retired_block> waiting;
  std::uint64_t keep_bytes = everything;
  std::uint64_t freed_bytes = 0; ///< Since the driver's figures were last read.
  bool is_returning = false;     ///< return_later was called, and return_excess() has not begun.
  std::function<void(std::shared_ptr<memory_pool>)> return_later{};
  struct user_count;
  std::weak_ptr<void> users;
};

class memory_pool::block final : public memory_block {
public:
  block(std::shared_ptr<memory_pool> pool, void* address, std::size_t size_bytes)
    : memory_block{pool->device_, memory_kind::device, address, size_bytes}, pool_{std::move(pool)} {}

  ~block() override {
    if (address() == nullptr || made_.is_inherited()) return;
    return_or_report("device memory", [this] {
      bool is_too_much = false;
      {
        const std::lock_guard lock{pool_->state_->mutex};
        pool_->state_->waiting.push_back({address(), size_bytes(), std::move(uses_)});
        pool_->release_finished();
        is_too_much = pool_->has_excess();
      }
      if (is_too_much) pool_->state_->return_later(pool_);
    });
  }

  void note_use(stream_ref stream) override {
    event mark = event_behind(stream);
    const std::lock_guard lock{mutex_};
    uses_.push_back(std::move(mark));
  }

private:
  const process_mark made_;
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
    state_{std::make_unique<shared_state>()} {}

memory_pool::~memory_pool() {
  return_or_report("a memory pool", [this] {
    for (const auto& entry : state_->waiting) {
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
    const std::lock_guard lock{state_->mutex};
    release_finished();
    require_room(size_bytes);
    address = take(size_bytes);
    // The stream carries only allocations and frees, so this takes microseconds and never waits for other work.
    order_.ref().synchronize();
  }
  return buffer{std::make_shared<block>(shared_from_this(), address, size_bytes)};
}

/// Throws out_of_memory if \p size_bytes certainly cannot be allocated, because a pool that tries takes all memory that
/// the device has left, which then nobody else has.
void memory_pool::require_room(std::size_t size_bytes) {
  if (size_bytes < least_checked_bytes) return;
  driver& api = device_->api();
  const device_id id = device_->id();
  const auto fits = [&] { return size_bytes <= usage().unused_bytes() || size_bytes <= api.free_bytes(id); };
  if (fits()) return;
  order_.ref().synchronize(); // from now on all freed memory counts as unused
  if (size_bytes <= usage().unused_bytes()) return;
  api.trim(id, pool_, 0); // together with what the device has, it may suffice
  if (fits()) return;
  throw exception{errc::out_of_memory,
                  "device " + to_string(id) + " has no " + std::to_string(size_bytes) +
                      " bytes left: " + std::to_string(api.free_bytes(id)) + " are free, and this process's pool has " +
                      std::to_string(usage().used_bytes) + " in use. Free memory, or request less"};
}

void* memory_pool::take(std::size_t size_bytes) {
  driver& api = device_->api();
  const device_id id = device_->id();
  const auto try_once = [&] { return api.allocate(id, pool_, size_bytes, order_.ref().native()); };
  const auto give_back = [&] {
    order_.ref().synchronize();
    api.trim(id, pool_, 0);
  };
  try {
    return try_once();
  } catch (const exception& refused) {
    if (refused.why().code != errc::out_of_memory) throw;
  }
  // The pool has kept what it took while it tried. Its unused memory may be in pieces that are too small.
  give_back();
  try {
    return try_once();
  } catch (const exception& refused) {
    if (refused.why().code == errc::out_of_memory) give_back();
    throw;
  }
}

void memory_pool::reserve(std::size_t size_bytes) {
  static_cast<void>(allocate(size_bytes));
}

void memory_pool::keep(std::size_t size_bytes, std::function<void(std::shared_ptr<memory_pool>)> return_later) {
  const std::lock_guard lock{state_->mutex};
  state_->keep_bytes = size_bytes;
  state_->return_later.swap(return_later); // the earlier one is destroyed without the lock: it may own memory
}

/// The users of a pool. It is not a deleter, which would also run, under the lock, if there is no memory for a handle.
struct memory_pool::shared_state::user_count {
  explicit user_count(std::weak_ptr<memory_pool> of) noexcept : pool_{std::move(of)} {}
  user_count(const user_count&) = delete;
  user_count& operator=(const user_count&) = delete;
  ~user_count() {
    const auto pool = pool_.lock();
    if (!pool) return;
    {
      const std::lock_guard releasing{pool->state_->mutex};
      if (!pool->state_->return_later || pool->state_->is_returning) return;
      pool->state_->is_returning = true;
    }
    pool->state_->return_later(pool);
  }

private:
  std::weak_ptr<memory_pool> pool_;
};

std::shared_ptr<void> memory_pool::add_user() {
  const std::lock_guard lock{state_->mutex};
  if (auto present = state_->users.lock()) return present;
  const std::shared_ptr<void> first = std::make_shared<shared_state::user_count>(weak_from_this());
  state_->users = first;
  return first;
}

std::uint64_t memory_pool::kept_bytes() const {
  const std::lock_guard lock{state_->mutex};
  return state_->return_later && state_->users.expired() ? 0 : state_->keep_bytes;
}

std::size_t memory_pool::return_excess() {
  return return_beyond(kept_bytes());
}

void memory_pool::excess_stays() noexcept {
  const std::lock_guard lock{state_->mutex};
  state_->is_returning = false;
}

std::size_t memory_pool::release_unused() {
  return return_beyond(0);
}

pool_usage memory_pool::usage() const {
  return device_->api().usage(device_->id(), pool_);
}

std::size_t memory_pool::return_beyond(std::uint64_t keep_bytes) {
  pool_usage before;
  {
    const std::lock_guard lock{state_->mutex};
    state_->is_returning = false;
    state_->freed_bytes = 0;
    release_finished();
    order_.ref().synchronize();
    before = usage();
  }
  if (before.unused_bytes() <= keep_bytes) return 0;
  device_->api().trim(device_->id(), pool_, before.used_bytes + keep_bytes);
  const std::uint64_t left = usage().reserved_bytes;
  return before.reserved_bytes > left ? before.reserved_bytes - left : 0;
}

/// Returns whether return_later must be called. Precondition: the mutex is locked.
bool memory_pool::has_excess() {
  shared_state& all = *state_;
  if (!all.return_later || all.is_returning) return false;
  const std::uint64_t keep_bytes = all.users.expired() ? 0 : all.keep_bytes;
  if (all.freed_bytes <= keep_bytes / 4) return false; // the driver's figures are read once for each quarter
  all.freed_bytes = 0;
  all.is_returning = usage().unused_bytes() > keep_bytes;
  return all.is_returning;
}

void memory_pool::release_finished() {
  auto& waiting = state_->waiting;
  // All entries are checked before one is freed, because reached() throws on a failed device. Each entry is removed
  // before its memory is freed, so that nothing is freed twice.
  const auto first_finished = std::partition(waiting.begin(), waiting.end(), [](const auto& entry) {
    return !std::ranges::all_of(entry.uses, &event::reached);
  });
  for (auto left = waiting.end() - first_finished; left > 0; --left) {
    const shared_state::retired_block gone = std::move(waiting.back());
    waiting.pop_back();
    device_->api().free(device_->id(), pool_, gone.address, order_.ref().native());
    state_->freed_bytes += gone.size_bytes;
  }
}

} // namespace troupe
