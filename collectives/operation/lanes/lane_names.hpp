/// Maps the names of lanes to numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace troupe {

/// A table of names that only grows, so that a name keeps its number. Threads: all functions may be called from any
/// thread.
class lane_names {
public:
  static constexpr std::size_t longest_bytes = 64;

  /// Holds at most \p most names. The first one, "default", exists from the start.
  explicit lane_names(std::size_t most = 65'535);

  /// Returns the number of \p name, and adds the name if it is new. Errors: invalid_argument (empty, too long, or too
  /// many names).
  [[nodiscard]] std::uint32_t index_of(std::string_view name);
  /// Returns the name of \p index, which is 0 or was returned by index_of(). The reference stays valid.
  [[nodiscard]] const std::string& name_of(std::uint32_t index) const;

private:
  const std::size_t most_;
  mutable std::shared_mutex mutex_;
  std::deque<std::string> names_;
  std::unordered_map<std::string_view, std::uint32_t> indices_; ///< The keys are views of names_.
};

} // namespace troupe
