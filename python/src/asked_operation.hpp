/// An operation of one rank as Python describes it, with the streams that its operands come from.
#pragma once

#include "operand.hpp"

#include <troupe/collectives/operation/operation.hpp>

#include <pybind11/pybind11.h>

#include <string>
#include <vector>

namespace troupe::python {

struct asked_operation {
  operation what = barrier{};
  stream_source read{};                 ///< Of the operand that is read, or of both.
  stream_source written{};              ///< Of the one that is written, where it is another.
  std::vector<asked_operation> parts{}; ///< Of a group.
  bool is_virtual = false;              ///< Of a virtual world.

  [[nodiscard]] bool has_streams() const noexcept;
  /// As it is sent, with events behind what is in the streams now. \p first: those of the import will do.
  /// With the GIL. Errors: those of recording an event.
  [[nodiscard]] operation ready_now(bool first) const;
};

/// \p kind as the C++ operation is called; \p parameters: op, factor, root, peer, tag, staged, send_parts, recv_parts
/// (pairs of counts and displacements). Counts follow from the operands, in a world of \p size ranks. Errors:
/// invalid_argument.
[[nodiscard]] asked_operation make_operation(const std::string& kind, const given_operand* first,
                                             const given_operand* second, std::size_t size,
                                             const pybind11::dict& parameters);

void bind_operations(pybind11::module_& module);

} // namespace troupe::python
