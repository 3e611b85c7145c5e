#include "operation.hpp"

#include <troupe/collectives/operation/captured_plan.hpp>

#include <array>
#include <limits>
#include <variant>

namespace troupe::c {
namespace {

static_assert(TROUPE_AGREE + 1 == std::variant_size_v<operation::variant>);
static_assert(std::is_same_v<std::variant_alternative_t<TROUPE_ALL_TO_ALL_V, operation::variant>, all_to_all_v>);
static_assert(std::is_same_v<std::variant_alternative_t<TROUPE_SEND, operation::variant>, send>);
static_assert(std::is_same_v<std::variant_alternative_t<TROUPE_BARRIER, operation::variant>, barrier>);
static_assert(std::is_same_v<std::variant_alternative_t<TROUPE_CALL, operation::variant>, call>);
static_assert(TROUPE_AGREE_GATHER_ALL == static_cast<int>(agreement_rule::gather_all));

operand operand_of(const troupe_operand& from) {
  return {from.memory != nullptr ? from.memory->of : buffer{}, from.ready != nullptr ? from.ready->of : shared_event{}};
}

reduction reduction_of(const troupe_operation& from) {
  return enum_of(from.reduction, reduction::pre_mul_sum, "reduction");
}

factor factor_of(const troupe_operation& from, dtype type) {
  factor made;
  if (from.factor_memory != nullptr) made.memory = from.factor_memory->of;
  if (from.factor != nullptr) std::memcpy(made.value.data(), from.factor, size_bytes(type));
  return made;
}

partition partition_of(const std::size_t* counts, const std::size_t* displacements, std::size_t count,
                       std::string_view what) {
  if (count == 0) return {};
  check_count(count, what);
  static_cast<void>(need(counts, what));
  std::vector<std::size_t> sizes{counts, counts + count};
  if (displacements == nullptr) return partition::packed(std::move(sizes));
  return {std::move(sizes), {displacements, displacements + count}};
}

partition send_parts(const troupe_operation& from) {
  return partition_of(from.send_counts, from.send_displacements, from.part_count, "send_counts");
}
partition recv_parts(const troupe_operation& from) {
  return partition_of(from.recv_counts, from.recv_displacements, from.part_count, "recv_counts");
}

replay replay_of(const troupe_operation& from) {
  if (from.plan != nullptr) return {from.plan->of};
  if (from.name == nullptr) throw invalid("a replay names no plan: set plan, or in a request to all ranks name");
  return {std::make_shared<captured_plan>(std::string{from.name})};
}

std::vector<std::byte> bytes_of(const troupe_operation& from) {
  if (from.value_bytes == 0) return {};
  const auto* const bytes = static_cast<const std::byte*>(from.values);
  return {&need(bytes, "values"), bytes + from.value_bytes};
}

call call_of(const troupe_operation& from) {
  call made;
  if (from.function != nullptr)
    made.function = from.function->of;
  else if (from.name != nullptr)
    made.function = std::make_shared<const rank_function>(std::string{from.name});
  else
    throw invalid("a call names no function: set function, or in a request to all ranks name");
  check_count(from.argument_count, "arguments", most_call_arguments);
  check_count(from.value_bytes, "value_bytes", most_call_bytes);
  for (std::size_t i = 0; i < from.argument_count; ++i)
    made.arguments.push_back(operand_of((&need(from.arguments, "arguments"))[i]));
  made.values = bytes_of(from);
  return made;
}

agree agree_of(const troupe_operation& from) {
  check_count(from.value_bytes, "value_bytes", most_contributed_bytes);
  return {.rule = enum_of(from.rule, agreement_rule::gather_all, "agreement rule"),
          .value = bytes_of(from),
          .root = rank{from.root}};
}

} // namespace

operation make_operation(const troupe_operation& from) {
  if (from.kind < 0 || from.kind > TROUPE_AGREE)
    throw invalid(std::to_string(from.kind) + " is not a kind of operation: it must be from 0 to " +
                  std::to_string(TROUPE_AGREE));
  const dtype type = enum_of(from.type, dtype::f8e5m2, "dtype");
  const operand send = operand_of(from.send), recv = operand_of(from.recv);
  const rank root{from.root}, peer{from.peer};
  const bool staged = from.staged != 0;
  const std::size_t count = from.count;
  switch (from.kind) {
    case TROUPE_ALL_REDUCE:
      return all_reduce{send, recv, count, type, reduction_of(from), factor_of(from, type), staged};
    case TROUPE_REDUCE: return reduce{send, recv, count, type, reduction_of(from), root, factor_of(from, type), staged};
    case TROUPE_BROADCAST: return broadcast{send, recv, count, type, root, staged};
    case TROUPE_ALL_GATHER: return all_gather{send, recv, count, type, staged};
    case TROUPE_REDUCE_SCATTER:
      return reduce_scatter{send, recv, count, type, reduction_of(from), factor_of(from, type), staged};
    case TROUPE_ALL_TO_ALL: return all_to_all{send, recv, count, type, staged};
    case TROUPE_GATHER: return gather{send, recv, count, type, root, staged};
    case TROUPE_SCATTER: return scatter{send, recv, count, type, root, staged};
    case TROUPE_ALL_GATHER_V: return all_gather_v{send, recv, recv_parts(from), type, staged};
    case TROUPE_REDUCE_SCATTER_V:
      return reduce_scatter_v{send, recv, send_parts(from), type, reduction_of(from), factor_of(from, type), staged};
    case TROUPE_ALL_TO_ALL_V: return all_to_all_v{send, recv, send_parts(from), recv_parts(from), type};
    case TROUPE_GATHER_V: return gather_v{send, recv, recv_parts(from), type, root, staged};
    case TROUPE_SCATTER_V: return scatter_v{send, recv, send_parts(from), type, root, staged};
    case TROUPE_SEND: return troupe::send{send, count, type, peer, from.tag};
    case TROUPE_RECV: return troupe::recv{recv, count, type, peer, from.tag};
    case TROUPE_BARRIER: return barrier{.commit = from.is_commit != 0 ? std::optional{from.commit} : std::nullopt};
    case TROUPE_COPY: return copy{send, recv};
    case TROUPE_GROUP: return group{make_operations(from.parts, from.group_size)};
    case TROUPE_REPLAY: return replay_of(from);
    case TROUPE_CALL: return call_of(from);
    default: return agree_of(from);
  }
}

std::vector<operation> make_operations(const troupe_operation* first, std::size_t count) {
  std::vector<operation> all;
  for (const troupe_operation& one : read_structs(first, count, "operation")) all.push_back(make_operation(one));
  return all;
}

std::vector<operation> make_each(const troupe_operation* what, const troupe_buffer* const* send,
                                 const troupe_buffer* const* recv, std::size_t count) {
  troupe_operation one = read_struct(what, "what");
  check_count(count, "ranks");
  std::vector<operation> all;
  for (std::size_t i = 0; i < count; ++i) {
    if (send != nullptr) one.send.memory = send[i];
    if (recv != nullptr) one.recv.memory = recv[i];
    all.push_back(make_operation(one));
  }
  return all;
}

plan_steps make_steps(const troupe_operation* first, std::size_t count, std::size_t ranks) {
  if (ranks == 0 || count > std::numeric_limits<std::size_t>::max() / ranks)
    throw invalid(std::to_string(count) + " steps of " + std::to_string(ranks) +
                  " ranks: give at least one rank, and an array of both");
  std::vector<operation> parts = make_operations(first, count * ranks);
  plan_steps steps(count);
  for (std::size_t i = 0; i < parts.size(); ++i) steps[i / ranks].push_back(std::move(parts[i]));
  return steps;
}

} // namespace troupe::c
