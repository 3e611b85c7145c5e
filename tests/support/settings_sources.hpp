/// Provides sources of settings for tests: variables that are not in the environment, and temporary files.
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/runtime/configuration/launch_environment.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>

namespace troupe::tests {

[[nodiscard]] inline variable_lookup variables(std::map<std::string, std::string> all) {
  return [all = std::move(all)](const std::string& name) -> std::optional<std::string> {
    const auto found = all.find(name);
    return found != all.end() ? std::optional{found->second} : std::nullopt;
  };
}

class settings_on_disk {
public:
  explicit settings_on_disk(const std::string& text) : folder_{"/tmp/troupe-settings-XXXXXX"} {
    REQUIRE(mkdtemp(folder_.data()) != nullptr);
    std::ofstream{path()} << text;
  }
  settings_on_disk(const settings_on_disk&) = delete;
  settings_on_disk& operator=(const settings_on_disk&) = delete;
  ~settings_on_disk() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  [[nodiscard]] std::filesystem::path path() const { return std::filesystem::path{folder_} / "troupe.json"; }

private:
  std::string folder_;
};

/// Returns the text of the invalid_argument that \p action throws, or an empty string if it throws nothing.
template <class Action>
[[nodiscard]] std::string refusal_of(Action&& action) {
  try {
    std::forward<Action>(action)();
  } catch (const exception& failure) {
    CHECK(failure.why().code == errc::invalid_argument);
    return failure.why().text;
  }
  return {};
}

[[nodiscard]] inline bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

} // namespace troupe::tests
