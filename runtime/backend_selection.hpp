/// Turns the configured backend into a driver and a communicator backend.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/hierarchy/node_directory.hpp>
#include <troupe/device/driver.hpp>
#include <troupe/runtime/configuration/configuration.hpp>

#include <memory>
#include <string>

namespace troupe {

/// What a configuration comes to.
struct selected_backend {
  std::shared_ptr<driver> api;
  std::shared_ptr<backend> collectives;
  std::string why; ///< One line for the log.
  /// Where it is noted which nodes ranks of formations are on; none: nobody asks.
  std::shared_ptr<node_directory> nodes{};
};

/// Errors: those of the chosen driver and library. automatic falls to the mock where there is no GPU, but not where
/// there is one that cannot be used: a broken installation must not look like a test.
[[nodiscard]] selected_backend select_backend(const configuration& settings);

} // namespace troupe
