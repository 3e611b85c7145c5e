/// The collectives as methods, written once for every handle that sends requests: a world, a lane at one rank, a group.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/device/error.hpp>

#include <concepts>
#include <cstddef>
#include <initializer_list>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

/// The operands of all ranks, in rank order: a view of a contiguous range of buffers or of operands. It copies nothing.
///
/// Lifetime: the range must live as long as the view. A collective needs the view only until the call returns.
class operands_view {
public:
  /// Views \p all: a per_rank, std::vector or std::span of buffers or operands.
  template <std::ranges::contiguous_range Range>
  requires std::ranges::sized_range<Range> &&(std::same_as<std::ranges::range_value_t<Range>, buffer> ||
                                              std::same_as<std::ranges::range_value_t<Range>, operand>)
      operands_view(const Range& all) noexcept // NOLINT(google-explicit-constructor): an argument, as std::span
    : operands_view{std::ranges::data(all), std::ranges::size(all)} {}
  operands_view(std::initializer_list<buffer> all) noexcept : operands_view{all.begin(), all.size()} {}
  operands_view(std::initializer_list<operand> all) noexcept : operands_view{all.begin(), all.size()} {}

  /// Returns the number of operands, one for each rank.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Returns the operand at place \p i. Precondition: i < size().
  [[nodiscard]] operand operator[](std::size_t i) const { return operands_ ? operands_[i] : operand{buffers_[i]}; }

private:
  operands_view(const buffer* first, std::size_t size) noexcept : buffers_{first}, size_{size} {}
  operands_view(const operand* first, std::size_t size) noexcept : operands_{first}, size_{size} {}

  const buffer* buffers_ = nullptr;
  const operand* operands_ = nullptr;
  std::size_t size_ = 0;
};

/// The arguments of a handle for one rank: its own operands and partitions.
struct arguments_of_one {
  using operands = operand;
  using partitions = partition;
};

/// The arguments of a handle for all ranks: one operand, and one partition, for each rank in rank order.
struct arguments_of_all {
  using operands = operands_view;
  using partitions = std::span<const partition>;
};

/// The collectives as methods of \p Handle. \p Arguments is arguments_of_one or arguments_of_all; \p Result is what a
/// method returns, and \p Options is its options struct. Shapes, units, in-place rules and errors are those of the
/// operation of the same name (operation.hpp). Fields of the operation that a method does not take have their default
/// values. To set them, pass the operation itself to the handle's ask().
///
/// With arguments_of_all, `send` and `recv` have one operand for each rank, but only one operand if only the root uses
/// it. Errors, thrown: invalid_argument (a different number of send and recv operands).
///
/// The handle has a private member for its requests:
/// `Result perform(operation, Options, call_site)` for one rank, and for all ranks
/// `Result perform(std::vector<operation>, Options, call_site)` and `std::size_t part_count() const`.
template <class Handle, class Arguments, class Result, class Options = request_options>
class collective_methods {
public:
  using operands = typename Arguments::operands;
  using partitions = typename Arguments::partitions;

  /// Reduces `send` of all ranks into `recv` of every rank.
  [[nodiscard]] Result all_reduce(operands send, operands recv, std::size_t count, dtype type, reduce_op op,
                                  Options options = {}, call_site from = call_site::current()) {
    return each(
        count_of(send, recv),
        [&](std::size_t i) -> operation {
          return troupe::all_reduce{part(send, i), part(recv, i), count, type, op.kind, op.factor};
        },
        std::move(options), from);
  }

  /// Reduces `send` of all ranks into \p recv of \p root.
  [[nodiscard]] Result reduce(operands send, operand recv, std::size_t count, dtype type, reduce_op op, rank root,
                              Options options = {}, call_site from = call_site::current()) {
    return each(
        count_of(send),
        [&](std::size_t i) -> operation {
          return troupe::reduce{part(send, i), at_root(recv, root, i), count, type, op.kind, root, op.factor};
        },
        std::move(options), from);
  }

  /// Copies \p send of \p root into `recv` of every rank.
  [[nodiscard]] Result broadcast(operand send, operands recv, std::size_t count, dtype type, rank root,
                                 Options options = {}, call_site from = call_site::current()) {
    return each(
        count_of(recv),
        [&](std::size_t i) -> operation {
          return troupe::broadcast{at_root(send, root, i), part(recv, i), count, type, root};
        },
        std::move(options), from);
  }

  /// Collects \p count elements of every rank into `recv` of every rank, in rank order.
  [[nodiscard]] Result all_gather(operands send, operands recv, std::size_t count, dtype type, Options options = {},
                                  call_site from = call_site::current()) {
    return each(
        count_of(send, recv),
        [&](std::size_t i) -> operation {
          return troupe::all_gather{part(send, i), part(recv, i), count, type};
        },
        std::move(options), from);
  }

  /// Like all_gather(), with parts of any size.
  [[nodiscard]] Result all_gather_v(operands send, operands recv, partition recv_parts, dtype type,
                                    Options options = {}, call_site from = call_site::current()) {
    return each(
        count_of(send, recv),
        [&](std::size_t i) -> operation {
          return troupe::all_gather_v{part(send, i), part(recv, i), recv_parts, type};
        },
        std::move(options), from);
  }

  /// Reduces `send` of all ranks, and leaves part r of \p count elements in `recv` of rank r.
  [[nodiscard]] Result reduce_scatter(operands send, operands recv, std::size_t count, dtype type, reduce_op op,
                                      Options options = {}, call_site from = call_site::current()) {
    return each(
        count_of(send, recv),
        [&](std::size_t i) -> operation {
          return troupe::reduce_scatter{part(send, i), part(recv, i), count, type, op.kind, op.factor};
        },
        std::move(options), from);
  }

  /// Like reduce_scatter(), with parts of any size.
  [[nodiscard]] Result reduce_scatter_v(operands send, operands recv, partition send_parts, dtype type, reduce_op op,
                                        Options options = {}, call_site from = call_site::current()) {
    return each(
        count_of(send, recv),
        [&](std::size_t i) -> operation {
          return troupe::reduce_scatter_v{part(send, i), part(recv, i), send_parts, type, op.kind, op.factor};
        },
        std::move(options), from);
  }

  /// Sends part q of `send`, \p count elements, to every rank q.
  [[nodiscard]] Result all_to_all(operands send, operands recv, std::size_t count, dtype type, Options options = {},
                                  call_site from = call_site::current()) {
    return each(
        count_of(send, recv),
        [&](std::size_t i) -> operation {
          return troupe::all_to_all{part(send, i), part(recv, i), count, type};
        },
        std::move(options), from);
  }

  /// Like all_to_all(), with parts of any size. Each rank has its own partitions.
  [[nodiscard]] Result all_to_all_v(operands send, operands recv, partitions send_parts, partitions recv_parts,
                                    dtype type, Options options = {}, call_site from = call_site::current()) {
    const std::size_t count = count_of(send, recv);
    if constexpr (is_for_all)
      if (send_parts.size() != count || recv_parts.size() != count)
        refuse(send_parts.size(), recv_parts.size(), "partitions");
    return each(
        count,
        [&](std::size_t i) -> operation {
          return troupe::all_to_all_v{part(send, i), part(recv, i), part(send_parts, i), part(recv_parts, i), type};
        },
        std::move(options), from);
  }

  /// Collects \p count elements of every rank into \p recv of \p root, in rank order.
  [[nodiscard]] Result gather(operands send, operand recv, std::size_t count, dtype type, rank root,
                              Options options = {}, call_site from = call_site::current()) {
    return each(
        count_of(send),
        [&](std::size_t i) -> operation {
          return troupe::gather{part(send, i), at_root(recv, root, i), count, type, root};
        },
        std::move(options), from);
  }

  /// Like gather(), with parts of any size.
  [[nodiscard]] Result gather_v(operands send, operand recv, partition recv_parts, dtype type, rank root,
                                Options options = {}, call_site from = call_site::current()) {
    return each(
        count_of(send),
        [&](std::size_t i) -> operation {
          return troupe::gather_v{part(send, i), at_root(recv, root, i), recv_parts, type, root};
        },
        std::move(options), from);
  }

  /// Distributes \p send of \p root: part r of \p count elements to `recv` of rank r.
  [[nodiscard]] Result scatter(operand send, operands recv, std::size_t count, dtype type, rank root,
                               Options options = {}, call_site from = call_site::current()) {
    return each(
        count_of(recv),
        [&](std::size_t i) -> operation {
          return troupe::scatter{at_root(send, root, i), part(recv, i), count, type, root};
        },
        std::move(options), from);
  }

  /// Like scatter(), with parts of any size.
  [[nodiscard]] Result scatter_v(operand send, operands recv, partition send_parts, dtype type, rank root,
                                 Options options = {}, call_site from = call_site::current()) {
    return each(
        count_of(recv),
        [&](std::size_t i) -> operation {
          return troupe::scatter_v{at_root(send, root, i), part(recv, i), send_parts, type, root};
        },
        std::move(options), from);
  }

  /// Completes when the stream of every rank has reached this operation.
  [[nodiscard]] Result barrier(Options options = {}, call_site from = call_site::current()) {
    std::size_t count = 1;
    if constexpr (is_for_all) count = handle().part_count();
    return each(
        count, [](std::size_t) -> operation { return troupe::barrier{}; }, std::move(options), from);
  }

private:
  static constexpr bool is_for_all = std::is_same_v<Arguments, arguments_of_all>;

  friend Handle;
  collective_methods() = default;

  [[nodiscard]] Handle& handle() noexcept { return static_cast<Handle&>(*this); }

  [[noreturn]] static void refuse(std::size_t send, std::size_t recv, const char* what) {
    throw exception{errc::invalid_argument, "there are " + std::to_string(send) + " send and " + std::to_string(recv) +
                                                " recv " + what + ": give one of each per rank"};
  }

  [[nodiscard]] static std::size_t count_of(const operands& one) noexcept {
    if constexpr (is_for_all)
      return one.size();
    else
      return 1;
  }
  [[nodiscard]] static std::size_t count_of(const operands& send, const operands& recv) {
    const std::size_t count = count_of(send);
    if (count_of(recv) != count) refuse(count, count_of(recv), "buffers");
    return count;
  }

  /// Returns the argument of the rank at place \p i. A rank's own arguments are moved out.
  template <class Argument>
  [[nodiscard]] static auto part(Argument& all, std::size_t i) {
    if constexpr (is_for_all) {
      return all[i];
    } else {
      static_cast<void>(i);
      return std::move(all);
    }
  }
  /// Returns \p one for the root and an empty operand for other ranks. A rank's own operand is passed on in any case.
  [[nodiscard]] static operand at_root(operand& one, rank root, std::size_t i) {
    if constexpr (is_for_all)
      if (root.value() != static_cast<int>(i)) return {};
    return std::move(one);
  }

  template <class Make>
  Result each(std::size_t count, const Make& make, Options options, call_site from) {
    if constexpr (is_for_all) {
      std::vector<operation> parts;
      parts.reserve(count);
      for (std::size_t i = 0; i < count; ++i) parts.push_back(make(i));
      return handle().perform(std::move(parts), std::move(options), from);
    } else {
      return handle().perform(make(0), std::move(options), from);
    }
  }
};

} // namespace troupe
