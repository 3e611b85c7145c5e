/// Builds one request that performs several operations on all ranks of a world in one launch (GRP-1).
#pragma once

#include <troupe/runtime/world.hpp>

#include <concepts>
#include <future>
#include <type_traits>
#include <vector>

namespace troupe {

/// The operations that may be in a group: any except replays and other groups.
template <class Operation>
concept groupable = std::constructible_from<operation, Operation> && !std::same_as<Operation, replay> &&
                    !std::same_as<Operation, group>;

/// The options of one collective in a group. The other options are those of the group: see world_group::ask().
struct part_options {
  per_rank<shared_event> ready{}; ///< See request_options::ready.
  bool staged = false;            ///< See request_options::staged.
};

/// Collects the parts of a group. Parts may be added in any mix; those of each rank keep their order. Collectives are
/// its methods (collective_methods): each adds a part for every rank. Operations are checked in ask(), which then
/// accepts or refuses the whole group.
///
/// Lifetime: holds the buffers of its parts. Threads: one at a time.
class world_group : public collective_methods<world_group, arguments_of_all, void, part_options> {
public:
  /// Creates an empty group for \p where.
  explicit world_group(world where);

  /// Adds a part for rank \p self alone, for example a send whose recv is on another rank. Errors: invalid_argument
  /// (not a rank of the world).
  template <groupable Operation>
  world_group& on(rank self, Operation what) {
    parts_of(self).emplace_back(std::move(what));
    return *this;
  }

  /// Adds a part for every rank of the world: calls \p make(rank) for each, in rank order, which returns an operation.
  template <std::invocable<rank> Make>
  requires groupable<std::invoke_result_t<Make, rank>> world_group& on_all(Make make) {
    for (int r = 0; r < size(); ++r) on(rank{r}, make(rank{r}));
    return *this;
  }

  /// Adds a send and its matching recv: \p count elements from rank \p source's memory to rank \p destination's.
  world_group& transfer(rank source, operand from, rank destination, operand to, std::size_t count, dtype type,
                        int tag = 0);

  /// Adds, for rank \p self alone, a send to \p peer: see troupe::send.
  world_group& send(rank self, operand memory, std::size_t count, dtype type, rank peer, int tag = 0);
  /// Adds, for rank \p self alone, a recv from \p peer: see troupe::recv.
  world_group& recv(rank self, operand memory, std::size_t count, dtype type, rank peer, int tag = 0);
  /// Adds, for rank \p self alone, a copy: see troupe::copy.
  world_group& copy(rank self, operand from, operand to);

  /// Adds the parts of \p other after those of this group. Errors: invalid_argument (it is for another world).
  world_group& append(const world_group& other);

  /// Returns one group per rank, in rank order, as a world_request holds them.
  [[nodiscard]] std::vector<operation> parts() const;
  /// Returns the group of rank \p self, for asking that rank alone.
  [[nodiscard]] group of(rank self) const;

  /// Asks the world. There is one reply for the whole group.
  [[nodiscard]] std::future<completion> ask(request_options options = {}, call_site from = call_site::current());

private:
  [[nodiscard]] std::vector<operation>& parts_of(rank self);

  friend class collective_methods<world_group, arguments_of_all, void, part_options>;
  void add(std::vector<operation> parts, const part_options& options);
  [[nodiscard]] int size() const noexcept { return static_cast<int>(groups_.size()); }

  world where_;
  std::vector<group> groups_;
};
extern template class collective_methods<world_group, arguments_of_all, void, part_options>;

} // namespace troupe
