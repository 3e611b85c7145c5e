#include <troupe/actors/world/rcu_pointer.hpp>

#include <array>
#include <tuple>
#include <vector>

namespace troupe {

namespace {

/// The hazard pointers of one thread. A new thread reuses those of a thread that has ended.
struct hazard_record {
  std::array<std::atomic<const void*>, 8> all{};
  std::atomic<bool> taken{true};
  hazard_record* next = nullptr;
};

constinit std::atomic<hazard_record*> all_records{nullptr};

hazard_record& acquire_record() {
  for (hazard_record* one = all_records.load(std::memory_order_acquire); one != nullptr; one = one->next)
    if (!one->taken.exchange(true, std::memory_order_acquire)) return *one;
  auto* const made = new hazard_record; // never freed: other threads read it
  made->next = all_records.load(std::memory_order_relaxed);
  while (!all_records.compare_exchange_weak(made->next, made)) {
  }
  return *made;
}

/// The hazard pointers of the calling thread as a stack, because readings can nest: a reply that is delivered during a
/// reading may make another request.
class hazard_stack {
public:
  hazard_stack() = default;
  hazard_stack(const hazard_stack&) = delete;
  hazard_stack& operator=(const hazard_stack&) = delete;
  ~hazard_stack() {
    for (hazard_record* const one : mine_) one->taken.store(false, std::memory_order_release);
  }

  [[nodiscard]] std::atomic<const void*>& push() {
    constexpr std::size_t each = std::tuple_size_v<decltype(hazard_record::all)>;
    if (used_ == mine_.size() * each) mine_.push_back(&acquire_record());
    auto& place = mine_[used_ / each]->all[used_ % each];
    ++used_;
    return place;
  }
  void pop() noexcept { --used_; }

private:
  std::vector<hazard_record*> mine_;
  std::size_t used_ = 0;
};

thread_local hazard_stack own_hazards;

} // namespace

rcu_reader::rcu_reader() : place_{&own_hazards.push()} {}

rcu_reader::~rcu_reader() {
  place_->store(nullptr, std::memory_order_release);
  own_hazards.pop();
}

bool rcu_reader::is_read(const void* what) noexcept {
  for (const hazard_record* one = all_records.load(); one != nullptr; one = one->next)
    for (const auto& place : one->all)
      if (place.load() == what) return true;
  return false;
}

} // namespace troupe
