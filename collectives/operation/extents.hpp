/// Derives the memory ranges that each operation reads and writes. Validation checks these ranges, and an error lists
/// those that are undefined.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace troupe {

/// A range of elements that one rank reads or writes.
struct extent {
  const buffer* memory = nullptr;
  std::string_view role; ///< The argument's name: "send".
  std::size_t first = 0; ///< In elements, from the buffer's front.
  std::size_t count = 0;
  dtype type{};
  bool written = false;
};

/// The memory that one rank accesses in one operation.
struct footprint {
  std::pmr::vector<extent> extents;
  /// The offset of the send range from the start of the recv range, in elements, if the operation is in place. Empty
  /// for operations that have no in-place form.
  std::optional<std::ptrdiff_t> in_place{};
};

/// Returns the footprint of \p what on rank \p self of \p world_size ranks. Precondition: validate() has checked that
/// the products and sums of sizes do not overflow. The footprint of a group is empty.
[[nodiscard]] footprint footprint_of(const operation& what, rank self, int world_size,
                                     std::pmr::memory_resource* from = std::pmr::get_default_resource());

/// Receives the extents of a footprint one by one. Holds a reference to a callable, which must outlive the call.
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

/// Visits the extents of footprint_of() in the same order, without allocating a footprint. For a group, visits the
/// extents of its parts.
void visit_extents(const operation& what, rank self, int world_size, extent_visitor visit);

/// Returns the ranges that are undefined if it is unknown whether \p what has run on rank \p self, which works on
/// device \p where (ONE-2): the exact range of each buffer that it writes, including host memory and results in place.
/// For a group, the ranges of all parts. For a replay, the memory on \p where and on the host that its requests write
/// or that was passed to keep() during the capture, because the client's own kernels may write it. Returns null if the
/// list cannot be allocated.
[[nodiscard]] std::shared_ptr<const undefined_buffers> undefined_ranges(const operation& what, rank self,
                                                                        int world_size, device_id where) noexcept;

/// Visits every buffer argument of one alternative of troupe::operation: the implementation of visit_operands(). Copies
/// nothing.
template <class T, class Visit>
void visit_operands_of(const T& one, Visit& visit) {
  if constexpr (requires { one.send; }) visit(one.send, std::string_view{"send"});
  if constexpr (requires { one.recv; }) visit(one.recv, std::string_view{"recv"});
  if constexpr (requires { one.memory; })
    visit(one.memory, std::string_view{std::is_same_v<T, send> ? "send" : "recv"});
  if constexpr (requires { one.from; }) visit(one.from, std::string_view{"source"});
  if constexpr (requires { one.to; }) visit(one.to, std::string_view{"destination"});
  if constexpr (requires { one.arguments; })
    for (const operand& each : one.arguments) visit(each, std::string_view{"argument"});
  if constexpr (requires { one.parts; })
    for (const operation& part : one.parts) std::visit([&](const auto& each) { visit_operands_of(each, visit); }, part);
}

/// Visits every buffer argument with its role, whether this rank uses it or not. Calls \p visit(const operand&,
/// std::string_view role).
template <class Visit>
void visit_operands(const operation& what, Visit&& visit) {
  std::visit([&](const auto& one) { visit_operands_of(one, visit); }, what);
}

/// Returns the sum of the sizes of the request's buffers, in bytes. Whole buffers count, also their unused parts. A
/// buffer that is named twice in a row (in place) counts once.
[[nodiscard]] std::size_t held_bytes(const operation& what);

/// Returns the payload of \p what in bytes. For an operation with a single count, it is the part of one rank. For a
/// v-form, it is the sum of all parts that the rank sends, or receives if each rank gives the counts of all ranks. For
/// a group, it is the sum over its parts. A barrier and a replay have no payload.
[[nodiscard]] std::size_t payload_of(const operation& what) noexcept;

} // namespace troupe
