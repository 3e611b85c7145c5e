/// What one rank is asked to do: plain descriptors, one struct per operation.
#pragma once

#include <troupe/collectives/dtype.hpp>
#include <troupe/collectives/reduction.hpp>
#include <troupe/device/buffer.hpp>
#include <troupe/device/event.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

namespace troupe {

/// A buffer argument: memory and, optionally, the point in the client's own stream from which it may be used.
struct operand {
  buffer memory;
  shared_event ready{};

  operand() = default;
  operand(buffer range, shared_event ready_at = {}) // NOLINT(google-explicit-constructor): a buffer is an operand
    : memory{std::move(range)}, ready{std::move(ready_at)} {}
};

/// recv[i] on every rank = reduction over all ranks of send[i].
/// Shapes: send and recv hold at least \p count elements. In place when they are the same range;
/// overlapping otherwise is refused. count 0 is valid.
struct all_reduce {
  operand send;
  operand recv;
  std::size_t count = 0; ///< In elements.
  dtype type = dtype::f32;
  reduction op = reduction::sum;
};

/// Answered when every rank's stream has reached it.
struct barrier {};

/// Copies all of \p from to the front of \p to on the rank's stream; each is pinned memory or memory of the rank's
/// device. Local to one rank: no peer takes part.
struct copy {
  operand from;
  operand to;
};

using operation = std::variant<all_reduce, barrier, copy>;

/// "all_reduce", "barrier", "copy".
[[nodiscard]] std::string_view name_of(const operation& what) noexcept;

/// One line for people and for comparison between ranks: "all_reduce of 1024 f32, sum".
[[nodiscard]] std::string describe(const operation& what);

/// Whether two ranks' parts describe the same operation: kind, dtype, reduction and count.
[[nodiscard]] bool agree(const operation& one, const operation& other) noexcept;

} // namespace troupe
