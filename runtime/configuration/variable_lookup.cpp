#include <troupe/runtime/configuration/variable_lookup.hpp>

#include <cstdlib>

namespace troupe {

variable_lookup process_variables() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str()); // NOLINT(concurrency-mt-unsafe): troupe sets none
    return value != nullptr && *value != '\0' ? std::optional<std::string>{value} : std::nullopt;
  };
}

} // namespace troupe
