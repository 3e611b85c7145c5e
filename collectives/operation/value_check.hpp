/// Checks the values that an operation names: dtype, reduction, ranks, counts.
#pragma once

#include <troupe/collectives/operation/objection.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/operation/validation.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// Checks the values of an operation that do not depend on its memory. Must run before any check of the memory.
class value_check {
public:
  explicit value_check(const seat& at) : at_{at}, size_{static_cast<std::size_t>(at.world_size)} {}

  template <class Operation>
  objection operator()(const Operation& what) const {
    if constexpr (requires { what.type; })
      if (size_bytes(what.type) == 0)
        return refuse(errc::invalid_argument,
                      "dtype " + std::to_string(static_cast<int>(what.type)) +
                          " is unknown: choose one of u8, i8, i32, u32, i64, u64, f16, f32, f64, "
                          "bf16, f8e4m3, f8e5m2");
    if constexpr (requires { what.op; })
      if (to_string(what.op).empty())
        return refuse(errc::invalid_argument, "reduction " + std::to_string(static_cast<int>(what.op)) +
                                                  " is unknown: choose one of sum, prod, min, max, avg, pre_mul_sum");
    if constexpr (requires { what.root; })
      if (objection failure = check_rank(what.root, "root")) return failure;
    if constexpr (requires { what.peer; }) {
      if (objection failure = check_rank(what.peer, "peer")) return failure;
      if (what.tag < 0)
        return refuse(errc::invalid_argument, "tag " + std::to_string(what.tag) + " is negative: tags count from 0");
    }
    if constexpr (requires { what.count; })
      if (what.count > max_bytes / size_bytes(what.type) / size_)
        return refuse(errc::invalid_argument, "count " + std::to_string(what.count) + " of " + std::to_string(size_) +
                                                  " ranks exceeds any memory");
    if constexpr (requires { what.send_parts; })
      if (objection failure = check_parts(what.send_parts, "send_parts", size_bytes(what.type))) return failure;
    if constexpr (requires { what.recv_parts; })
      if (objection failure = check_parts(what.recv_parts, "recv_parts", size_bytes(what.type))) return failure;
    return {};
  }

private:
  static constexpr std::size_t max_bytes = static_cast<std::size_t>(PTRDIFF_MAX);

  objection check_rank(rank one, std::string_view role) const {
    if (one.value() >= 0 && one.value() < at_.world_size) return {};
    return refuse(errc::invalid_argument, std::string{role} + " " + to_string(one) +
                                              " is not in this world: its ranks are 0 to " +
                                              std::to_string(at_.world_size - 1));
  }

  objection check_parts(const partition& parts, std::string_view role, std::size_t width) const {
    if (parts.counts.size() != size_ || parts.displacements.size() != size_)
      return refuse(errc::invalid_argument, std::string{role} + " has " + std::to_string(parts.counts.size()) +
                                                " counts and " + std::to_string(parts.displacements.size()) +
                                                " displacements: give one of each for each of the " +
                                                std::to_string(size_) + " ranks");
    std::size_t sum = 0;
    for (std::size_t i = 0; i < size_; ++i) {
      const std::size_t left = max_bytes / width - std::max(sum, std::min(parts.displacements[i], max_bytes / width));
      if (parts.displacements[i] > max_bytes / width || parts.counts[i] > left)
        return refuse(errc::invalid_argument, std::string{role} + " of rank " + std::to_string(i) + " (" +
                                                  std::to_string(parts.counts[i]) + " elements from " +
                                                  std::to_string(parts.displacements[i]) + ") exceeds any memory");
      sum += parts.counts[i];
    }
    return {};
  }

  const seat& at_;
  std::size_t size_;
};

} // namespace troupe
