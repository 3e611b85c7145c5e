/// The names of lanes and their numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>

namespace troupe {

/// Grows only: a name once given keeps its number. Threads: safe from any.
class lane_names {
public:
  static constexpr std::size_t longest_bytes = 64;

  /// Holds \p most names at most, the first of which, "default", is there from the start.
  explicit lane_names(std::size_t most = 65'535);

  /// Errors: invalid_argument (empty, too long, one name too many).
  [[nodiscard]] std::uint32_t index_of(std::string_view name);
  /// \p index has been returned by index_of(), or is 0. The name stays where it is.
  [[nodiscard]] const std::string& name_of(std::uint32_t index) const;

private:
  const std::size_t most_;
  mutable std::shared_mutex mutex_;
  std::deque<std::string> names_;
  std::unordered_map<std::string_view, std::uint32_t> indices_; ///< Views of names_.
};

} // namespace troupe
