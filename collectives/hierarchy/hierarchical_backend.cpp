#include <troupe/collectives/hierarchy/hierarchical_backend.hpp>
#include <troupe/collectives/hierarchy/hierarchical_communicator.hpp>

#include <string>
#include <utility>

namespace troupe {

namespace {

class hierarchical_backend final : public backend {
public:
  hierarchical_backend(std::shared_ptr<backend> flat, hierarchy_setup setup)
    : flat_{std::move(flat)}, setup_{std::move(setup)} {}

  [[nodiscard]] std::string_view name() const noexcept override { return flat_->name(); }
  [[nodiscard]] std::string version() const override {
    return setup_.across ? flat_->version() + "; between nodes " + setup_.across->version() : flat_->version();
  }
  /// What either backend excludes is excluded, since any operation may be composed.
  [[nodiscard]] capabilities examine(std::span<const std::shared_ptr<device>> devices) override {
    capabilities found = flat_->examine(devices);
    if (!setup_.across) return found;
    for (exclusion& one : setup_.across->examine(devices).exclusions) found.exclusions.push_back(std::move(one));
    return found;
  }
  [[nodiscard]] unique_id make_unique_id() override { return flat_->make_unique_id(); }

  [[nodiscard]] std::shared_ptr<communicator> create(const unique_id& id, rank self, int world_size,
                                                     std::shared_ptr<device> where) override {
    auto flat = flat_->create(id, self, world_size, std::move(where));
    if (static_cast<std::size_t>(world_size) != setup_.nodes.size() || !has_hierarchy(setup_.nodes, setup_.terms))
      return flat;
    return std::make_shared<hierarchical_communicator>(std::move(flat), setup_);
  }

private:
  std::shared_ptr<backend> flat_;
  hierarchy_setup setup_;
};

} // namespace

std::shared_ptr<backend> make_hierarchical_backend(std::shared_ptr<backend> flat, node_map nodes, hierarchy_terms terms,
                                                   std::shared_ptr<backend> across) {
  auto memories = std::make_shared<hierarchy_memories>(terms.scratch_bytes);
  return std::make_shared<hierarchical_backend>(std::move(flat), hierarchy_setup{.nodes = std::move(nodes),
                                                                                 .terms = terms,
                                                                                 .memories = std::move(memories),
                                                                                 .across = std::move(across)});
}

} // namespace troupe
