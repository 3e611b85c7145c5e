/// Holds a value that is read often, without waiting, and replaced rarely.
#pragma once

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

/// A hazard pointer of the calling thread (Michael, IEEE TPDS 15(6), 2004). Threads: any.
class rcu_reader {
public:
  /// Reserves a hazard pointer of the calling thread. Errors: std::bad_alloc, only if all pointers of the thread are in
  /// use.
  rcu_reader();
  rcu_reader(const rcu_reader&) = delete;
  rcu_reader& operator=(const rcu_reader&) = delete;
  ~rcu_reader();

  /// Returns the object that \p source points to. It stays alive as long as this reader, provided that writers check
  /// is_read() before they destroy it.
  template <class Value>
  [[nodiscard]] const Value* hold(const std::atomic<const Value*>& source) noexcept {
    const Value* seen = source.load(std::memory_order_relaxed);
    for (;;) {
      place_->store(seen); // before the second load: that load sees a newer value, or is_read() sees this pointer
      const Value* const again = source.load();
      if (again == seen) return seen;
      seen = again;
    }
  }

  /// Returns whether a thread holds \p what. The caller must have replaced it, so that no thread can begin to hold it.
  [[nodiscard]] static bool is_read(const void* what) noexcept;

private:
  std::atomic<const void*>* place_;
};

/// Publishes a value to readers that never wait. Earlier values are destroyed when no thread reads them any more. This
/// is checked when the next value is set, and in the destructor.
/// Threads: safe from any.
template <class Value>
class rcu_pointer {
public:
  /// Keeps one value alive during its own lifetime. Use it only on the thread that created it; readings end in the
  /// reverse order of their creation.
  class read_section {
  public:
    explicit read_section(const rcu_pointer& from) : value_{place_.hold(from.latest_)} {}
    [[nodiscard]] const Value& operator*() const noexcept { return *value_; }
    [[nodiscard]] const Value* operator->() const noexcept { return value_; }

  private:
    rcu_reader place_;
    const Value* value_;
  };

  explicit rcu_pointer(Value first) { set(std::move(first)); }
  rcu_pointer(const rcu_pointer&) = delete;
  rcu_pointer& operator=(const rcu_pointer&) = delete;
  /// Requires that no thread reads it any more.
  ~rcu_pointer() = default;

  void set(Value next) {
    change([&](Value& latest) { latest = std::move(next); });
  }
  /// Publishes a copy of the latest value after \p make has changed it.
  template <class Make>
  void change(Make make) {
    values gone; // their destructors may take long: run them outside the lock
    const std::lock_guard lock{mutex_};
    auto next = all_.empty() ? std::make_unique<Value>() : std::make_unique<Value>(*all_.back());
    make(*next);
    all_.push_back(std::move(next));
    latest_.store(all_.back().get());
    const auto first_gone = std::stable_partition(all_.begin(), all_.end() - 1,
                                                  [](const auto& one) { return rcu_reader::is_read(one.get()); });
    std::move(first_gone, all_.end() - 1, std::back_inserter(gone));
    all_.erase(first_gone, all_.end() - 1);
  }
  [[nodiscard]] read_section read() const { return read_section{*this}; }

private:
  using values = std::vector<std::unique_ptr<const Value>>;

  std::mutex mutex_; ///< Serializes changes.
  values all_;       ///< Values that may still be read; the last one is the latest.
  std::atomic<const Value*> latest_{nullptr};
};

} // namespace troupe
