/// A communicator whose operations go through communicators of each node and of the nodes.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/hierarchy/hierarchy_plan.hpp>
#include <troupe/collectives/backend/hierarchy/hierarchy_scratch.hpp>

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// What the communicators of a world and of its successors have in common.
struct hierarchy_setup {
  node_map nodes;
  hierarchy_terms terms;
  std::shared_ptr<hierarchy_memories> memories;
  std::shared_ptr<backend> across{}; ///< Of the communicators across; none: they are split off flat.
};

/// Forms all ranks' own communicator, flat, and splits off it those of each node (inside) and those of ranks of
/// different nodes (across); or forms the latter by a backend of their own, with names that go through flat. What can
/// be composed is launched on these, all else on flat. What is split off this one, is split off flat; what it is shrunk
/// to has its own parts again.
///
/// Invariants: ORD-1 (which communicators an operation takes follows from what all ranks know); BUF-1 (scratch memory
/// is taken in init()). All launches are in one stream.
class hierarchical_communicator final : public communicator {
public:
  /// \p flat is not formed yet and its ranks are those of the setup's nodes.
  hierarchical_communicator(std::shared_ptr<communicator> flat, hierarchy_setup setup);

  void init() override;
  void launch(const operation& what, stream_ref stream) override;
  /// Collectives that are composed come first, each phase of them together where none uses scratch; then the rest
  /// together. Whether a rank takes part in sends and receives makes no difference to the collectives.
  void launch_together(std::span<const operation* const> all, stream_ref stream) override;
  /// Whatever ranks of one index have across, the others cannot tell.
  [[nodiscard]] bool can_be_captured() const noexcept override { return !setup_.across && flat_->can_be_captured(); }
  void check() override;
  void abort() override;
  void destroy() override;
  [[nodiscard]] std::shared_ptr<communicator> split(const split_seat& as) override { return flat_->split(as); }
  void split_none() override { flat_->split_none(); }
  [[nodiscard]] std::shared_ptr<communicator> shrink(const shrink_seat& as) override;
  [[nodiscard]] std::shared_ptr<communicator> revoke_and_split() override;
  [[nodiscard]] std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes) override {
    return flat_->allocate_region(size_bytes);
  }
  void register_region(registered_region& region) override { flat_->register_region(region); }
  std::size_t suspend() override;
  void resume() override;
  [[nodiscard]] library_words last_words() const override { return flat_->last_words(); }

private:
  using part = std::shared_ptr<communicator>;

  [[nodiscard]] part made_of_this(part flat, node_map nodes) const;
  void form_inside();
  void form_across();
  void form_part(part& which, bool takes_part, const split_seat& as);
  void form(part& which, part made);
  [[nodiscard]] std::vector<unique_id> exchanged_names(bool makes_one);
  [[nodiscard]] std::optional<hierarchy_plan> plan_of(const operation& what) const;
  struct composed;
  /// Those of one launch whose plans can run together, phase by phase.
  void enqueue(std::span<const composed> all, stream_ref stream);
  /// Those whose memory is the devices', in one order on all ranks, for each meets its own.
  [[nodiscard]] std::vector<part> parts_on_devices() const;
  /// Those of the parts that there are, flat last.
  [[nodiscard]] std::vector<part> all_parts() const;

  const part flat_;
  const hierarchy_setup setup_;
  std::vector<part> before_; ///< The failed predecessor's parts but flat, which init() ends.
  mutable std::mutex guard_;
  bool ended_ = false;
  part inside_; ///< None on a node of one rank.
  part across_; ///< None where this rank's node is stood for by another.
  std::unique_ptr<hierarchy_scratch> scratch_;
};

} // namespace troupe
