/// Resources that all communicators of a gloo backend share: the transport with its thread, and the store of
/// formations.
#pragma once

#include <troupe/collectives/backend/gloo/gloo_door.hpp>
#include <troupe/collectives/backend/gloo/gloo_options.hpp>
#include <troupe/collectives/backend/gloo/gloo_store_server.hpp>

#include <gloo/transport/device.h>

#include <memory>
#include <mutex>
#include <string>

namespace troupe {

/// Threads: safe from any.
class gloo_network {
public:
  /// Errors: as check(const gloo_options&).
  explicit gloo_network(gloo_options options);

  /// Returns Gloo's TCP transport. Its thread runs while the transport has an owner.
  /// Errors: invalid_argument (the address is not one of this machine).
  [[nodiscard]] std::shared_ptr<gloo::transport::Device> transport();
  [[nodiscard]] gloo_store_server& stores() noexcept { return stores_; }
  [[nodiscard]] const std::string& address() const noexcept { return options_.interface_address; }

private:
  const gloo_options options_;
  gloo_store_server stores_;
  std::mutex guard_;
  std::weak_ptr<gloo::transport::Device> transport_;
};

} // namespace troupe
