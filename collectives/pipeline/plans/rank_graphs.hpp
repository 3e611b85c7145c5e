/// The graphs of captured plans on one rank. They refer to its communicator, which cannot end before they do.
#pragma once

#include <troupe/device/graph.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace troupe {

/// Threads: safe from any. Who launches a graph holds it meanwhile, so that close() from a helper takes none away from
/// under a launcher.
class rank_graphs {
public:
  /// In place of what the plan had. False when closed: the graph is then dropped.
  bool add(std::uint64_t plan, std::shared_ptr<const graph> made);
  /// Empty where the plan has none here.
  [[nodiscard]] std::shared_ptr<const graph> find(std::uint64_t plan) const;
  void erase(std::uint64_t plan) noexcept;
  /// Drops all, and whatever comes later.
  void close() noexcept;

private:
  mutable std::mutex guard_;
  std::map<std::uint64_t, std::shared_ptr<const graph>> all_;
  bool closed_ = false;
};

} // namespace troupe
