#include <troupe/completion/hang_watch.hpp>

#include <algorithm>

namespace troupe {

std::shared_ptr<hang_watch::place> hang_watch::join(owner whose, device_id where) {
  auto made = std::make_shared<place>(whose, where);
  const std::lock_guard lock{guard_};
  std::erase_if(places_, [](const std::weak_ptr<place>& one) { return one.expired(); });
  places_.push_back(made);
  return made;
}

bool hang_watch::is_behind(const place& who, time_point now) const {
  std::vector<std::shared_ptr<place>> mine;
  std::vector<std::shared_ptr<place>> others;
  {
    const std::lock_guard lock{guard_};
    for (const auto& known : places_)
      if (auto one = known.lock()) (one->whose_ == who.whose_ ? mine : others).push_back(std::move(one));
  }
  const auto holds_up = [&](const place& one, const place& other) {
    const bool is_given_up = other.failed_ != time_point{} && now - other.failed_ > abort_;
    return one.where_ == other.where_ && other.is_running() && other.running_ < one.running_ && !is_given_up;
  };
  return std::ranges::any_of(mine, [&](const auto& one) {
    return one->is_running() && std::ranges::any_of(others, [&](const auto& other) { return holds_up(*one, *other); });
  });
}

} // namespace troupe
