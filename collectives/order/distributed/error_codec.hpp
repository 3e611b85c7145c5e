/// Failures and reports of who is missing, as bytes.
#pragma once

#include <troupe/collectives/order/absence_report.hpp>
#include <troupe/collectives/order/distributed/wire.hpp>
#include <troupe/device/error.hpp>

#include <cstddef>
#include <memory>

namespace troupe {

inline constexpr std::size_t longest_wire_text_bytes = 4096; ///< What is longer is cut.
/// A report that would take more is left out: the error's text names the first of those who are missing.
inline constexpr std::size_t longest_wire_report_bytes = std::size_t{256} << 10U;

/// All but ticket, epoch and undefined, which the asker's process knows, and the report, which many may share.
void write_error(wire_writer& out, const error& why);
/// Never errc::none while \p in is ok.
[[nodiscard]] error read_error(wire_reader& in);

/// Returns whether it was short enough to be written.
[[nodiscard]] bool write_report(wire_writer& out, const absence_report& report);
/// For a world of \p world_size ranks: null where \p in has failed. A lane of which this process has no name, and has
/// no room for it, is the default one there.
[[nodiscard]] std::shared_ptr<absence_report> read_report(wire_reader& in, int world_size);

} // namespace troupe
