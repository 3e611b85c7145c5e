/// Builds one request that does several things in all ranks of a world by one launch (GRP-1).
#pragma once

#include <troupe/runtime/world.hpp>

#include <concepts>
#include <future>
#include <type_traits>
#include <vector>

namespace troupe {

/// What may be in a group: any operation except replays and other groups.
template <class Operation>
concept groupable = std::constructible_from<operation, Operation> && !std::same_as<Operation, replay> &&
                    !std::same_as<Operation, group>;

/// Parts are given in any mix; each rank's keep their order. Nothing is checked before ask(): then all or nothing.
///
/// Lifetime: holds the buffers of its parts. Threads: as any value.
class world_group {
public:
  /// For \p where, all of whose ranks live in this process.
  explicit world_group(world where);

  /// A part of rank \p self alone: a send, whose recv another rank gets.
  /// Errors: invalid_argument (not a rank of the world).
  template <groupable Operation>
  world_group& on(rank self, Operation what) {
    parts_of(self).emplace_back(std::move(what));
    return *this;
  }

  /// A part of every rank: \p make(rank) is called for each, in order, and returns an operation.
  template <std::invocable<rank> Make>
  requires groupable<std::invoke_result_t<Make, rank>> world_group& on_all(Make make) {
    for (const rank self : where_.local_ranks()) on(self, make(self));
    return *this;
  }

  /// A send and the recv that meets it: \p count elements from rank \p source's memory to rank \p destination's.
  world_group& transfer(rank source, operand from, rank destination, operand to, std::size_t count, dtype type,
                        int tag = 0);

  /// The parts of \p other behind these. Errors: invalid_argument (it is for another world).
  world_group& append(const world_group& other);

  /// One group for each rank, in rank order: what a world_request holds.
  [[nodiscard]] std::vector<operation> parts() const;
  /// One rank's, for asking it alone.
  [[nodiscard]] group of(rank self) const;

  /// Asks the world; one reply for the whole.
  [[nodiscard]] std::future<completion> ask(nanoseconds deadline = world_default_deadline);

private:
  [[nodiscard]] std::vector<operation>& parts_of(rank self);

  world where_;
  std::vector<group> groups_;
};

} // namespace troupe
