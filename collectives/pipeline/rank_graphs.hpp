/// The graphs of captured plans on one rank. They refer to its communicator, which must not end before them.
#pragma once

#include <troupe/device/graph.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace troupe {

/// Threads: safe from any. A launcher holds the graph that it launches, so that close() on a helper thread does not
/// destroy it meanwhile.
class rank_graphs {
public:
  /// Replaces the graph of the plan. Returns false if closed; the graph is then dropped.
  bool add(std::uint64_t plan, std::shared_ptr<const graph> made);
  /// Returns null if the plan has no graph here.
  [[nodiscard]] std::shared_ptr<const graph> find(std::uint64_t plan) const;
  void erase(std::uint64_t plan) noexcept;
  /// Destroys all graphs and refuses later ones.
  void close() noexcept;

private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<const graph>> all_;
  bool closed_ = false;
};

} // namespace troupe
