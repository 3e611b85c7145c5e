/// Keeps what a world has restored since its last fault.
#pragma once

#include <troupe/actors/world/executor/executor_context.hpp>
#include <troupe/actors/world/world_event.hpp>

#include <cstdint>
#include <memory>

namespace troupe {

/// The restored parts of one world: registrations, plans and sub-worlds. Announces the world's event when a part that
/// was under way is known, and no other one is: results that arrive in succession are reported by one event.
/// Threads: one at a time, as the executor.
class restored_parts {
public:
  explicit restored_parts(const executor_context& of) : of_{of} {}

  void clear() noexcept { all_.clear(); }
  void add(restored_part one) { all_.push_back(std::move(one)); }
  /// Adds parts before those that are known already, which are sub-worlds that have recovered earlier.
  void add_first(restoration parts);
  /// Replaces the part that was under way by its result. Ignores results of other epochs (EPO-1).
  void settle(const restored_report& one);
  /// Records that a sub-world has ended a recovery of its own, successfully or not.
  void sub_world_is_back(restored_part one);

  [[nodiscard]] std::uint64_t registration_count() const;
  /// Returns the parts; null if there are none.
  [[nodiscard]] std::shared_ptr<const restoration> latest() const;

private:
  void announce() const;

  const executor_context of_;
  restoration all_;
};

} // namespace troupe
