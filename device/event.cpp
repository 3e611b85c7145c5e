#include <troupe/device/event.hpp>

#include <troupe/device/memory/leak_report.hpp>

#include <utility>

namespace troupe {

event::event(std::shared_ptr<device> where)
  : device_{std::move(where)}, native_{device_->api().create_event(device_->id())} {}

event::event(event&& other) noexcept
  : device_{std::move(other.device_)}, native_{std::exchange(other.native_, nullptr)} {}

event& event::operator=(event&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(native_, other.native_);
  return *this;
}

event::~event() {
  if (native_ == nullptr) return;
  return_or_report("an event", [this] { device_->api().destroy_event(device_->id(), native_); });
}

void event::record(stream_ref stream) {
  device_->api().record(device_->id(), native_, stream.native());
}

bool event::reached() const {
  return device_->api().query(native_) == progress::reached;
}

shared_event record_event(const std::shared_ptr<device>& where, stream_ref stream) {
  auto recorded = std::make_shared<event>(where);
  recorded->record(stream);
  return recorded;
}

event_pool::event_pool(std::shared_ptr<device> where, std::size_t kept) : device_{std::move(where)}, kept_{kept} {
  idle_.reserve(kept);
}

std::unique_ptr<event> event_pool::take() {
  {
    const std::lock_guard lock{guard_};
    if (!idle_.empty()) {
      auto one = std::move(idle_.back());
      idle_.pop_back();
      return one;
    }
  }
  return std::make_unique<event>(device_);
}

void event_pool::put_back(std::unique_ptr<event> one) noexcept {
  const std::lock_guard lock{guard_};
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
  const std::lock_guard lock{guard_};
  return idle_.size();
}

} // namespace troupe
