#include <troupe/collectives/backend/hierarchy/hierarchical_backend.hpp>

#include <troupe/collectives/backend/hierarchy/hierarchical_communicator.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t known_at_most = 8; ///< Enough: a process forms one world, and again after each fault.

} // namespace

void node_directory::note(const unique_id& id, node_map nodes) {
  const std::lock_guard lock{mutex_};
  noted_.emplace_front(id, std::move(nodes));
  if (noted_.size() > known_at_most) noted_.pop_back();
}

std::optional<node_map> node_directory::find(const unique_id& id, int world_size) const {
  const auto fits = [&](const node_map& nodes) { return nodes.size() == static_cast<std::size_t>(world_size); };
  if (asked_) return fits(*asked_) ? asked_ : std::nullopt;
  const std::lock_guard lock{mutex_};
  const auto found =
      std::ranges::find_if(noted_, [&](const auto& one) { return one.first.bytes == id.bytes && fits(one.second); });
  return found == noted_.end() ? std::nullopt : std::optional{found->second};
}

namespace {

class hierarchical_backend final : public backend {
public:
  hierarchical_backend(std::shared_ptr<backend> flat, std::shared_ptr<const node_directory> nodes,
                       hierarchy_terms terms, std::shared_ptr<backend> across)
    : flat_{std::move(flat)},
      nodes_{std::move(nodes)},
      terms_{terms},
      across_{std::move(across)},
      memories_{std::make_shared<hierarchy_memories>(terms.scratch_bytes)} {}

  [[nodiscard]] std::string_view name() const noexcept override { return flat_->name(); }
  [[nodiscard]] std::string version() const override {
    return across_ ? flat_->version() + "; between nodes " + across_->version() : flat_->version();
  }
  /// Excludes what either backend excludes, because any operation may be composed.
  [[nodiscard]] capabilities examine(std::span<const std::shared_ptr<device>> devices) override {
    capabilities found = flat_->examine(devices);
    if (!across_) return found;
    for (exclusion& one : across_->examine(devices).exclusions) found.exclusions.push_back(std::move(one));
    return found;
  }
  [[nodiscard]] unique_id make_unique_id() override { return flat_->make_unique_id(); }

  [[nodiscard]] std::shared_ptr<communicator> create(const unique_id& id, rank self, int world_size,
                                                     std::shared_ptr<device> where) override {
    auto flat = flat_->create(id, self, world_size, std::move(where));
    auto nodes = nodes_->find(id, world_size);
    if (!nodes || !has_hierarchy(*nodes, terms_)) return flat;
    return std::make_shared<hierarchical_communicator>(
        std::move(flat),
        hierarchy_setup{.nodes = std::move(*nodes), .terms = terms_, .memories = memories_, .across = across_});
  }

private:
  std::shared_ptr<backend> flat_;
  std::shared_ptr<const node_directory> nodes_;
  hierarchy_terms terms_;
  std::shared_ptr<backend> across_;
  std::shared_ptr<hierarchy_memories> memories_;
};

} // namespace

std::shared_ptr<backend> make_hierarchical_backend(std::shared_ptr<backend> flat,
                                                   std::shared_ptr<const node_directory> nodes, hierarchy_terms terms,
                                                   std::shared_ptr<backend> across) {
  return std::make_shared<hierarchical_backend>(std::move(flat), std::move(nodes), terms, std::move(across));
}

std::shared_ptr<backend> make_hierarchical_backend(std::shared_ptr<backend> flat, node_map nodes, hierarchy_terms terms,
                                                   std::shared_ptr<backend> across) {
  return make_hierarchical_backend(std::move(flat), std::make_shared<node_directory>(std::move(nodes)), terms,
                                   std::move(across));
}

} // namespace troupe
