/// Runs `troupe stress order` while the processes of its world are killed and stopped.
#pragma once

#include <troupe/program/stress/stress_order.hpp>

#include <filesystem>

namespace troupe::program {

/// Starts the processes, kills and stops them at random moments, and judges what all clients have received. Prints the
/// results. Returns the exit status.
[[nodiscard]] int run_through_losses(const order_options& options);
/// Runs the clients of one process, through all epochs of its world, until that ends. Returns the exit status.
[[nodiscard]] int run_member_through_losses(const order_options& options);
/// Judges the receipts in \p folder, of processes that were started separately. Their order may have been lost. Prints
/// the results. Returns the exit status.
[[nodiscard]] int judge_receipts(const std::filesystem::path& folder);

} // namespace troupe::program
