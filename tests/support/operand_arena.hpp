/// Test memory of any kind with guard zones, of which tests compare every byte. For the mock only, because the host
/// reads device memory directly.
#pragma once

#include <troupe/device/memory/memory_pool.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

namespace troupe::tests {

[[nodiscard]] inline buffer make_pageable(const std::shared_ptr<device>& where, std::size_t size_bytes) {
  const auto bytes = std::make_shared<std::vector<std::byte>>(size_bytes, std::byte{0xA5});
  return adopt_host(where, bytes->data(), size_bytes, bytes);
}

[[nodiscard]] inline buffer make_memory(memory_kind kind, const std::shared_ptr<memory_pool>& pool,
                                        std::size_t size_bytes) {
  switch (kind) {
    case memory_kind::device: return pool->allocate(size_bytes);
    case memory_kind::pinned: return allocate_pinned(pool->where(), size_bytes);
    case memory_kind::pageable: break;
  }
  return make_pageable(pool->where(), size_bytes);
}

class operand_arena {
public:
  operand_arena(memory_kind kind, const std::shared_ptr<memory_pool>& pool, std::size_t size_bytes, unsigned seed)
    : whole_{make_memory(kind, pool, size_bytes + 2 * guard_bytes)},
      inner_{whole_.slice(guard_bytes, size_bytes)},
      start_(size_bytes + 2 * guard_bytes) {
    for (std::byte& one : start_) one = static_cast<std::byte>((seed = seed * 1664525U + 1013904223U) >> 24U);
    std::memcpy(whole_.data(), start_.data(), start_.size());
  }

  [[nodiscard]] const buffer& memory() const noexcept { return inner_; }
  [[nodiscard]] std::vector<std::byte> bytes() const { return {whole_.data(), whole_.data() + whole_.size_bytes()}; }
  [[nodiscard]] bool unchanged() const { return bytes() == start_; }

private:
  static constexpr std::size_t guard_bytes = 64;

  buffer whole_;
  buffer inner_;
  std::vector<std::byte> start_;
};

} // namespace troupe::tests
