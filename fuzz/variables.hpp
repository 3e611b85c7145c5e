/// Converts fuzz input to environment variables: lines of NAME=VALUE, where the last line of a name is used. A zero
/// byte ends a value, as in a real environment.
#pragma once

#include <troupe/runtime/configuration/launch_environment.hpp>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

namespace troupe::fuzz {

[[nodiscard]] inline std::map<std::string, std::string> variables_of(std::string_view text) {
  std::map<std::string, std::string> all;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view value = line.substr(equals + 1);
    all[std::string{line.substr(0, equals)}] = value.substr(0, value.find('\0'));
  }
  return all;
}

[[nodiscard]] inline variable_lookup lookup_in(const std::map<std::string, std::string>& all) {
  return [&all](const std::string& name) -> std::optional<std::string> {
    const auto found = all.find(name);
    return found != all.end() && !found->second.empty() ? std::optional{found->second} : std::nullopt;
  };
}

} // namespace troupe::fuzz
