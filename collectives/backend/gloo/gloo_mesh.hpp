/// A communicator's connections, which another thread can cut: Gloo's own cannot be.
#pragma once

#include <troupe/collectives/backend/gloo/gloo_reach.hpp>

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>

namespace troupe {

/// Stands between Gloo's algorithms and one of its transports, and knows every buffer that they wait for.
///
/// Gloo closes connections from outside, but who waits for a buffer then is not told; so each buffer that an algorithm
/// asks for is wrapped, and cut() ends the waiting. Threads: as Gloo's; cut() from any.
class gloo_mesh final : public gloo::transport::Context {
public:
  gloo_mesh(std::shared_ptr<gloo::transport::Context> inner, std::weak_ptr<gloo_reach> reach);

  /// Gloo asks for it to connect with that peer.
  std::unique_ptr<gloo::transport::Pair>& getPair(int peer) override;
  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override;
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* memory, size_t size_bytes) override;

  /// Makes everything that waits for a peer throw communicator_failed, now and later, and closes all connections.
  void cut() noexcept;

private:
  class tracked_buffer;
  struct tracker {
    std::mutex guard;
    bool is_cut = false;
    std::unordered_set<gloo::transport::UnboundBuffer*> buffers;
  };

  const std::shared_ptr<gloo::transport::Context> inner_;
  const std::weak_ptr<gloo_reach> reach_; ///< While it forms.
  const std::shared_ptr<tracker> all_ = std::make_shared<tracker>();
  std::mutex pairs_guard_;
};

/// Makes meshes over another device.
class gloo_mesh_device final : public gloo::transport::Device {
public:
  /// \p reach hears whom a mesh connects with.
  gloo_mesh_device(std::shared_ptr<gloo::transport::Device> inner, std::weak_ptr<gloo_reach> reach)
    : inner_{std::move(inner)}, reach_{std::move(reach)} {}

  [[nodiscard]] std::string str() const override { return inner_->str(); }
  [[nodiscard]] const std::string& getPCIBusID() const override { return inner_->getPCIBusID(); }
  [[nodiscard]] int getInterfaceSpeed() const override { return inner_->getInterfaceSpeed(); }
  /// One for each device. Errors: communicator_failed after cut().
  std::shared_ptr<gloo::transport::Context> createContext(int self, int world_size) override;

  /// Cuts the mesh, or the one to come.
  void cut() noexcept;

private:
  const std::shared_ptr<gloo::transport::Device> inner_;
  const std::weak_ptr<gloo_reach> reach_;
  std::mutex guard_;
  bool is_cut_ = false;
  std::shared_ptr<gloo_mesh> made_;
};

} // namespace troupe
