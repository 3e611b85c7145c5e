#include <troupe/actors/world/rcu_pointer.hpp>

#include <array>
#include <tuple>
#include <vector>

namespace troupe {

namespace {

/// The hazard pointers of one thread. A new thread reuses those of a thread that has ended.
struct thread_places {
  std::array<std::atomic<const void*>, 8> all{};
  std::atomic<bool> taken{true};
  thread_places* next = nullptr;
};

constinit std::atomic<thread_places*> every_place{nullptr};

thread_places& take_places() {
  for (thread_places* one = every_place.load(std::memory_order_acquire); one != nullptr; one = one->next)
    if (!one->taken.exchange(true, std::memory_order_acquire)) return *one;
  auto* const made = new thread_places; // never freed: other threads read it
  made->next = every_place.load(std::memory_order_relaxed);
  while (!every_place.compare_exchange_weak(made->next, made)) {
  }
  return *made;
}

/// The hazard pointers of the calling thread as a stack, because readings can nest: a reply that is delivered during a
/// reading may make another request.
class own_places {
public:
  own_places() = default;
  own_places(const own_places&) = delete;
  own_places& operator=(const own_places&) = delete;
  ~own_places() {
    for (thread_places* const one : mine_) one->taken.store(false, std::memory_order_release);
  }

  [[nodiscard]] std::atomic<const void*>& push() {
    constexpr std::size_t each = std::tuple_size_v<decltype(thread_places::all)>;
    if (used_ == mine_.size() * each) mine_.push_back(&take_places());
    auto& place = mine_[used_ / each]->all[used_ % each];
    ++used_;
    return place;
  }
  void pop() noexcept { --used_; }

private:
  std::vector<thread_places*> mine_;
  std::size_t used_ = 0;
};

thread_local own_places own;

} // namespace

rcu_reader::rcu_reader() : place_{&own.push()} {}

rcu_reader::~rcu_reader() {
  place_->store(nullptr, std::memory_order_release);
  own.pop();
}

bool rcu_reader::is_read(const void* what) noexcept {
  for (const thread_places* one = every_place.load(); one != nullptr; one = one->next)
    for (const auto& place : one->all)
      if (place.load() == what) return true;
  return false;
}

} // namespace troupe
