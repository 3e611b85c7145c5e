/// Fills and reads the memory of mock worlds in tests, in real and in virtual time.
#pragma once

#include <troupe/collectives/operation/collective_methods.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/memory/buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace troupe::testing {

/// Returns a mock device's memory, or host memory, as elements: both are host memory. Use it while nothing in flight
/// uses the memory. Errors: invalid_argument (memory of a real GPU, a size that is not a multiple of the element size,
/// an empty buffer).
template <class T>
[[nodiscard]] std::span<T> elements_of(const buffer& memory) {
  if (!memory || memory.size_bytes() % sizeof(T) != 0)
    throw exception{errc::invalid_argument, std::to_string(memory.size_bytes()) +
                                                " bytes are not a whole number of elements of " +
                                                std::to_string(sizeof(T)) + " bytes each"};
  if (!memory.on_host() && memory.where()->api().name() != "mock")
    throw exception{errc::invalid_argument, "only a mock device's memory can be read from the host: copy it"};
  return {reinterpret_cast<T*>(memory.data()), memory.size_bytes() / sizeof(T)};
}

/// Returns a copy of the elements of \p memory.
template <class T>
[[nodiscard]] std::vector<T> values_of(const buffer& memory) {
  const auto all = elements_of<T>(memory);
  return {all.begin(), all.end()};
}

/// Allocates a buffer of \p count elements for each rank of \p where (a troupe::world or a virtual_world). All elements
/// of rank r are value(r).
template <class T, class World, class Value>
[[nodiscard]] std::vector<buffer> make_values(const World& where, std::size_t count, Value value) {
  std::vector<buffer> made;
  for (const rank self : where.local_ranks()) {
    made.push_back(where.allocate(self, count * sizeof(T)));
    std::ranges::fill(elements_of<T>(made.back()), static_cast<T>(std::invoke(value, self)));
  }
  return made;
}

/// Allocates as make_values() does, with the value rank + 1, whose sum over n ranks is n (n + 1) / 2.
template <class T, class World>
[[nodiscard]] std::vector<buffer> make_ranked(const World& where, std::size_t count) {
  return make_values<T>(where, count, [](rank self) { return self.value() + 1; });
}

/// Returns every rank's part of an in-place all_reduce over all elements of \p values: one buffer for each rank, all of
/// one size.
[[nodiscard]] inline std::vector<operation> sums_of(const std::vector<buffer>& values, dtype type = dtype::f32) {
  const std::size_t count = values.empty() ? 0 : values.front().size_bytes() / size_bytes(type);
  return request_builder{static_cast<int>(values.size())}.all_reduce(values, values, count, type, reduction::sum).parts;
}

} // namespace troupe::testing
