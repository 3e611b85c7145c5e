#include <troupe/device/event_pool.hpp>

#include <utility>

namespace troupe {

event_pool::event_pool(std::shared_ptr<device> where, std::size_t kept) : device_{std::move(where)}, kept_{kept} {
  idle_.reserve(kept);
}

std::unique_ptr<event> event_pool::take() {
  {
    const std::lock_guard lock{mutex_};
    if (!idle_.empty()) {
      auto one = std::move(idle_.back());
      idle_.pop_back();
      return one;
    }
  }
  return std::make_unique<event>(device_);
}

void event_pool::put_back(std::unique_ptr<event> one) noexcept {
  const std::lock_guard lock{mutex_};
  if (idle_.size() < kept_) idle_.push_back(std::move(one));
}

shared_event event_pool::record(stream_ref stream) {
  struct returner {
    std::weak_ptr<event_pool> stock;
    void operator()(event* used) const noexcept {
      std::unique_ptr<event> one{used};
      if (const auto alive = stock.lock()) alive->put_back(std::move(one));
    }
  };
  std::unique_ptr<event, returner> taken{take().release(), returner{weak_from_this()}};
  taken->record(stream);
  return std::shared_ptr<event>{std::move(taken)};
}

std::size_t event_pool::idle_count() const {
  const std::lock_guard lock{mutex_};
  return idle_.size();
}

} // namespace troupe
