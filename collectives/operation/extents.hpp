/// Which memory an operation reads and writes, derived in one place for all operations: what validation checks.
#pragma once

#include <troupe/collectives/operation/operation.hpp>

#include <cstddef>
#include <memory_resource>
#include <optional>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace troupe {

/// One range of elements that one rank reads or writes.
struct extent {
  const buffer* memory = nullptr;
  std::string_view role; ///< The argument's name: "send".
  std::size_t first = 0; ///< In elements, from the buffer's front.
  std::size_t count = 0;
  dtype type{};
  bool written = false;
};

/// The memory of one operation of one rank.
struct footprint {
  std::pmr::vector<extent> extents;
  /// Where the send range begins after the recv range, in elements, when the operation is in place; nothing where it
  /// cannot be.
  std::optional<std::ptrdiff_t> in_place{};
};

/// Of rank \p self among \p world_size. Products and sums of sizes have been checked to fit (see validate()). A group
/// has none of its own.
[[nodiscard]] footprint footprint_of(const operation& what, rank self, int world_size,
                                     std::pmr::memory_resource* from = std::pmr::get_default_resource());

/// Whom the extents of a footprint are told to, one by one: a reference to any callable, which outlives the call.
class extent_visitor {
public:
  template <class Visit>
  requires(!std::is_same_v<Visit, extent_visitor>) extent_visitor(Visit& visit)
  noexcept // NOLINT(google-explicit-constructor): stands for its callable
    : callable_{&visit}, call_{[](void* callable, const extent& one) { (*static_cast<Visit*>(callable))(one); }} {}

  void operator()(const extent& one) const { call_(callable_, one); }

private:
  void* callable_;
  void (*call_)(void* callable, const extent& one);
};

/// The same extents in the same order, without the memory that a footprint takes. Of a group, those of its parts.
void visit_extents(const operation& what, rank self, int world_size, extent_visitor visit);

/// Every buffer argument of one of troupe::operation's alternatives, as visit_operands() has it. Copies nothing.
template <class T, class Visit>
void visit_operands_of(const T& one, Visit& visit) {
  if constexpr (requires { one.send; }) visit(one.send, std::string_view{"send"});
  if constexpr (requires { one.recv; }) visit(one.recv, std::string_view{"recv"});
  if constexpr (requires { one.memory; })
    visit(one.memory, std::string_view{std::is_same_v<T, send> ? "send" : "recv"});
  if constexpr (requires { one.from; }) visit(one.from, std::string_view{"source"});
  if constexpr (requires { one.to; }) visit(one.to, std::string_view{"destination"});
  if constexpr (requires { one.parts; })
    for (const operation& part : one.parts) std::visit([&](const auto& each) { visit_operands_of(each, visit); }, part);
}

/// Every buffer argument with its role, used by this rank or not: \p visit(const operand&, std::string_view role).
template <class Visit>
void visit_operands(const operation& what, Visit&& visit) {
  std::visit([&](const auto& one) { visit_operands_of(one, visit); }, what);
}

} // namespace troupe
