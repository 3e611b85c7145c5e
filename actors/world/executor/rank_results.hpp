/// Collects one value from each local rank.
#pragma once

#include <troupe/device/identity.hpp>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

/// One value for each local rank, set by helpers. Threads: safe from any.
template <class Value>
class rank_results {
public:
  void set(rank self, Value made) {
    const std::lock_guard lock{mutex_};
    all_.insert_or_assign(self, std::move(made));
  }
  [[nodiscard]] Value of(rank self) const {
    const std::lock_guard lock{mutex_};
    return all_.at(self);
  }
  /// Returns the values in rank order.
  [[nodiscard]] std::vector<Value> all() const {
    const std::lock_guard lock{mutex_};
    std::vector<Value> values;
    for (const auto& [self, value] : all_) values.push_back(value);
    return values;
  }

private:
  mutable std::mutex mutex_;
  std::map<rank, Value> all_;
};

} // namespace troupe
