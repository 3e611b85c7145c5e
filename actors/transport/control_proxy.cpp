#include <troupe/actors/transport/control_proxy.hpp>

#include <troupe/actors/transport/proxy_connection.hpp>
#include <troupe/actors/transport/proxy_options.hpp>
#include <troupe/actors/transport/proxy_socket.hpp>
#include <troupe/actors/transport/tls_identity.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/file_descriptor.hpp>

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// Throws for addresses that \p mode does not protect (SEC-1). Errors: invalid_argument, with the remedy.
void require_protected(proxy_mode mode, const std::string& host, const std::vector<proxy_address>& addresses) {
  if (mode == proxy_mode::mutual_tls) return;
  if (std::all_of(addresses.begin(), addresses.end(), [](const auto& one) { return one.is_loopback(); })) return;
  throw exception{errc::invalid_argument,
                  "'" + host +
                      "' is not a loopback address, and beyond loopback a control socket needs mutual TLS: name "
                      "a CA, a certificate and a key (`troupe certs --out DIR` makes them), or use 127.0.0.1"};
}

/// Throws for limits that are not positive. Errors: invalid_argument.
void require_sensible(const proxy_limits& limits) {
  const auto positive = [](const char* name, auto value) {
    if (value <= decltype(value){})
      throw exception{errc::invalid_argument,
                      std::string{"the limit "} + name + " of a control port's proxy must be positive"};
  };
  positive("admission", limits.admission);
  positive("connect", limits.connect);
  positive("stall", limits.stall);
  positive("closing", limits.closing);
  positive("frame_bytes", limits.frame_bytes);
  positive("connections", limits.connections);
  positive("pending", limits.pending);
  positive("reports", limits.reports);
  positive("report_window", limits.report_window);
}

/// Reads and checks the credentials, creates the TLS context if \p terms need one, and reports warnings.
/// Errors: as check_credentials.
void arm(proxy_state& terms, proxy_side side, const proxy_credentials& credentials) {
  if (terms.mode == proxy_mode::plain) return;
  const tls_identity identity = read_tls_identity(side, credentials);
  terms.tls = make_tls_context(side, identity);
  for (const std::string& one : identity.warnings) terms.report(proxy_event_kind::warning, {}, one);
}

} // namespace

/// Accepts connections, or receives them by adopt(), and advances them until it is stopped.
class proxy_loop {
public:
  /// Creates the connection object for a socket that was accepted from \p peer or passed to adopt().
  using maker =
      std::function<std::unique_ptr<proxy_connection>(file_descriptor, const proxy_address& peer, time_point)>;

  /// Starts the thread. \p listening may be empty. \p terms must outlive it. Errors: internal, if the system has no
  /// descriptors or threads left.
  proxy_loop(proxy_state& terms, file_descriptor listening, maker make);
  proxy_loop(const proxy_loop&) = delete;
  proxy_loop& operator=(const proxy_loop&) = delete;
  ~proxy_loop();

  /// Takes over a connected socket as if it had been accepted. Closes it if the proxy has been stopped. Threads: any.
  void adopt(file_descriptor socket);

  /// Closes all sockets and ends the thread after its present iteration. Threads: any but its own, one at a time. A
  /// second call does nothing.
  void stop() noexcept;

private:
  void run();
  void wake() noexcept;
  void wait_and_advance();
  void take_adopted(time_point now);
  void accept_all(time_point now);
  void take_in(file_descriptor socket, const proxy_address& peer, time_point now);
  void make_room();
  void advance(proxy_connection& one, time_point now);
  [[nodiscard]] int patience(time_point now) const;
  [[nodiscard]] std::size_t gather(time_point now);

  proxy_state& terms_;
  file_descriptor listening_;
  file_descriptor wake_; ///< An eventfd that ends a wait in poll.
  maker make_;
  std::vector<std::unique_ptr<proxy_connection>> connections_; ///< Open connections, oldest first.
  std::vector<pollfd> looks_;
  std::vector<std::pair<std::size_t, std::size_t>> spans_; ///< The range in looks_ of each connection.
  time_point accept_after_{}; ///< Accepts nothing before this time, because no descriptors were left.
  std::mutex adopted_guard_;
  std::vector<file_descriptor> adopted_; ///< Sockets passed to adopt() but not processed yet.
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

namespace {

constexpr int accepts_per_turn = 32;
constexpr std::chrono::seconds pause_without_descriptors{1};

time_point proxy_now() {
  return std::chrono::steady_clock::now();
}

file_descriptor new_wake() {
  file_descriptor made{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  if (!made)
    throw exception{
        error{.code = errc::internal,
              .text = "the proxy of a control port could not be started: this process has no file descriptors left",
              .call = "eventfd",
              .native_code = errno,
              .native_text = std::strerror(errno)}};
  return made;
}

/// Blocks all signals while a thread is created, because the thread inherits the signal mask: a SIGPIPE from a socket
/// that TLS writes to then has no effect.
class all_signals_blocked {
public:
  all_signals_blocked() noexcept {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  all_signals_blocked(const all_signals_blocked&) = delete;
  all_signals_blocked& operator=(const all_signals_blocked&) = delete;
  ~all_signals_blocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
  sigset_t before_{};
};

} // namespace

proxy_loop::proxy_loop(proxy_state& terms, file_descriptor listening, maker make)
  : terms_{terms}, listening_{std::move(listening)}, wake_{new_wake()}, make_{std::move(make)} {
  const all_signals_blocked quiet;
  try {
    thread_ = std::thread{[this] { run(); }};
  } catch (const std::system_error& why) {
    throw exception{errc::internal,
                    std::string{"the thread of a control port's proxy could not be started: "} + why.what()};
  }
}

proxy_loop::~proxy_loop() {
  stop();
}

void proxy_loop::stop() noexcept {
  if (!thread_.joinable()) return;
  stopping_.store(true);
  wake();
  thread_.join();
}

void proxy_loop::wake() noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_.native(), &one, sizeof one));
}

void proxy_loop::adopt(file_descriptor socket) {
  const std::scoped_lock lock{adopted_guard_};
  if (stopping_.load()) return;
  adopted_.push_back(std::move(socket));
  wake();
}

void proxy_loop::take_adopted(time_point now) {
  std::uint64_t count = 0;
  static_cast<void>(!::read(wake_.native(), &count, sizeof count));
  std::vector<file_descriptor> all;
  {
    const std::scoped_lock lock{adopted_guard_};
    all.swap(adopted_);
  }
  for (file_descriptor& one : all) take_in(std::move(one), {}, now);
}

void proxy_loop::run() {
  pthread_setname_np(pthread_self(), "troupe-proxy");
  while (!stopping_.load()) wait_and_advance();
  for (const auto& one : connections_)
    one->cut(proxy_event_kind::ended, "was closed: the proxy of this control port has been stopped");
  connections_.clear();
  listening_ = {};
  const std::scoped_lock lock{adopted_guard_};
  adopted_.clear();
}

/// Fills looks_ for poll. Returns the index of the listening socket in it, or an index beyond its end.
std::size_t proxy_loop::gather(time_point now) {
  looks_.clear();
  spans_.clear();
  looks_.push_back({wake_.native(), POLLIN, 0});
  const bool accepts = listening_ && now >= accept_after_;
  const std::size_t listening = accepts ? looks_.size() : std::numeric_limits<std::size_t>::max();
  if (accepts) looks_.push_back({listening_.native(), POLLIN, 0});
  for (const auto& one : connections_) {
    const std::size_t first = looks_.size();
    one->gather(looks_);
    spans_.emplace_back(first, looks_.size());
  }
  return listening;
}

/// Returns the timeout for poll in milliseconds; -1: no timeout.
int proxy_loop::patience(time_point now) const {
  time_point first = now < accept_after_ ? accept_after_ : time_point::max();
  for (const auto& one : connections_) {
    if (one->has_more()) return 0;
    first = std::min(first, one->due());
  }
  if (first == time_point::max()) return -1;
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(first - now);
  return static_cast<int>(std::clamp<std::int64_t>(wait.count(), 0, std::numeric_limits<int>::max()));
}

void proxy_loop::wait_and_advance() {
  const time_point before = proxy_now();
  const std::size_t listening = gather(before);
  if (::poll(looks_.data(), looks_.size(), patience(before)) < 0) {
    if (errno != EINTR) std::this_thread::sleep_for(std::chrono::milliseconds{10}); // the system is out of memory
    return;
  }
  const time_point now = proxy_now();
  for (std::size_t i = 0; i < spans_.size() && !stopping_.load(); ++i) {
    proxy_connection& one = *connections_[i];
    const auto is_ready = [](const pollfd& polled) { return polled.revents != 0; };
    const auto from = looks_.begin();
    if (std::any_of(from + static_cast<std::ptrdiff_t>(spans_[i].first),
                    from + static_cast<std::ptrdiff_t>(spans_[i].second), is_ready) ||
        one.has_more() || one.due() <= now)
      advance(one, now);
  }
  std::erase_if(connections_, [](const auto& one) { return one->is_over(); });
  if (looks_.front().revents != 0 && !stopping_.load()) take_adopted(now);
  if (listening < looks_.size() && looks_[listening].revents != 0) accept_all(now);
}

void proxy_loop::advance(proxy_connection& one, time_point now) {
  try {
    one.advance(now);
  } catch (const std::exception& why) {
    one.cut(proxy_event_kind::broken, why.what());
  }
}

void proxy_loop::accept_all(time_point now) {
  for (int i = 0; i < accepts_per_turn && !stopping_.load(); ++i) {
    sockaddr_storage storage{};
    socklen_t length = sizeof storage;
    auto* const raw = reinterpret_cast<sockaddr*>(&storage);
    file_descriptor socket{::accept4(listening_.native(), raw, &length, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (socket) {
      take_in(std::move(socket), proxy_address{raw, length}, now);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      accept_after_ = later(now, pause_without_descriptors);
      terms_.report_stranger(proxy_event_kind::too_many, {},
                             "cannot accept a connection: " + std::string{std::strerror(errno)});
      return;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    }
  }
}

void proxy_loop::take_in(file_descriptor socket, const proxy_address& peer, time_point now) {
  make_room();
  try {
    connections_.push_back(make_(std::move(socket), peer, now));
    advance(*connections_.back(), now);
  } catch (const std::exception& why) {
    terms_.report_stranger(proxy_event_kind::broken, peer.text(), why.what());
  }
}

/// If the limit of pending connections is reached, closes the oldest one. A legitimate peer is admitted within
/// milliseconds.
void proxy_loop::make_room() {
  const auto is_pending = [](const auto& one) { return !one->is_admitted() && !one->is_over(); };
  if (std::count_if(connections_.begin(), connections_.end(), is_pending) < terms_.limits.pending) return;
  const auto oldest = std::find_if(connections_.begin(), connections_.end(), is_pending);
  if (oldest == connections_.end()) return;
  (*oldest)->cut(proxy_event_kind::too_many,
                 "was closed for a newer connection: " + std::to_string(terms_.limits.pending) +
                     " connections waited to be admitted, which is the limit");
  connections_.erase(oldest);
}

struct proxy_listener::parts {
  explicit parts(proxy_listener_options& options)
    : terms{options.mode, options.limits, options.credentials.token, options.credentials.expected_peer} {}

  proxy_state terms;
  proxy_address where;
  std::string where_text;
  std::optional<proxy_loop> loop;
};

proxy_listener::proxy_listener(proxy_listener_options options) {
  require_sensible(options.limits);
  if (!options.connect_inside)
    throw exception{errc::invalid_argument,
                    "a TLS proxy needs a way to connect to its control port: set connect_inside"};
  const std::vector<proxy_address> addresses = resolve_address(options.address, options.port);
  require_protected(options.mode, options.address, addresses);
  parts_ = std::make_unique<parts>(options);
  proxy_state& terms = parts_->terms;
  terms.on_event = std::move(options.on_event);
  terms.connect_inside = std::move(options.connect_inside);
  arm(terms, proxy_side::listener, options.credentials);

  file_descriptor listening = listen_at(addresses.front());
  parts_->where = proxy_address::of_socket(listening.native());
  parts_->where_text = parts_->where.text();
  parts_->loop.emplace(terms, std::move(listening),
                       [&terms](file_descriptor socket, const proxy_address& peer, time_point now) {
                         return std::make_unique<incoming_connection>(terms, std::move(socket), peer, now);
                       });
}

proxy_listener::~proxy_listener() = default;

std::uint16_t proxy_listener::port() const noexcept {
  return parts_->where.port();
}

const std::string& proxy_listener::address() const noexcept {
  return parts_->where_text;
}

void proxy_listener::stop() noexcept {
  parts_->loop->stop();
}

struct proxy_dialer::parts {
  explicit parts(proxy_dialer_options& options)
    : terms{options.mode, options.limits, options.credentials.token, options.credentials.expected_peer} {}

  /// Stores failures, then reports the event to the owner.
  void note(const proxy_event& event, const proxy_event_sink& owner) {
    if (event.kind != proxy_event_kind::warning && event.kind != proxy_event_kind::ended) {
      const std::scoped_lock lock{mutex};
      last_failure = {event.kind, event.kind == proxy_event_kind::admitted ? std::string{} : event.text};
    }
    if (owner) owner(event);
  }

  proxy_state terms;
  proxy_destination to;
  std::mutex mutex;
  proxy_fault last_failure;
  std::optional<proxy_loop> loop;
};

proxy_dialer::proxy_dialer(proxy_dialer_options options) {
  require_sensible(options.limits);
  if (options.port == 0)
    throw exception{errc::invalid_argument,
                    "port 0 of '" + options.host + "' is not a port to connect to: give the controller's port"};
  std::vector<proxy_address> addresses = resolve_address(options.host, options.port);
  require_protected(options.mode, options.host, addresses);
  parts_ = std::make_unique<parts>(options);
  parts_->to = {host_and_port(options.host, options.port), std::move(addresses)};
  proxy_state& terms = parts_->terms;
  terms.on_event = [all = parts_.get(), owner = std::move(options.on_event)](const proxy_event& event) {
    all->note(event, owner);
  };
  arm(terms, proxy_side::dialer, options.credentials);

  parts_->loop.emplace(terms, file_descriptor{},
                       [&terms, &to = parts_->to](file_descriptor socket, const proxy_address&, time_point now) {
                         return std::make_unique<outgoing_connection>(terms, std::move(socket), to, now);
                       });
}

proxy_dialer::~proxy_dialer() = default;

file_descriptor proxy_dialer::connect() {
  auto [ours, theirs] = connected_sockets();
  parts_->loop->adopt(std::move(ours));
  return std::move(theirs);
}

proxy_fault proxy_dialer::last_failure() const {
  const std::scoped_lock lock{parts_->mutex};
  return parts_->last_failure;
}

void proxy_dialer::stop() noexcept {
  parts_->loop->stop();
}

} // namespace troupe
