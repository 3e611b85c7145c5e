#include <troupe/collectives/backend/gloo/gloo_formation.hpp>

#include <troupe/device/memory/leak_report.hpp>

#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <csignal>
#include <exception>
#include <utility>

namespace troupe {

namespace {

/// Time after which Gloo itself stops waiting for a peer. Pipeline deadlines and abort() act long before.
constexpr std::chrono::milliseconds patience_of_gloo = std::chrono::minutes{30};

/// Longest time to connect to a peer that has joined the formation. It exceeds a link cut of one second, after which
/// TCP tries again at most one second later (docs/design/0051-broken-links.md).
constexpr std::chrono::milliseconds patience_for_peers{2500};

} // namespace

gloo_formation::gloo_formation(std::shared_ptr<gloo_network> network, rank self, int world_size) noexcept
  : network_{std::move(network)}, self_{self}, world_size_{world_size} {}

std::shared_ptr<gloo_store> gloo_formation::come(const gloo_meeting& at) {
  auto made = std::make_shared<gloo_store>(at.door, at.comers, at.prefix);
  const std::lock_guard lock{guard_};
  store_ = made;
  if (is_cut_) made->interrupt();
  return made;
}

void gloo_formation::form(const gloo_meeting& at) {
  if (!at.is_whole) return connect(at, nullptr);
  const auto reach = std::make_shared<gloo_reach>(patience_for_peers, [this] { cut(); });
  try {
    connect(at, reach);
  } catch (...) {
    const auto peer = reach->unreached();
    if (!peer) throw;
    throw exception{error{.code = errc::communicator_failed,
                          .text = "rank " + to_string(self_) + " has waited " +
                                  std::to_string(patience_for_peers.count()) + " ms for a connection with rank " +
                                  to_string(*peer) + ": check the network between them",
                          .rank = peer}};
  }
}

void gloo_formation::connect(const gloo_meeting& at, const std::shared_ptr<gloo_reach>& reach) {
  const auto store = come(at);
  if (reach && self_ != rank{0}) {
    reach->connecting(rank{0});
    store->connect();
  }
  store->tell(reach);
  const auto mesh = std::make_shared<gloo_mesh_device>(network_->transport(), reach);
  {
    const std::lock_guard lock{guard_};
    mesh_ = mesh;
    if (is_cut_) mesh->cut();
  }
  auto made = std::make_shared<gloo::rendezvous::Context>(self_.value(), world_size_);
  made->setTimeout(patience_of_gloo);
  std::shared_ptr<gloo::transport::Device> through = mesh;
  made->connectFullMesh(*store, through);
  store->formed(); // throws if connections were cut: Gloo takes those for connected
  context_ = std::move(made);
}

void gloo_formation::pass(const gloo_meeting& at) {
  come(at)->formed();
}

void gloo_formation::cut() noexcept {
  std::shared_ptr<gloo_mesh_device> mesh;
  {
    const std::lock_guard lock{guard_};
    is_cut_ = true;
    if (store_) store_->interrupt();
    mesh = mesh_;
  }
  if (mesh) mesh->cut();
}

void gloo_formation::leave() noexcept {
  return_or_report("a communicator's connections", [&] {
    context_.reset();
    std::shared_ptr<gloo_mesh_device> mesh;
    std::shared_ptr<gloo_store> store;
    const std::lock_guard lock{guard_};
    mesh.swap(mesh_);
    store.swap(store_);
  });
}

namespace {

/// Blocks SIGPIPE while it lives. Threads started meanwhile inherit the mask: a failed write to the socket of a lost
/// peer must not end the process.
class broken_pipes_blocked {
public:
  broken_pipes_blocked() noexcept {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  broken_pipes_blocked(const broken_pipes_blocked&) = delete;
  broken_pipes_blocked& operator=(const broken_pipes_blocked&) = delete;
  ~broken_pipes_blocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
  sigset_t before_;
};

} // namespace

gloo_network::gloo_network(gloo_options options)
  : options_{std::move(options)}, stores_{parse_socket_address(options_.interface_address)} {}

std::shared_ptr<gloo::transport::Device> gloo_network::transport() {
  const std::lock_guard lock{guard_};
  auto found = transport_.lock();
  if (found) return found;
  const broken_pipes_blocked blocked;
  try {
    transport_ = found = gloo::transport::tcp::CreateDevice(options_.interface_address.c_str());
  } catch (const std::exception& refused) { // from Gloo
    throw exception{error{.code = errc::invalid_argument,
                          .text = "Gloo cannot use the address " + options_.interface_address +
                                  ": name an address of this machine (gloo.interface_address)",
                          .call = "gloo::transport::tcp::CreateDevice",
                          .native_text = refused.what()}};
  }
  return found;
}

} // namespace troupe
