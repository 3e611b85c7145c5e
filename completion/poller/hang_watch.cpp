#include <troupe/completion/poller/hang_watch.hpp>

#include <algorithm>

namespace troupe {

std::shared_ptr<hang_watch::place> hang_watch::join(owner whose, device_id where) {
  auto made = std::make_shared<place>(whose, where);
  const std::lock_guard lock{mutex_};
  std::erase_if(places_, [](const std::weak_ptr<place>& one) { return one.expired(); });
  places_.push_back(made);
  return made;
}

bool hang_watch::is_behind(const place& who, running_time now) const {
  std::vector<std::shared_ptr<const place>> all;
  {
    const std::lock_guard lock{mutex_};
    for (const auto& known : places_)
      if (auto one = known.lock(); one && one->is_running()) all.push_back(std::move(one));
  }
  const auto holds_up = [&](const place& other, const place& one) {
    const bool is_given_up = other.failed_ != running_time{} && now - other.failed_ > abort_;
    return other.whose_ != one.whose_ && other.where_ == one.where_ && other.running_ < one.running_ && !is_given_up;
  };
  std::vector<owner> ahead; // owners that are waited for, directly or indirectly
  const auto add_those_before = [&](owner target) {
    for (const auto& one : all)
      for (const auto& other : all)
        if (one->whose_ == target && holds_up(*other, *one) && std::ranges::find(ahead, other->whose_) == ahead.end())
          ahead.push_back(other->whose_);
  };
  add_those_before(who.whose_);
  if (ahead.empty()) return false;
  for (std::size_t i = 0; i < ahead.size(); ++i) add_those_before(ahead[i]);
  // Under ordering::caller, clients may launch in different orders on different devices. Owners that wait for each
  // other in a cycle can never proceed, so all of them hang.
  return std::ranges::find(ahead, who.whose_) == ahead.end();
}

} // namespace troupe
