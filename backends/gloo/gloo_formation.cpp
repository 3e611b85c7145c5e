#include <troupe/backends/gloo/gloo_formation.hpp>

#include <troupe/device/file_descriptor.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/topology/thread_binding.hpp>

#include <gloo/rendezvous/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// Period at which the running clock is read. Twice the period counts of each pause of this process.
constexpr nanoseconds clock_check_period{std::chrono::milliseconds{100}};

} // namespace

gloo_connect_watchdog::gloo_connect_watchdog(nanoseconds patience, std::function<void()> give_up)
  : patience_{patience}, give_up_{std::move(give_up)}, running_{steady_now(), 2 * clock_check_period}, thread_{[this] {
      watch();
    }} {}

gloo_connect_watchdog::~gloo_connect_watchdog() {
  {
    const std::lock_guard lock{mutex_};
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void gloo_connect_watchdog::connecting(rank peer) {
  const std::lock_guard lock{mutex_};
  if (is_unreached_) return;
  peer_ = peer;
  since_ = running_.read(steady_now());
  changed_.notify_all();
}

void gloo_connect_watchdog::connected() {
  const std::lock_guard lock{mutex_};
  if (!is_unreached_) peer_.reset();
}

std::optional<rank> gloo_connect_watchdog::unreached() const {
  const std::lock_guard lock{mutex_};
  return is_unreached_ ? peer_ : std::nullopt;
}

void gloo_connect_watchdog::watch() {
  name_this_thread("troupe/reach");
  std::unique_lock lock{mutex_};
  while (!ended_) {
    if (!peer_) {
      changed_.wait(lock, [this] { return ended_ || peer_; });
      continue;
    }
    static_cast<void>(changed_.wait_for(lock, clock_check_period, [this] { return ended_; }));
    if (ended_ || !peer_) continue;
    if (running_.read(steady_now()) - since_ < patience_) continue;
    is_unreached_ = true;
    lock.unlock();
    return give_up_();
  }
}

namespace {

[[noreturn]] void report_cut() {
  throw exception{errc::communicator_failed, "the communicator was aborted"};
}

/// Tracks the buffers that Gloo's algorithms use, so that their waits can be aborted.
struct buffer_tracker {
  std::mutex mutex;
  bool is_cut = false;
  std::unordered_set<gloo::transport::UnboundBuffer*> buffers;

  /// Throws after a cut. A buffer does not store that a wait was aborted, so a loop of waits needs this check.
  void throw_if_cut() {
    const std::lock_guard lock{mutex};
    if (is_cut) report_cut();
  }
};

class tracked_buffer final : public gloo::transport::UnboundBuffer {
public:
  tracked_buffer(std::shared_ptr<buffer_tracker> all, std::unique_ptr<UnboundBuffer> inner)
    : UnboundBuffer{inner->ptr, inner->size}, all_{std::move(all)}, inner_{std::move(inner)} {
    const std::lock_guard lock{all_->mutex};
    if (all_->is_cut) report_cut();
    all_->buffers.insert(inner_.get());
  }
  tracked_buffer(const tracked_buffer&) = delete;
  tracked_buffer& operator=(const tracked_buffer&) = delete;
  // The destructor of inner_ waits until the transport's thread no longer uses the buffer. After that no thread touches
  // the memory.
  ~tracked_buffer() override {
    const std::lock_guard lock{all_->mutex};
    all_->buffers.erase(inner_.get());
  }

  bool waitRecv(int* peer, std::chrono::milliseconds timeout) override {
    if (!inner_->waitRecv(peer, timeout)) report_cut();
    return true;
  }
  bool waitSend(int* peer, std::chrono::milliseconds timeout) override {
    if (!inner_->waitSend(peer, timeout)) report_cut();
    return true;
  }
  void abortWaitRecv() override { inner_->abortWaitRecv(); }
  void abortWaitSend() override { inner_->abortWaitSend(); }

  void send(int to, std::uint64_t slot, std::size_t offset, std::size_t size_bytes) override {
    all_->throw_if_cut();
    inner_->send(to, slot, offset, size_bytes);
  }
  void recv(int from, std::uint64_t slot, std::size_t offset, std::size_t size_bytes) override {
    all_->throw_if_cut();
    inner_->recv(from, slot, offset, size_bytes);
  }
  void recv(std::vector<int> from, std::uint64_t slot, std::size_t offset, std::size_t size_bytes) override {
    all_->throw_if_cut();
    inner_->recv(std::move(from), slot, offset, size_bytes);
  }

private:
  const std::shared_ptr<buffer_tracker> all_;
  const std::unique_ptr<UnboundBuffer> inner_;
};

} // namespace

/// The connections of a communicator. Unlike Gloo's own connections, they can be cut by another thread.
///
/// Gloo can close connections from outside, but does not notify a thread that waits for a buffer. Therefore every
/// buffer that an algorithm asks for is wrapped, and cut() ends the waits. Threads: as Gloo's; cut() from any.
class gloo_mesh final : public gloo::transport::Context {
public:
  gloo_mesh(std::shared_ptr<gloo::transport::Context> inner, std::weak_ptr<gloo_connect_watchdog> reach)
    : Context{inner->rank, inner->size}, inner_{std::move(inner)}, reach_{std::move(reach)} {}

  /// Called by Gloo to connect to \p peer.
  std::unique_ptr<gloo::transport::Pair>& getPair(int peer) override {
    if (const auto reach = reach_.lock()) reach->connecting(troupe::rank{peer});
    return inner_->getPair(peer);
  }
  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override {
    const std::lock_guard lock{pairs_guard_};
    all_->throw_if_cut();
    inner_->setTimeout(getTimeout());
    return inner_->createPair(peer);
  }
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* memory, size_t size_bytes) override {
    return std::make_unique<tracked_buffer>(all_, inner_->createUnboundBuffer(memory, size_bytes));
  }

  /// Makes all calls that wait for a peer throw communicator_failed, now and later, and closes all connections.
  void cut() noexcept {
    return_or_report("a communicator's connections", [&] {
      {
        const std::lock_guard lock{all_->mutex};
        all_->is_cut = true;
        for (gloo::transport::UnboundBuffer* one : all_->buffers) {
          one->abortWaitRecv();
          one->abortWaitSend();
        }
      }
      const std::lock_guard lock{pairs_guard_};
      for (int i = 0; i < size; ++i)
        if (const auto& one = inner_->getPair(i)) one->close();
    });
  }

private:
  const std::shared_ptr<gloo::transport::Context> inner_;
  const std::weak_ptr<gloo_connect_watchdog> reach_; ///< Set while the communicator forms.
  const std::shared_ptr<buffer_tracker> all_ = std::make_shared<buffer_tracker>();
  std::mutex pairs_guard_;
};

/// A transport device that creates a gloo_mesh over another transport device.
class gloo_mesh_device final : public gloo::transport::Device {
public:
  /// \p reach is notified of each peer that the mesh connects to.
  gloo_mesh_device(std::shared_ptr<gloo::transport::Device> inner, std::weak_ptr<gloo_connect_watchdog> reach)
    : inner_{std::move(inner)}, reach_{std::move(reach)} {}

  [[nodiscard]] std::string str() const override { return inner_->str(); }
  [[nodiscard]] const std::string& getPCIBusID() const override { return inner_->getPCIBusID(); }
  [[nodiscard]] int getInterfaceSpeed() const override { return inner_->getInterfaceSpeed(); }
  /// Call once for each device. Errors: communicator_failed after cut().
  std::shared_ptr<gloo::transport::Context> createContext(int self, int world_size) override {
    const std::lock_guard lock{mutex_};
    if (is_cut_) report_cut();
    made_ = std::make_shared<gloo_mesh>(inner_->createContext(self, world_size), reach_);
    return made_;
  }

  /// Cuts the mesh. If there is none yet, createContext() will throw.
  void cut() noexcept {
    std::shared_ptr<gloo_mesh> whole;
    {
      const std::lock_guard lock{mutex_};
      is_cut_ = true;
      whole = made_;
    }
    if (whole) whole->cut();
  }

private:
  const std::shared_ptr<gloo::transport::Device> inner_;
  const std::weak_ptr<gloo_connect_watchdog> reach_;
  std::mutex mutex_;
  bool is_cut_ = false;
  std::shared_ptr<gloo_mesh> made_;
};

namespace {

/// Time after which Gloo itself stops waiting for a peer. Pipeline deadlines and abort() end the wait long before.
constexpr std::chrono::milliseconds patience_of_gloo = std::chrono::minutes{30};

/// Longest time to connect to a peer that has joined the formation. It is enough if a link is down for one second,
/// because TCP retries at most one second after that (docs/design/0051-broken-links.md).
constexpr std::chrono::milliseconds patience_for_peers{2500};

/// Size of the message with which a link is checked: at least one packet of it is as large as the network allows,
/// because no network carries more than 64 KiB in one.
constexpr std::size_t link_check_bytes = std::size_t{64} << 10U;
/// The same for the connection to the store, which keeps the message of each rank: larger than a jumbo frame.
constexpr std::size_t store_check_bytes = std::size_t{16} << 10U;
constexpr std::uint64_t link_check_slot = 0x6B'6E'69'6C; // "link"; no operation runs yet
constexpr std::uint64_t greeting_slot = link_check_slot + 1;

/// See largest_through_one(). Measured with four ranks (docs/design/0111-torch-backend.md).
constexpr std::size_t largest_between_hosts = std::size_t{1} << 20U;
constexpr std::size_t largest_on_one_host = std::size_t{4} << 20U;

} // namespace

gloo_formation::gloo_formation(std::shared_ptr<gloo_network> network, rank self, int world_size) noexcept
  : network_{std::move(network)}, self_{self}, world_size_{world_size} {}

std::shared_ptr<gloo_store> gloo_formation::open_store(const gloo_rendezvous& at) {
  auto made = std::make_shared<gloo_store>(at.endpoint, at.participants, at.prefix);
  const std::lock_guard lock{mutex_};
  store_ = made;
  if (is_cut_) made->interrupt();
  return made;
}

void gloo_formation::form(const gloo_rendezvous& at) {
  if (!at.is_whole) return connect(at, nullptr);
  const auto reach = std::make_shared<gloo_connect_watchdog>(patience_for_peers, [this] { cut(); });
  try {
    connect(at, reach);
  } catch (...) {
    const auto given_up = reach->unreached();
    const auto peer = given_up ? given_up : checked_;
    if (!peer) throw;
    // A peer that gives the exchange up first closes the connection. Its own report may arrive later than this one.
    std::string text =
        given_up ? "rank " + to_string(self_) + " has waited " + std::to_string(patience_for_peers.count()) + " ms for "
                 : "rank " + to_string(self_) + " has lost its connections during ";
    text += checked_bytes_ == 0
                ? "a connection with rank " + to_string(*peer)
                : "an exchange of " + std::to_string(checked_bytes_) + " bytes with rank " + to_string(*peer) +
                      ", to which it was connected: large packets are lost, or the " + "link is too slow";
    throw exception{
        error{.code = errc::communicator_failed, .text = text + ": check the network between them", .rank = peer}};
  }
}

void gloo_formation::connect(const gloo_rendezvous& at, const std::shared_ptr<gloo_connect_watchdog>& reach) {
  const auto store = open_store(at);
  if (reach && self_ != rank{0}) {
    reach->connecting(rank{0});
    store->connect();
    checked_bytes_ = store_check_bytes;
    store->set("store/" + to_string(self_), std::vector<char>(store_check_bytes));
    static_cast<void>(store->get("store/" + to_string(self_)));
    checked_bytes_ = 0;
  }
  store->on_use([weak = std::weak_ptr{reach}] {
    if (const auto watch = weak.lock()) watch->connected(); // while Gloo uses the store, it does not connect to a peer
  });
  const auto mesh = std::make_shared<gloo_mesh_device>(network_->transport(), reach);
  {
    const std::lock_guard lock{mutex_};
    mesh_ = mesh;
    if (is_cut_) mesh->cut();
  }
  auto made = std::make_shared<gloo::rendezvous::Context>(self_.value(), world_size_);
  made->setTimeout(patience_of_gloo);
  std::shared_ptr<gloo::transport::Device> through = mesh;
  made->connectFullMesh(*store, through);
  if (reach) check_links(*made, *reach);
  store->formed(); // throws after cut(), because Gloo does not notice that connections were cut
  largest_through_one_ = is_loopback(at.endpoint.where) ? largest_on_one_host : largest_between_hosts;
  context_ = std::move(made);
}

void gloo_formation::check_links(gloo::Context& among, gloo_connect_watchdog& reach) {
  checked_bytes_ = link_check_bytes;
  std::vector<std::byte> content(link_check_bytes);
  std::vector<std::byte> ignored(link_check_bytes); // of all peers: Gloo's only thread writes it, and nobody reads it
  struct exchange {
    rank peer;
    std::unique_ptr<gloo::transport::UnboundBuffer> out, in;
  };
  std::vector<exchange> all;
  for (int peer = 0; peer < world_size_; ++peer) {
    if (rank{peer} == self_) continue;
    all.push_back({rank{peer}, among.createUnboundBuffer(content.data(), content.size()),
                   among.createUnboundBuffer(ignored.data(), ignored.size())});
    const exchange& one = all.back();
    for (const auto& [slot, size] : {std::pair{greeting_slot, std::size_t{1}}, {link_check_slot, link_check_bytes}}) {
      one.in->recv(peer, slot, 0, size);
      one.out->send(peer, slot, 0, size);
    }
  }
  for (const exchange& one : all) {
    checked_ = one.peer;
    one.in->waitRecv(nullptr, patience_of_gloo); // the peer has connected to all its peers now
    reach.connecting(one.peer);
    one.in->waitRecv(nullptr, patience_of_gloo);
    one.out->waitSend(nullptr, patience_of_gloo);
    one.out->waitSend(nullptr, patience_of_gloo);
    reach.connected();
  }
  checked_.reset();
}

void gloo_formation::pass(const gloo_rendezvous& at) {
  open_store(at)->formed();
}

void gloo_formation::cut() noexcept {
  std::shared_ptr<gloo_mesh_device> mesh;
  {
    const std::lock_guard lock{mutex_};
    is_cut_ = true;
    if (const auto store = store_.lock()) store->interrupt();
    mesh = mesh_;
  }
  if (mesh) mesh->cut();
}

void gloo_formation::leave() noexcept {
  return_or_report("a communicator's connections", [&] {
    context_.reset();
    std::shared_ptr<gloo_mesh_device> mesh;
    const std::lock_guard lock{mutex_};
    mesh.swap(mesh_);
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
  sigset_t before_{};
};

/// Returns EMFILE or ENFILE if Gloo made no transport for the lack of descriptors, else 0. \p said is its text, which
/// names another cause if it could not try the address.
int lacks_descriptors(std::string_view said) {
  if (said.find(std::strerror(EMFILE)) != std::string_view::npos) return EMFILE; // NOLINT(concurrency-mt-unsafe)
  std::array<file_descriptor, 4> needed;                                         // as many as its transport
  for (file_descriptor& one : needed) {
    one = file_descriptor{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (!one) return errno == EMFILE || errno == ENFILE ? errno : 0;
  }
  return 0;
}

} // namespace

gloo_network::gloo_network(gloo_options options)
  : options_{std::move(options)}, stores_{parse_socket_address(options_.interface_address)} {}

std::shared_ptr<gloo::transport::Device> gloo_network::transport() {
  const std::lock_guard lock{mutex_};
  auto found = transport_.lock();
  if (found) return found;
  const broken_pipes_blocked blocked;
  try {
    transport_ = found = gloo::transport::tcp::CreateDevice(options_.interface_address.c_str());
  } catch (const std::exception& refused) { // thrown by Gloo
    if (const int code = lacks_descriptors(refused.what()))
      throw_no_descriptors("gloo::transport::tcp::CreateDevice", code);
    throw exception{error{.code = errc::invalid_argument,
                          .text = "Gloo cannot use the address " + options_.interface_address +
                                  ": name an address of this machine (gloo.interface_address)",
                          .call = "gloo::transport::tcp::CreateDevice",
                          .native_text = refused.what()}};
  }
  return found;
}

} // namespace troupe
