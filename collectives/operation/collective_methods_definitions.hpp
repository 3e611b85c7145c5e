/// Defines the methods of collective_methods. Included by the source files of the handles, which instantiate them.
#pragma once

#include <troupe/collectives/operation/collective_methods.hpp>
#include <troupe/device/error.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

/// A method's argument that has a part for each rank. With a handle for one rank, it is only that rank's part, which is
/// moved out.
template <class Argument>
struct each_of {
  Argument& all;

  [[nodiscard]] auto part([[maybe_unused]] std::size_t i) const {
    if constexpr (requires { all[i]; })
      return all[i];
    else
      return std::move(all);
  }
  [[nodiscard]] std::size_t size() const noexcept {
    if constexpr (requires { all.size(); })
      return all.size();
    else
      return 1;
  }
};
template <class Argument>
each_of(Argument&) -> each_of<Argument>;

/// The operand of \p root. With a handle for all ranks, the other ranks get an empty operand. With a handle for one
/// rank, its operand is always passed on.
template <class Arguments>
struct root_operand {
  operand& one;
  rank root;

  [[nodiscard]] operand part(std::size_t i) const {
    if constexpr (std::is_same_v<Arguments, arguments_of_all>)
      if (root.value() != static_cast<int>(i)) return {};
    return std::move(one);
  }
};

[[noreturn]] inline void refuse_counts(std::size_t send, std::size_t recv, const char* what) {
  throw exception{errc::invalid_argument, "there are " + std::to_string(send) + " send and " + std::to_string(recv) +
                                              " recv " + what + ": give one of each per rank"};
}

/// Returns the number of ranks that have operands.
template <class Send, class Recv>
[[nodiscard]] std::size_t rank_count(const Send& send, const Recv& recv) {
  if constexpr (!requires { send.size(); }) {
    return recv.size();
  } else {
    if constexpr (requires { recv.size(); })
      if (send.size() != recv.size()) refuse_counts(send.size(), recv.size(), "buffers");
    return send.size();
  }
}

template <class Handle, class Arguments, class Result, class Options>
template <class Make>
Result collective_methods<Handle, Arguments, Result, Options>::each(std::size_t count, const Make& make,
                                                                    Options options, call_site from) {
  auto& handle = static_cast<Handle&>(*this);
  if constexpr (std::is_same_v<Arguments, arguments_of_all>) {
    std::vector<operation> parts;
    parts.reserve(count);
    for (std::size_t i = 0; i < count; ++i) parts.push_back(make(i));
    if constexpr (std::is_void_v<Result>)
      handle.add(std::move(parts), options);
    else
      return handle.ask(std::move(parts), std::move(options), from);
  } else {
    return handle.ask(make(0), std::move(options), from);
  }
}

template <class Handle, class Arguments, class Result, class Options>
template <class Operation, class Send, class Recv, class... Others>
Result collective_methods<Handle, Arguments, Result, Options>::request(Options& options, call_site from, Send send,
                                                                       Recv recv, const Others&... others) {
  const auto part = [](const auto& argument, std::size_t i) -> decltype(auto) {
    if constexpr (requires { argument.part(i); })
      return argument.part(i);
    else
      return (argument);
  };
  return each(
      rank_count(send, recv),
      [&](std::size_t i) -> operation {
        return Operation{send.part(i), recv.part(i), part(others, i)...};
      },
      std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::all_reduce(operands send, operands recv,
                                                                          std::size_t count, dtype type, reduce_op op,
                                                                          Options options, call_site from) {
  return request<troupe::all_reduce>(options, from, each_of{send}, each_of{recv}, count, type, op.kind, op.factor);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::reduce(operands send, operand recv, std::size_t count,
                                                                      dtype type, reduce_op op, rank root,
                                                                      Options options, call_site from) {
  return request<troupe::reduce>(options, from, each_of{send}, root_operand<Arguments>{recv, root}, count, type,
                                 op.kind, root, op.factor);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::broadcast(operand send, operands recv, std::size_t count,
                                                                         dtype type, rank root, Options options,
                                                                         call_site from) {
  return request<troupe::broadcast>(options, from, root_operand<Arguments>{send, root}, each_of{recv}, count, type,
                                    root);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::all_gather(operands send, operands recv,
                                                                          std::size_t count, dtype type,
                                                                          Options options, call_site from) {
  return request<troupe::all_gather>(options, from, each_of{send}, each_of{recv}, count, type);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::all_gather_v(operands send, operands recv,
                                                                            partition recv_parts, dtype type,
                                                                            Options options, call_site from) {
  return request<troupe::all_gather_v>(options, from, each_of{send}, each_of{recv}, recv_parts, type);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::reduce_scatter(operands send, operands recv,
                                                                              std::size_t count, dtype type,
                                                                              reduce_op op, Options options,
                                                                              call_site from) {
  return request<troupe::reduce_scatter>(options, from, each_of{send}, each_of{recv}, count, type, op.kind, op.factor);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::reduce_scatter_v(operands send, operands recv,
                                                                                partition send_parts, dtype type,
                                                                                reduce_op op, Options options,
                                                                                call_site from) {
  return request<troupe::reduce_scatter_v>(options, from, each_of{send}, each_of{recv}, send_parts, type, op.kind,
                                           op.factor);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::all_to_all(operands send, operands recv,
                                                                          std::size_t count, dtype type,
                                                                          Options options, call_site from) {
  return request<troupe::all_to_all>(options, from, each_of{send}, each_of{recv}, count, type);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::all_to_all_v(operands send, operands recv,
                                                                            partitions send_parts,
                                                                            partitions recv_parts, dtype type,
                                                                            Options options, call_site from) {
  const each_of sent{send_parts}, received{recv_parts};
  if (const std::size_t count = rank_count(each_of{send}, each_of{recv});
      sent.size() != count || received.size() != count)
    refuse_counts(sent.size(), received.size(), "partitions");
  return request<troupe::all_to_all_v>(options, from, each_of{send}, each_of{recv}, sent, received, type);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::gather(operands send, operand recv, std::size_t count,
                                                                      dtype type, rank root, Options options,
                                                                      call_site from) {
  return request<troupe::gather>(options, from, each_of{send}, root_operand<Arguments>{recv, root}, count, type, root);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::gather_v(operands send, operand recv,
                                                                        partition recv_parts, dtype type, rank root,
                                                                        Options options, call_site from) {
  return request<troupe::gather_v>(options, from, each_of{send}, root_operand<Arguments>{recv, root}, recv_parts, type,
                                   root);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::scatter(operand send, operands recv, std::size_t count,
                                                                       dtype type, rank root, Options options,
                                                                       call_site from) {
  return request<troupe::scatter>(options, from, root_operand<Arguments>{send, root}, each_of{recv}, count, type, root);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::scatter_v(operand send, operands recv,
                                                                         partition send_parts, dtype type, rank root,
                                                                         Options options, call_site from) {
  return request<troupe::scatter_v>(options, from, root_operand<Arguments>{send, root}, each_of{recv}, send_parts, type,
                                    root);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::barrier(Options options, call_site from) {
  return everywhere(troupe::barrier{}, std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::commit(std::uint64_t number, Options options,
                                                                      call_site from) {
  return everywhere(troupe::barrier{.commit = number}, std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::agree(
    agreement rule, contribution value, Options options,
    call_site from) requires(std::is_same_v<Arguments, arguments_of_one>) {
  return each(
      1,
      [&](std::size_t) {
        return troupe::agree{rule.rule, std::move(value.bytes), rule.root};
      },
      std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::agree(
    contribution value, Options options,
    call_site from) requires(!std::is_void_v<Result> && std::is_same_v<Arguments, arguments_of_all>) {
  return everywhere(troupe::agree{.value = std::move(value.bytes)}, std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::replay(
    const std::shared_ptr<captured_plan>& plan, Options options, call_site from) requires(!std::is_void_v<Result>) {
  return everywhere(troupe::replay{plan}, std::move(options), from);
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::transfer(
    rank source, operand from, rank destination, operand to, std::size_t count, dtype type, int tag, Options options,
    call_site site) requires(!std::is_void_v<Result> && std::is_same_v<Arguments, arguments_of_all>) {
  std::vector<operation> parts = transfer_parts(static_cast<int>(part_count()), source, std::move(from), destination,
                                                std::move(to), count, type, tag);
  return each(
      parts.size(), [&](std::size_t i) { return std::move(parts[i]); }, std::move(options), site);
}

template <class Handle, class Arguments, class Result, class Options>
std::size_t collective_methods<Handle, Arguments, Result, Options>::part_count() const {
  if constexpr (std::is_same_v<Arguments, arguments_of_all>)
    return static_cast<std::size_t>(static_cast<const Handle&>(*this).size());
  else
    return 1;
}

template <class Handle, class Arguments, class Result, class Options>
Result collective_methods<Handle, Arguments, Result, Options>::everywhere(const operation& what, Options options,
                                                                          call_site from) {
  return each(
      part_count(), [&](std::size_t) { return what; }, std::move(options), from);
}

} // namespace troupe
