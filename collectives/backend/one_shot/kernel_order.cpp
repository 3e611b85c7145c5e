#include <troupe/collectives/backend/one_shot/block_budget.hpp>
#include <troupe/collectives/backend/one_shot/kernel_order.hpp>

#include <algorithm>
#include <map>

namespace troupe {

namespace {

struct all_orders {
  [[nodiscard]] static all_orders& of_process() {
    static auto* const all = new all_orders; // streams may end after static objects
    return *all;
  }

  std::mutex mutex;
  std::map<process_device, std::weak_ptr<kernel_order>> by_device;
};

} // namespace

std::shared_ptr<kernel_order> kernel_order::of(device& where) {
  all_orders& all = all_orders::of_process();
  const std::lock_guard lock{all.mutex};
  const process_device key = process_device_of(where);
  if (const auto known = all.by_device.find(key); known != all.by_device.end())
    if (auto found = known->second.lock()) return found;
  std::erase_if(all.by_device, [](const auto& one) { return one.second.expired(); });
  auto made = std::make_shared<kernel_order>();
  all.by_device[key] = made;
  return made;
}

std::shared_ptr<kernel_order> kernel_order::find_of(device& where) {
  all_orders& all = all_orders::of_process();
  const std::lock_guard lock{all.mutex};
  const auto known = all.by_device.find(process_device_of(where));
  return known != all.by_device.end() ? known->second.lock() : nullptr;
}

void kernel_order::forget(stream_ref gone) noexcept {
  const auto order = find_of(gone.where());
  if (!order) return;
  const std::lock_guard lock{order->mutex_};
  std::erase_if(order->lines_, [&](const auto& one) {
    if (one->stream_ != gone.native()) return false;
    one->stream_ = nullptr;
    return true;
  });
}

void kernel_order::attach(const std::shared_ptr<line>& one, stream_ref stream) {
  const std::lock_guard lock{mutex_};
  if (!one->behind_) one->behind_.emplace(one->where_);
  one->stream_ = stream.native();
  if (std::ranges::find(lines_, one) == lines_.end()) lines_.push_back(one);
}

void kernel_order::note_replay(stream_ref stream) {
  const std::lock_guard lock{mutex_};
  if (line* const own = find(stream)) own->has_unrecorded_ = true;
}

void kernel_order::before_library(stream_ref stream) {
  const std::lock_guard lock{mutex_};
  std::erase_if(lines_, [](const auto& one) { return one->is_over_.load(); });
  line* const own = find(stream);
  if (own != nullptr && lines_.size() == 1) return;
  const std::uint64_t awaited = own != nullptr ? own->awaited_ : 0;
  const bool is_idle = std::ranges::none_of(
      lines_, [&](const auto& one) { return one->has_unrecorded_ || (one.get() != own && one->latest_ > awaited); });
  if (is_idle || stream.where().api().status_of_capture(stream.where().id(), stream.native()) != capture_status::none)
    return;
  for (const auto& one : lines_) {
    // Also that of the stream itself: behind the library's kernels it would stand for those as well.
    if (one->has_unrecorded_.exchange(false)) {
      one->behind_->record({*one->where_, one->stream_});
      one->latest_ = ++records_;
    }
    if (one.get() != own && one->latest_ > awaited) stream.wait(*one->behind_);
  }
  if (own != nullptr) own->awaited_ = records_;
}

kernel_order::line* kernel_order::find(stream_ref stream) const {
  const auto found = std::ranges::find_if(lines_, [&](const auto& one) { return one->stream_ == stream.native(); });
  return found == lines_.end() ? nullptr : found->get();
}

} // namespace troupe
