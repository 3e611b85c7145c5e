#include <troupe/device/event_stock.hpp>

#include <utility>

namespace troupe {

event_stock::event_stock(std::shared_ptr<device> where, std::size_t kept) : device_{std::move(where)}, kept_{kept} {
  resting_.reserve(kept);
}

std::unique_ptr<event> event_stock::take() {
  {
    const std::lock_guard lock{guard_};
    if (!resting_.empty()) {
      auto one = std::move(resting_.back());
      resting_.pop_back();
      return one;
    }
  }
  return std::make_unique<event>(device_);
}

void event_stock::put_back(std::unique_ptr<event> one) noexcept {
  const std::lock_guard lock{guard_};
  if (resting_.size() < kept_) resting_.push_back(std::move(one));
}

shared_event event_stock::record(stream_ref stream) {
  struct returner {
    std::weak_ptr<event_stock> stock;
    void operator()(event* used) const noexcept {
      std::unique_ptr<event> one{used};
      if (const auto alive = stock.lock()) alive->put_back(std::move(one));
    }
  };
  std::unique_ptr<event, returner> taken{take().release(), returner{weak_from_this()}};
  taken->record(stream);
  return std::shared_ptr<event>{std::move(taken)};
}

std::size_t event_stock::at_rest() const {
  const std::lock_guard lock{guard_};
  return resting_.size();
}

} // namespace troupe
