/// Makes the value of an agree from the ranks' contributions: pure functions, called where the order is decided.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/completion/reply/outcome.hpp>
#include <troupe/device/error.hpp>

#include <cstddef>
#include <span>
#include <variant>

namespace troupe {

/// Returns whether all ranks must contribute the same number of bytes.
[[nodiscard]] bool compares_sizes(agreement_rule rule) noexcept;
/// Returns the number of bytes of \p one if all ranks must contribute the same number, else 0.
[[nodiscard]] std::size_t compared_bytes(const agree& one) noexcept;

/// Returns errc::none, or invalid_argument if a rank cannot contribute this.
[[nodiscard]] error objection_to(const agree& one);

/// Returns what enters the order in place of \p one if that is refused: by the same rule, if it exists, and without a
/// contribution.
[[nodiscard]] agree stand_in_for(const agree& one);

/// Returns the error for an agree where clients order the requests (ordering::caller).
[[nodiscard]] error no_agreed_order();
/// Returns the error for an agree that is asked for in two steps (ask_overlapped()).
[[nodiscard]] error no_launch_of_agree();

/// Returns the value of the contributions \p all of the ranks, in rank order, which agree (check_agreement()) and to
/// which objection_to() has none. Its epoch and position are not set. Errors: invalid_argument (the value has more than
/// most_agreed_bytes).
[[nodiscard]] std::variant<agreed_value, error> agreed_value_of(std::span<const agree* const> all);

} // namespace troupe
