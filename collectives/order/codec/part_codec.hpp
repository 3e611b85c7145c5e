/// Encodes one rank's part of a request for another process, which looks up the memory, plans and functions that the
/// part names.
#pragma once

#include <troupe/collectives/operation/exported_memory.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/operation/rank_function.hpp>
#include <troupe/collectives/operation/wire.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <memory>
#include <optional>

namespace troupe {

/// Limit of a message to another process of a world.
inline constexpr std::size_t longest_message_bytes = std::size_t{2} << 20U;

class plan_directory;

/// Lists the fields of a handle except the exporter and the kind of memory, for both directions.
template <class Wire, class Handle>
void memory_fields(Wire& wire, Handle&& one) {
  wire.field(one.session);
  wire.field(one.id);
  wire.field(one.offset_bytes);
  wire.field(one.size_bytes);
}

/// Writes the part of rank \p target. Operands are remote buffers; plans and functions are written by name. Errors:
/// invalid_argument (a buffer of this process, a ready event, a plan without a name, too many parts), unsupported.
[[nodiscard]] error write_part(wire_writer& out, const operation& what, rank target);
/// Reads the part of rank \p target. Its operands are remote buffers of that rank; plans and functions are placeholders
/// that have only the name. Returns nullopt if \p in has failed.
[[nodiscard]] std::optional<operation> read_part(wire_reader& in, rank target);

/// The memory, plans and functions of this process that requests of other processes can name. Each may be null.
struct local_names {
  std::shared_ptr<const exported_memory> memory{};
  std::shared_ptr<plan_directory> plans{};
  std::shared_ptr<const function_directory> functions{};
};
/// Replaces the remote buffers and the placeholders in \p what, a part of rank \p self, by the objects that they name
/// in this process. Returns why that is not possible: stale_buffer, invalid_argument (no such plan or function; a range
/// that exceeds the memory).
[[nodiscard]] error resolve_part(operation& what, const local_names& here, rank self);

} // namespace troupe
