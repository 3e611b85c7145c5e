/// What all communicators of a gloo backend share: its sockets' thread and its formations' store.
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
  /// Errors: as check() of the options.
  explicit gloo_network(gloo_options options);

  /// Gloo's TCP transport, whose thread is there while anybody has it.
  /// Errors: invalid_argument (the address is none of this machine's).
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
