/// Defines the methods of collective_methods. Included by the source files of the handles, which instantiate them.
#pragma once

#include <troupe/collectives/operation/collective_methods.hpp>
#include <troupe/device/error.hpp>

#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

/// Selects the arguments of single ranks from those of a method.
template <class Arguments>
struct collective_arguments {
  using operands = typename Arguments::operands;

  static constexpr bool is_for_all = std::is_same_v<Arguments, arguments_of_all>;

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
};

template <class Handle, class Arguments, class Result, class Options>
template <class Make>
Result collective_methods<Handle, Arguments, Result, Options>::each(std::size_t count, const Make& make,
                                                                    Options options, call_site from) {
  auto& handle = static_cast<Handle&>(*this);
  if constexpr (collective_arguments<Arguments>::is_for_all) {
    std::vector<operation> parts;
    parts.reserve(count);
    for (std::size_t i = 0; i < count; ++i) parts.push_back(make(i));
    return handle.perform(std::move(parts), std::move(options), from);
  } else {
    return handle.perform(make(0), std::move(options), from);
  }
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::all_reduce(operands send, operands recv,
                                                                          std::size_t count, dtype type, reduce_op op,
                                                                          Options options, call_site from) {
  using of = collective_arguments<Arguments>;
  return each(
      of::count_of(send, recv),
      [&](std::size_t i) -> operation {
        return troupe::all_reduce{of::part(send, i), of::part(recv, i), count, type, op.kind, op.factor};
      },
      std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::reduce(operands send, operand recv, std::size_t count,
                                                                      dtype type, reduce_op op, rank root,
                                                                      Options options, call_site from) {
  using of = collective_arguments<Arguments>;
  return each(
      of::count_of(send),
      [&](std::size_t i) -> operation {
        return troupe::reduce{of::part(send, i), of::at_root(recv, root, i), count, type, op.kind, root, op.factor};
      },
      std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::broadcast(operand send, operands recv, std::size_t count,
                                                                         dtype type, rank root, Options options,
                                                                         call_site from) {
  using of = collective_arguments<Arguments>;
  return each(
      of::count_of(recv),
      [&](std::size_t i) -> operation {
        return troupe::broadcast{of::at_root(send, root, i), of::part(recv, i), count, type, root};
      },
      std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::all_gather(operands send, operands recv,
                                                                          std::size_t count, dtype type,
                                                                          Options options, call_site from) {
  using of = collective_arguments<Arguments>;
  return each(
      of::count_of(send, recv),
      [&](std::size_t i) -> operation {
        return troupe::all_gather{of::part(send, i), of::part(recv, i), count, type};
      },
      std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::all_gather_v(operands send, operands recv,
                                                                            partition recv_parts, dtype type,
                                                                            Options options, call_site from) {
  using of = collective_arguments<Arguments>;
  return each(
      of::count_of(send, recv),
      [&](std::size_t i) -> operation {
        return troupe::all_gather_v{of::part(send, i), of::part(recv, i), recv_parts, type};
      },
      std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::reduce_scatter(operands send, operands recv,
                                                                              std::size_t count, dtype type,
                                                                              reduce_op op, Options options,
                                                                              call_site from) {
  using of = collective_arguments<Arguments>;
  return each(
      of::count_of(send, recv),
      [&](std::size_t i) -> operation {
        return troupe::reduce_scatter{of::part(send, i), of::part(recv, i), count, type, op.kind, op.factor};
      },
      std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::reduce_scatter_v(operands send, operands recv,
                                                                                partition send_parts, dtype type,
                                                                                reduce_op op, Options options,
                                                                                call_site from) {
  using of = collective_arguments<Arguments>;
  return each(
      of::count_of(send, recv),
      [&](std::size_t i) -> operation {
        return troupe::reduce_scatter_v{of::part(send, i), of::part(recv, i), send_parts, type, op.kind, op.factor};
      },
      std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::all_to_all(operands send, operands recv,
                                                                          std::size_t count, dtype type,
                                                                          Options options, call_site from) {
  using of = collective_arguments<Arguments>;
  return each(
      of::count_of(send, recv),
      [&](std::size_t i) -> operation {
        return troupe::all_to_all{of::part(send, i), of::part(recv, i), count, type};
      },
      std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::all_to_all_v(operands send, operands recv,
                                                                            partitions send_parts,
                                                                            partitions recv_parts, dtype type,
                                                                            Options options, call_site from) {
  using of = collective_arguments<Arguments>;
  const std::size_t count = of::count_of(send, recv);
  if constexpr (of::is_for_all)
    if (send_parts.size() != count || recv_parts.size() != count)
      of::refuse(send_parts.size(), recv_parts.size(), "partitions");
  return each(
      count,
      [&](std::size_t i) -> operation {
        return troupe::all_to_all_v{of::part(send, i), of::part(recv, i), of::part(send_parts, i),
                                    of::part(recv_parts, i), type};
      },
      std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::gather(operands send, operand recv, std::size_t count,
                                                                      dtype type, rank root, Options options,
                                                                      call_site from) {
  using of = collective_arguments<Arguments>;
  return each(
      of::count_of(send),
      [&](std::size_t i) -> operation {
        return troupe::gather{of::part(send, i), of::at_root(recv, root, i), count, type, root};
      },
      std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::gather_v(operands send, operand recv,
                                                                        partition recv_parts, dtype type, rank root,
                                                                        Options options, call_site from) {
  using of = collective_arguments<Arguments>;
  return each(
      of::count_of(send),
      [&](std::size_t i) -> operation {
        return troupe::gather_v{of::part(send, i), of::at_root(recv, root, i), recv_parts, type, root};
      },
      std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::scatter(operand send, operands recv, std::size_t count,
                                                                       dtype type, rank root, Options options,
                                                                       call_site from) {
  using of = collective_arguments<Arguments>;
  return each(
      of::count_of(recv),
      [&](std::size_t i) -> operation {
        return troupe::scatter{of::at_root(send, root, i), of::part(recv, i), count, type, root};
      },
      std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::scatter_v(operand send, operands recv,
                                                                         partition send_parts, dtype type, rank root,
                                                                         Options options, call_site from) {
  using of = collective_arguments<Arguments>;
  return each(
      of::count_of(recv),
      [&](std::size_t i) -> operation {
        return troupe::scatter_v{of::at_root(send, root, i), of::part(recv, i), send_parts, type, root};
      },
      std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::barrier(Options options, call_site from) {
  return meet({}, std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::commit(std::uint64_t number, Options options,
                                                                      call_site from) {
  return meet({.commit = number}, std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::meet(troupe::barrier what, Options options,
                                                                    call_site from) {
  using of = collective_arguments<Arguments>;
  std::size_t count = 1;
  if constexpr (of::is_for_all) count = static_cast<Handle&>(*this).part_count();
  return each(
      count, [&](std::size_t) -> operation { return what; }, std::move(options), from);
}

} // namespace troupe
