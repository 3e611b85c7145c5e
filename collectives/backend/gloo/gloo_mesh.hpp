/// The connections of a communicator, with a way for another thread to cut them, which Gloo's own connections lack.
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

/// Wraps one of Gloo's transport contexts and knows every buffer that Gloo's algorithms wait for.
///
/// Gloo can close connections from outside, but does not notify a thread that waits for a buffer. Therefore every
/// buffer that an algorithm asks for is wrapped, and cut() ends the waits. Threads: as Gloo's; cut() from any.
class gloo_mesh final : public gloo::transport::Context {
public:
  gloo_mesh(std::shared_ptr<gloo::transport::Context> inner, std::weak_ptr<gloo_reach> reach);

  /// Gloo calls it in order to connect to \p peer.
  std::unique_ptr<gloo::transport::Pair>& getPair(int peer) override;
  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override;
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* memory, size_t size_bytes) override;

  /// Makes all calls that wait for a peer throw communicator_failed, now and later, and closes all connections.
  void cut() noexcept;

private:
  class tracked_buffer;
  struct tracker {
    std::mutex guard;
    bool is_cut = false;
    std::unordered_set<gloo::transport::UnboundBuffer*> buffers;
  };

  const std::shared_ptr<gloo::transport::Context> inner_;
  const std::weak_ptr<gloo_reach> reach_; ///< Set while the communicator forms.
  const std::shared_ptr<tracker> all_ = std::make_shared<tracker>();
  std::mutex pairs_guard_;
};

/// Creates a gloo_mesh over another transport device.
class gloo_mesh_device final : public gloo::transport::Device {
public:
  /// \p reach is notified of each peer that the mesh connects to.
  gloo_mesh_device(std::shared_ptr<gloo::transport::Device> inner, std::weak_ptr<gloo_reach> reach)
    : inner_{std::move(inner)}, reach_{std::move(reach)} {}

  [[nodiscard]] std::string str() const override { return inner_->str(); }
  [[nodiscard]] const std::string& getPCIBusID() const override { return inner_->getPCIBusID(); }
  [[nodiscard]] int getInterfaceSpeed() const override { return inner_->getInterfaceSpeed(); }
  /// Call once for each device. Errors: communicator_failed after cut().
  std::shared_ptr<gloo::transport::Context> createContext(int self, int world_size) override;

  /// Cuts the mesh. If there is none yet, createContext() will throw.
  void cut() noexcept;

private:
  const std::shared_ptr<gloo::transport::Device> inner_;
  const std::weak_ptr<gloo_reach> reach_;
  std::mutex guard_;
  bool is_cut_ = false;
  std::shared_ptr<gloo_mesh> made_;
};

} // namespace troupe
