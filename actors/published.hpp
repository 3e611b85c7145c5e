/// A value that is replaced now and then and read all the time, without waiting for anybody.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

/// Earlier values live on until the end, since somebody may be reading them: it is for what changes a few times.
/// Threads: safe from any.
template <class Value>
class published {
public:
  explicit published(Value first) { set(std::move(first)); }

  void set(Value next) {
    change([&](Value& latest) { latest = std::move(next); });
  }
  /// Publishes what \p make does to a copy of the latest value.
  template <class Make>
  void change(Make make) {
    const std::lock_guard lock{guard_};
    auto next = all_.empty() ? std::make_unique<Value>() : std::make_unique<Value>(*all_.back());
    make(*next);
    all_.push_back(std::move(next));
    latest_.store(all_.back().get(), std::memory_order_release);
  }
  [[nodiscard]] const Value& get() const noexcept { return *latest_.load(std::memory_order_acquire); }

private:
  std::mutex guard_; ///< Of those who change it.
  std::vector<std::unique_ptr<const Value>> all_;
  std::atomic<const Value*> latest_{nullptr};
};

} // namespace troupe
