/// A communicator that runs operations on sub-communicators: one inside each node, and others across nodes.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/hierarchy/hierarchy_plan.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace troupe {

/// One device's scratch memory, shared by its communicators. A new world may form beside one that hangs, and growing a
/// pool may then wait for the device (BUF-1). Therefore it has room for two communicators from the start. Threads: safe
/// from any.
class hierarchy_memory {
public:
  /// May wait for the device. Errors: out_of_memory.
  hierarchy_memory(const std::shared_ptr<device>& where, std::size_t size_bytes);

  /// Errors: out_of_memory.
  [[nodiscard]] buffer take() { return take(size_bytes_); }
  [[nodiscard]] buffer take(std::size_t size_bytes) { return pool_->allocate(size_bytes); }
  /// Returns \p scratch for reuse after \p last_use is reached. No thread waits.
  void give_back(const buffer& scratch, const event& last_use);

private:
  std::size_t size_bytes_;
  std::shared_ptr<memory_pool> pool_;
  std::mutex mutex_;
  stream side_; ///< Contains only waits for the last uses of returned scratch.
};

/// The scratch memory of each device, created on first use and kept. Threads: safe from any.
class hierarchy_memories {
public:
  explicit hierarchy_memories(std::size_t size_bytes) noexcept : size_bytes_{size_bytes} {}

  /// Returns the scratch memory of \p where. The first call may wait for the device. Errors: out_of_memory.
  [[nodiscard]] std::shared_ptr<hierarchy_memory> of(const std::shared_ptr<device>& where);

private:
  std::size_t size_bytes_;
  std::mutex mutex_;
  std::map<std::shared_ptr<device>, std::shared_ptr<hierarchy_memory>> all_;
};

/// One communicator's scratch. It may be destroyed while operations, hung or not, still use it.
class hierarchy_scratch {
public:
  hierarchy_scratch(std::shared_ptr<hierarchy_memory> home, const std::shared_ptr<device>& where)
    : home_{std::move(home)}, memory_{home_->take()}, last_use_{where} {}
  hierarchy_scratch(const hierarchy_scratch&) = delete;
  hierarchy_scratch& operator=(const hierarchy_scratch&) = delete;
  ~hierarchy_scratch();

  [[nodiscard]] const buffer& memory() const noexcept { return memory_; }
  /// Notes that work which uses the scratch has just been launched in \p stream. All such work is in the same stream.
  /// Captured work is not noted, because graphs are destroyed before their communicator.
  void used_in(stream_ref stream);

private:
  std::shared_ptr<hierarchy_memory> home_;
  buffer memory_;
  event last_use_;
};

/// Settings shared by the communicators of a world and their successors.
struct hierarchy_setup {
  node_map nodes;
  hierarchy_terms terms;
  std::shared_ptr<hierarchy_memories> memories;
  std::shared_ptr<backend> across{}; ///< Backend of the communicators across nodes. Null: they are split off flat.
};

/// Forms the communicator of all ranks (flat). From it splits the communicators of each node (inside) and of ranks of
/// different nodes (across). The latter may instead be formed by another backend, with ids exchanged through flat.
/// Operations that can be composed are launched on these, all others on flat. A communicator split off this one is
/// split off flat. After a shrink the new communicator has inside and across parts again.
///
/// Invariants: ORD-1 (the choice of communicators for an operation depends only on facts that all ranks know); BUF-1
/// (scratch memory is taken in init()). All launches are in one stream.
class hierarchical_communicator final : public communicator {
public:
  /// \p flat is not yet formed, and its ranks are those of the setup's nodes.
  hierarchical_communicator(std::shared_ptr<communicator> flat, hierarchy_setup setup);

  void init() override;
  void warm_up(stream_ref stream) override { flat_->warm_up(stream); }
  void launch(const operation& what, stream_ref stream) override;
  /// Launches composed collectives first: consecutive ones that use no scratch run phase by phase together. Then
  /// launches the rest together. Sends and receives of a rank do not affect the collectives.
  void launch_together(std::span<const operation* const> all, stream_ref stream) override;
  /// Objects if another backend forms the across communicators. The answer must be the same at all ranks, but a rank
  /// cannot know whether launches may be captured on across communicators to which it does not belong.
  [[nodiscard]] std::string_view capture_objection() const noexcept override {
    return setup_.across ? objection_of_host_memory : flat_->capture_objection();
  }
  void check() override;
  void abort() override;
  void destroy() override;
  [[nodiscard]] std::shared_ptr<communicator> split(const split_spec& as) override { return flat_->split(as); }
  void split_none() override { flat_->split_none(); }
  [[nodiscard]] std::shared_ptr<communicator> shrink(const shrink_spec& as) override;
  [[nodiscard]] std::shared_ptr<communicator> revoke_and_split() override;
  [[nodiscard]] std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes) override {
    return flat_->allocate_region(size_bytes);
  }
  void register_region(registered_region& region) override { flat_->register_region(region); }
  std::size_t suspend() override;
  void resume() override;
  [[nodiscard]] library_diagnostics last_diagnostics() const override { return flat_->last_diagnostics(); }

private:
  using part = std::shared_ptr<communicator>;

  [[nodiscard]] part made_of_this(part flat, node_map nodes) const;
  void form_inside();
  void form_across();
  void form_part(part& which, bool takes_part, const split_spec& as);
  void form(part& which, const part& made);
  [[nodiscard]] std::vector<unique_id> exchanged_names(bool makes_one);
  [[nodiscard]] std::optional<hierarchy_plan> plan_of(const operation& what) const;
  struct composed;
  /// Launches operations whose plans can run together, phase by phase.
  void enqueue(std::span<const composed> all, stream_ref stream);
  /// Returns the parts that work on device memory, in the same order on all ranks, because suspend() and resume()
  /// synchronize the ranks of each part.
  [[nodiscard]] std::vector<part> parts_on_devices() const;
  /// Returns the parts that exist, flat last.
  [[nodiscard]] std::vector<part> all_parts() const;

  const part flat_;
  const hierarchy_setup setup_;
  std::vector<part> before_; ///< The failed predecessor's parts except flat; init() aborts them.
  mutable std::mutex mutex_;
  bool ended_ = false;
  part inside_; ///< Null if this rank's node has only one rank.
  part across_; ///< Null if another rank of this rank's node communicates across nodes.
  std::unique_ptr<hierarchy_scratch> scratch_;
};

} // namespace troupe
