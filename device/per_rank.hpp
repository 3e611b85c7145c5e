/// One value for each of several consecutive ranks, indexed by rank.
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cassert>
#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

/// Holds one value for each of several consecutive ranks, for example the ranks of a world that are in this process. It
/// is a contiguous range in rank order, so a std::span can view it.
///
/// Threads: as std::vector.
template <class T>
class per_rank {
public:
  using value_type = T;
  using iterator = typename std::vector<T>::iterator;
  using const_iterator = typename std::vector<T>::const_iterator;

  per_rank() = default;
  /// Takes \p values in rank order. The first one is for rank \p first.
  per_rank(std::vector<T> values, rank first = rank{0}) // NOLINT(google-explicit-constructor): a sequence in rank order
    : values_{std::move(values)}, first_{first} {}
  per_rank(std::initializer_list<T> values) : values_{values} {}
  /// Calls \p make(rank) for each of \p ranks, which are consecutive and ascending, and holds the results. Errors:
  /// invalid_argument (there is a gap between the ranks).
  template <std::invocable<rank> Make>
  per_rank(const std::vector<rank>& ranks, Make make) : first_{ranks.empty() ? rank{0} : ranks.front()} {
    values_.reserve(ranks.size());
    for (const rank self : ranks) {
      if (self != end_rank())
        throw exception{errc::invalid_argument, "rank " + to_string(self) +
                                                    " does not follow the rank before it: give " +
                                                    "consecutive ranks in ascending order"};
      values_.push_back(make(self));
    }
  }

  /// Returns the value of \p self. Precondition: contains(self).
  [[nodiscard]] T& operator[](rank self) noexcept {
    assert(contains(self));
    return values_[place_of(self)];
  }
  [[nodiscard]] const T& operator[](rank self) const noexcept {
    assert(contains(self));
    return values_[place_of(self)];
  }
  /// Returns the value of \p self. Errors: invalid_argument (the rank has no value here).
  [[nodiscard]] T& at(rank self) {
    require(self);
    return values_[place_of(self)];
  }
  [[nodiscard]] const T& at(rank self) const {
    require(self);
    return values_[place_of(self)];
  }
  /// Returns whether \p self has a value here.
  [[nodiscard]] bool contains(rank self) const noexcept { return self >= first_ && self < end_rank(); }

  /// Returns the number of ranks.
  [[nodiscard]] std::size_t size() const noexcept { return values_.size(); }
  /// Returns whether there is no value.
  [[nodiscard]] bool empty() const noexcept { return values_.empty(); }
  /// Returns the ranks that have a value, in ascending order.
  [[nodiscard]] std::vector<rank> ranks() const {
    std::vector<rank> all;
    for (rank self = first_; self < end_rank(); self = self.next()) all.push_back(self);
    return all;
  }

  /// Returns an iterator to the value of the lowest rank.
  [[nodiscard]] iterator begin() noexcept { return values_.begin(); }
  /// Returns the iterator behind the value of the highest rank.
  [[nodiscard]] iterator end() noexcept { return values_.end(); }
  /// Returns an iterator to the value of the lowest rank.
  [[nodiscard]] const_iterator begin() const noexcept { return values_.begin(); }
  /// Returns the iterator behind the value of the highest rank.
  [[nodiscard]] const_iterator end() const noexcept { return values_.end(); }
  /// Returns the address of the values, which are contiguous in rank order.
  [[nodiscard]] T* data() noexcept { return values_.data(); }
  /// Returns the address of the values, which are contiguous in rank order.
  [[nodiscard]] const T* data() const noexcept { return values_.data(); }
  /// Returns the value of the lowest rank. Precondition: not empty.
  [[nodiscard]] const T& front() const noexcept { return values_.front(); }
  /// Returns the value of the highest rank. Precondition: not empty.
  [[nodiscard]] const T& back() const noexcept { return values_.back(); }
  /// Returns the values in rank order, for functions that take a vector.
  operator const std::vector<T>&() const noexcept { return values_; } // NOLINT(google-explicit-constructor)

  friend bool operator==(const per_rank&, const per_rank&) = default;

private:
  [[nodiscard]] rank end_rank() const noexcept { return rank{first_.value() + static_cast<int>(values_.size())}; }
  [[nodiscard]] std::size_t place_of(rank self) const noexcept {
    return static_cast<std::size_t>(self.value() - first_.value());
  }
  void require(rank self) const {
    if (contains(self)) return;
    throw exception{errc::invalid_argument, "rank " + to_string(self) + " has no value here: " +
                                                (empty() ? std::string{"no rank has one"}
                                                         : "the ranks are " + to_string(first_) + " to " +
                                                               to_string(rank{end_rank().value() - 1}))};
  }

  std::vector<T> values_;
  rank first_{};
};

template <class Make>
per_rank(const std::vector<rank>&, Make) -> per_rank<std::invoke_result_t<Make, rank>>;

} // namespace troupe
