#include <troupe/processes/transport/transport.hpp>

#include <troupe/device/error.hpp>
#include <troupe/device/file_descriptor.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/processes/transport/connection.hpp>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace troupe {

namespace {

using asio::ip::tcp;
using failure = asio::error_code;

constexpr std::size_t most_addresses = 4;
constexpr int listen_backlog = 128;
constexpr int accepts_per_turn = 32;
constexpr std::size_t read_bytes = 64U << 10;
constexpr std::chrono::seconds pause_without_descriptors{1};

time_point transport_now() {
  return std::chrono::steady_clock::now();
}

bool is_loopback(const asio::ip::address& one) {
  if (one.is_v6() && one.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, one.to_v6()).is_loopback();
  return one.is_loopback();
}

/// Formats \p host, as the user wrote it, and \p port as "10.0.0.1:7000" or "[fd00::1]:7000".
std::string host_and_port(const std::string& host, std::uint16_t port) {
  const bool is_six = host.find(':') != std::string::npos;
  return (is_six ? "[" : "") + host + (is_six ? "]:" : ":") + std::to_string(port);
}

std::string text_of(const tcp::endpoint& where) {
  return host_and_port(where.address().to_string(), where.port());
}

/// The addresses of a name, at most four, or why there are none.
struct lookup_result {
  std::vector<tcp::endpoint> found;
  error why{};
};

/// Queries the name service, which may take an unbounded time.
lookup_result look_up(const std::string& host, std::uint16_t port) {
  asio::io_context context;
  failure why;
  lookup_result made;
  if (host.empty()) why = asio::error::host_not_found;
  if (!why)
    for (const auto& one : tcp::resolver{context}.resolve(host, std::to_string(port), why))
      if (made.found.size() < most_addresses) made.found.push_back(one.endpoint());
  if (why || made.found.empty())
    made.why = {.code = errc::invalid_argument,
                .text = "unknown host '" + host + "': give a name that this machine can resolve, or an IP address",
                .call = "getaddrinfo",
                .native_code = why.value(),
                .native_text = why.message()};
  return made;
}

/// Checks that \p mode protects all addresses of \p host (SEC-1). Returns errc::none or invalid_argument.
error objection_to(transport_mode mode, const std::string& host, const std::vector<tcp::endpoint>& addresses) {
  const auto is_safe = [](const tcp::endpoint& one) { return is_loopback(one.address()); };
  if (mode != transport_mode::plain || std::all_of(addresses.begin(), addresses.end(), is_safe)) return {};
  return {.code = errc::invalid_argument,
          .text = "'" + host +
                  "' is not a loopback address, and beyond loopback a control socket needs mutual TLS: name a CA, a "
                  "certificate and a key (`troupe certs --out DIR` makes them), or use 127.0.0.1"};
}

/// Returns the addresses of \p host. Errors: invalid_argument.
std::vector<tcp::endpoint> resolve(transport_mode mode, const std::string& host, std::uint16_t port) {
  lookup_result made = look_up(host, port);
  if (!made.why) made.why = objection_to(mode, host, made.found);
  if (made.why) throw exception{std::move(made.why)};
  return std::move(made.found);
}

/// Looks up a name on a thread of its own, because a query of the name service cannot be cancelled. Destroying it
/// leaves the thread to end by itself. Threads: the one that runs the context.
class name_lookup {
public:
  /// Calls \p done in \p context. Errors: out_of_memory, if the system has no threads left.
  name_lookup(asio::io_context& context, std::string host, std::uint16_t port, std::function<void(lookup_result)> done)
    : state_{std::make_shared<shared_state>()} {
    state_->context = &context;
    worker{[state = state_, host = std::move(host), port, done = std::move(done)]() mutable {
      name_this_thread("troupe/names");
      lookup_result made = look_up(host, port);
      const std::lock_guard lock{state->mutex};
      if (state->context == nullptr) return;
      asio::post(*state->context, [state, made = std::move(made), done = std::move(done)]() mutable {
        if (state->context != nullptr) done(std::move(made));
      });
    }}.detach();
  }
  name_lookup(const name_lookup&) = delete;
  name_lookup& operator=(const name_lookup&) = delete;
  ~name_lookup() {
    const std::lock_guard lock{state_->mutex};
    state_->context = nullptr;
  }

private:
  struct shared_state {
    std::mutex mutex;
    asio::io_context* context = nullptr; ///< Null when the result is no longer wanted.
  };
  std::shared_ptr<shared_state> state_;
};

/// Creates a socket that child processes do not inherit, as they would inherit Asio's own.
file_descriptor new_socket(const tcp::endpoint& where) {
  return file_descriptor{::socket(where.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
}

void set_option(int descriptor, int level, int name, int value) noexcept {
  static_cast<void>(setsockopt(descriptor, level, name, &value, sizeof value));
}

/// Disables send delays, and detects within \p patience that the other machine is gone.
void watch_peer(int descriptor, std::chrono::milliseconds patience) noexcept {
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(patience.count()));
}

/// Errors: invalid_argument if the port is in use or this machine has no such address.
file_descriptor listen_at(const tcp::endpoint& where) {
  const auto refuse = [&where](const char* call) {
    const int code = errno;
    throw_system_error(errc::invalid_argument, call,
                       "cannot listen at " + text_of(where) +
                           (code == EADDRINUSE ? ": another program does; choose another port or end it"
                                               : ": choose an address of this machine and a port that you may use"),
                       code);
  };
  file_descriptor made = new_socket(where);
  if (!made) refuse("socket");
  set_option(made.native(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(made.native(), where.data(), static_cast<socklen_t>(where.size())) != 0) refuse("bind");
  if (::listen(made.native(), listen_backlog) != 0) refuse("listen");
  return made;
}

std::string connect_failure_text(int native_code) {
  switch (native_code) {
    case ECONNREFUSED: return "connection refused: no process listens there";
    case EHOSTUNREACH:
    case ENETUNREACH: return "there is no route to it";
    case ETIMEDOUT: return "it does not answer";
    case EMFILE:
    case ENFILE: return "this process has no file descriptors left";
    default: return std::generic_category().message(native_code);
  }
}

/// Runs an io_context on a thread of its own until it is stopped.
class io_loop {
public:
  io_loop() = default;
  io_loop(const io_loop&) = delete;
  io_loop& operator=(const io_loop&) = delete;
  ~io_loop() {
    stop([] {});
  }

  /// Errors: out_of_memory, if the system has no threads left.
  void start() {
    thread_ = worker{[this] {
      name_this_thread("troupe/control");
      run();
    }};
  }

  /// Runs \p last on the thread, and returns when the thread has ended. \p last must end all waits.
  template <class Last>
  void stop(Last last) noexcept {
    if (!thread_.joinable()) return;
    asio::post(context, [this, last] {
      last();
      work_.reset();
    });
    thread_.join();
  }

  asio::io_context context{1};
  std::vector<char> read_buffer = std::vector<char>(read_bytes); ///< Used by the connection that is being read.

private:
  /// Continues after an exception, such as a failed allocation. Its handler is lost; if a connection waits for the
  /// handler's work, its deadline ends it.
  void run() noexcept {
    for (;;) {
      try {
        context.run();
        return;
      } catch (const std::exception&) { // NOLINT(bugprone-empty-catch)
      }
    }
  }

  asio::executor_work_guard<asio::io_context::executor_type> work_{context.get_executor()};
  worker thread_;
};

/// The functions of a session's owner, which the transport's thread calls.
struct session_handlers {
  std::function<void()> on_admitted;
  std::function<void(std::string bytes)> on_message;
  /// Called once, when the connection is no longer open or was not admitted.
  std::function<void(const transport_fault& why)> on_lost;
  std::function<void()> on_closed; ///< Called once, when its socket has been closed.
};

/// Moves bytes between a socket and a connection. Its members are called by the transport's thread, except send().
class socket_session : public std::enable_shared_from_this<socket_session> {
public:
  socket_session(io_loop& loop, connection_terms& terms, tcp::socket socket, std::string peer,
                 session_handlers handlers)
    : loop_{loop},
      limit_{terms.limits.queue_bytes},
      socket_{std::move(socket)},
      timer_{loop.context},
      state_{terms, std::move(peer), transport_now()},
      handlers_{std::move(handlers)} {
    watch_peer(socket_.native_handle(), terms.limits.stall);
  }

  void start() {
    await_input();
    advance();
  }

  /// Appends a message. Threads: any.
  void send(std::string bytes) {
    {
      const std::lock_guard lock{outbox_mutex_};
      outbox_bytes_ += bytes.size();
      if (outbox_bytes_ <= limit_) outbox_.push_back(std::move(bytes)); // else the connection is about to end
      if (std::exchange(is_outbox_announced_, true)) return;
    }
    asio::post(loop_.context, [self = shared_from_this()] { self->empty_outbox(); });
  }

  void close(transport_event_kind kind, const std::string& why) {
    empty_outbox();
    state_.close(kind, why, transport_now());
    advance();
  }

  /// Closes the socket now, after one attempt to send what is left.
  void cut(transport_event_kind kind, const std::string& why) {
    close(kind, why);
    finish();
  }

  [[nodiscard]] bool is_pending() const noexcept { return state_.is_pending(); }
  [[nodiscard]] bool is_open() const noexcept { return state_.is_open(); }

private:
  void empty_outbox() {
    std::vector<std::string> all;
    bool is_overflowed = false;
    {
      const std::lock_guard lock{outbox_mutex_};
      all.swap(outbox_);
      is_overflowed = outbox_bytes_ > limit_;
      outbox_bytes_ = 0;
      is_outbox_announced_ = false;
    }
    const time_point now = transport_now();
    guarded([&] {
      for (const std::string& one : all) state_.send(one, now);
    });
    if (is_overflowed)
      state_.lose("was too slow: more than " + std::to_string(limit_) + " bytes waited for it, which is the limit",
                  now);
    advance();
  }

  void await_input() {
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](const failure& why) {
      if (why || self->is_finished_) return;
      self->read();
      if (!self->is_finished_) self->await_input();
    });
  }

  /// Reads once, so that a peer that keeps sending cannot delay the other connections.
  void read() {
    const ssize_t got = ::recv(socket_.native_handle(), loop_.read_buffer.data(), loop_.read_buffer.size(), 0);
    const int code = errno;
    const time_point now = transport_now();
    is_ended_by_peer_ = is_ended_by_peer_ || got == 0 || (got < 0 && is_end_by_peer(code));
    guarded([&] {
      if (got > 0)
        state_.receive({loop_.read_buffer.data(), static_cast<std::size_t>(got)}, now);
      else if (got == 0)
        state_.receive_end(now);
      else if (code != EAGAIN && code != EWOULDBLOCK && code != EINTR)
        lose(code, now);
    });
    if (got == 0 && !state_.is_over()) is_input_over_ = true;
    advance();
    if (is_input_over_ && !is_finished_) finish(); // a wait for input would return at once, again and again
  }

  /// Returns whether this error of a socket says that the other side's system does not have the connection any more.
  [[nodiscard]] static bool is_end_by_peer(int code) noexcept { return code == ECONNRESET || code == EPIPE; }

  void lose(int code, time_point now) {
    state_.lose("broke off the connection (" + std::generic_category().message(code) + ")", now);
  }

  /// An exception ends this connection, not the transport.
  template <class Step>
  void guarded(Step step) {
    try {
      step();
    } catch (const std::exception& why) {
      state_.lose(std::string{"could not be served: "} + why.what(), transport_now());
    }
  }

  /// Sends what can be sent without waiting, delivers what has arrived, and waits for the next event.
  void advance() {
    if (is_finished_) return;
    // A fault is reported before this side ends the connection: the peer may rely on that (process_session::lost()).
    if (state_.fault()) deliver();
    write();
    deliver();
    if (is_finished_) return; // by a handler
    if (state_.is_over()) return finish();
    if (state_.present_phase() == connection::phase::leaving && state_.unsent_bytes() == 0)
      ::shutdown(socket_.native_handle(), SHUT_WR);
    await_deadline();
  }

  void write() {
    for (;;) {
      if (written_ == writing_.size()) {
        writing_ = state_.take_output();
        written_ = 0;
        if (writing_.empty()) return;
      }
      const ssize_t sent =
          ::send(socket_.native_handle(), writing_.data() + written_, writing_.size() - written_, MSG_NOSIGNAL);
      const int code = errno;
      if (sent >= 0) {
        written_ += static_cast<std::size_t>(sent);
        state_.sent(static_cast<std::size_t>(sent), transport_now());
      } else if (code == EAGAIN || code == EWOULDBLOCK) {
        return await_room();
      } else if (code != EINTR) {
        written_ = writing_.size();
        is_ended_by_peer_ = is_ended_by_peer_ || is_end_by_peer(code);
        return lose(code, transport_now());
      }
    }
  }

  void await_room() {
    if (std::exchange(is_awaiting_room_, true)) return;
    socket_.async_wait(tcp::socket::wait_write, [self = shared_from_this()](const failure& why) {
      self->is_awaiting_room_ = false;
      if (!why) self->advance();
    });
  }

  void deliver() {
    if (state_.was_admitted() && !std::exchange(is_announced_, true) && handlers_.on_admitted) handlers_.on_admitted();
    for (std::string& one : state_.take_messages())
      if (handlers_.on_message) handlers_.on_message(std::move(one));
    if (!state_.fault() || std::exchange(is_lost_, true) || !handlers_.on_lost) return;
    transport_fault why = *state_.fault();
    why.is_by_peer = is_ended_by_peer_;
    handlers_.on_lost(why);
  }

  void await_deadline() {
    const time_point due = state_.due();
    if (due == awaited_) return;
    awaited_ = due;
    timer_.cancel();
    if (due == time_point::max()) return;
    timer_.expires_at(due);
    timer_.async_wait([self = shared_from_this(), due](const failure& why) {
      if (why || self->is_finished_ || due != self->awaited_) return;
      self->awaited_ = time_point::max();
      self->state_.tick(transport_now());
      self->advance();
    });
  }

  void finish() {
    if (std::exchange(is_finished_, true)) return;
    failure ignored;
    socket_.close(ignored);
    timer_.cancel();
    const auto closed = std::exchange(handlers_, {}).on_closed;
    if (closed) closed();
  }

  io_loop& loop_;
  const std::size_t limit_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  connection state_;
  session_handlers handlers_;
  std::string writing_;
  std::size_t written_ = 0; ///< Number of bytes of writing_ that the socket has accepted.
  time_point awaited_ = time_point::max();
  bool is_awaiting_room_ = false;
  bool is_announced_ = false;
  bool is_lost_ = false;
  bool is_input_over_ = false;
  bool is_ended_by_peer_ = false; ///< See transport_fault::is_by_peer.
  bool is_finished_ = false;

  std::mutex outbox_mutex_;
  std::vector<std::string> outbox_;
  std::size_t outbox_bytes_ = 0;
  bool is_outbox_announced_ = false; ///< A task of the transport's thread that empties the outbox is queued.
};

} // namespace

struct transport_listener::parts {
  explicit parts(transport_listener_options wanted)
    : options{std::move(wanted)}, terms{connection_side::listener, options.mode,    options.limits,
                                        options.credentials,       options.version, options.on_event} {
    const std::vector<tcp::endpoint> addresses = resolve(options.mode, options.address, options.port);
    file_descriptor made = listen_at(addresses.front());
    acceptor.assign(addresses.front().protocol(), made.native());
    static_cast<void>(made.release());
    where = acceptor.local_endpoint();
    where_text = text_of(where);
    await_peers();
    loop.start();
  }

  void await_peers() {
    acceptor.async_wait(tcp::acceptor::wait_read, [this](const failure& why) {
      if (why) return;
      if (accept_all()) return await_peers();
      pause.expires_after(pause_without_descriptors);
      pause.async_wait([this](const failure& cancelled) {
        if (!cancelled) await_peers();
      });
    });
  }

  /// Returns false if the system had no resources for a connection.
  bool accept_all() {
    for (int i = 0; i < accepts_per_turn; ++i) {
      tcp::endpoint peer;
      auto length = static_cast<socklen_t>(peer.capacity());
      file_descriptor socket{::accept4(acceptor.native_handle(), peer.data(), &length, SOCK_NONBLOCK | SOCK_CLOEXEC)};
      if (socket) {
        peer.resize(length);
        admit(std::move(socket), peer);
      } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        const bool is_descriptor = errno == EMFILE || errno == ENFILE;
        terms.reports.report_stranger(
            transport_event_kind::too_many, {},
            "the control port cannot accept a connection: " + std::generic_category().message(errno) +
                (is_descriptor ? ": raise the limit (ulimit -n)" : ""),
            transport_now());
        return false;
      } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
        return true;
      }
    }
    return true;
  }

  void admit(file_descriptor descriptor, const tcp::endpoint& peer) {
    make_room();
    try {
      tcp::socket socket{loop.context};
      socket.assign(peer.protocol(), descriptor.native());
      static_cast<void>(descriptor.release());
      const auto id = static_cast<peer_id>(++latest);
      session_handlers handlers{.on_admitted =
                                    [this, id] {
                                      const std::lock_guard lock{mutex};
                                      peers[id] = sessions.at(id);
                                    },
                                .on_message =
                                    [this, id](std::string bytes) {
                                      if (options.on_message) options.on_message(id, std::move(bytes));
                                    },
                                .on_lost =
                                    [this, id](const transport_fault& fault) {
                                      {
                                        const std::lock_guard lock{mutex};
                                        if (peers.erase(id) == 0) return; // never admitted
                                      }
                                      if (options.on_lost && !is_stopping) options.on_lost(id, fault);
                                    },
                                .on_closed = [this, id] { sessions.erase(id); }};
      const auto made =
          std::make_shared<socket_session>(loop, terms, std::move(socket), text_of(peer), std::move(handlers));
      sessions.emplace(id, made);
      made->start();
    } catch (const std::exception& why) {
      terms.reports.report_stranger(transport_event_kind::broken, text_of(peer), why.what(), transport_now());
    }
  }

  /// If the limit of pending connections is reached, closes the oldest: a legitimate peer needs only milliseconds.
  void make_room() {
    const auto is_pending = [](const auto& one) { return one.second->is_pending(); };
    const auto pending = std::count_if(sessions.begin(), sessions.end(), is_pending);
    // Refused connections, which are still read for a moment, are bounded as well.
    const auto most =
        static_cast<std::size_t>(options.limits.connections) + 2 * static_cast<std::size_t>(options.limits.pending);
    auto oldest = sessions.end();
    if (pending >= options.limits.pending)
      oldest = std::find_if(sessions.begin(), sessions.end(), is_pending);
    else if (sessions.size() >= most)
      oldest = std::find_if(sessions.begin(), sessions.end(), [](const auto& one) { return !one.second->is_open(); });
    if (oldest == sessions.end()) return;
    const std::shared_ptr<socket_session> one = oldest->second;
    one->cut(transport_event_kind::too_many,
             "was closed for a newer connection: " + std::to_string(options.limits.pending) +
                 " connections waited to be admitted, which is the limit");
  }

  void stop() noexcept {
    loop.stop([this] {
      is_stopping = true;
      failure ignored;
      acceptor.close(ignored);
      pause.cancel();
      const auto all = sessions;
      for (const auto& [id, one] : all)
        one->cut(transport_event_kind::ended, "was closed: this control port has been stopped");
    });
  }

  transport_listener_options options;
  connection_terms terms;
  io_loop loop;
  tcp::acceptor acceptor{loop.context};
  asio::steady_timer pause{loop.context};
  tcp::endpoint where;
  std::string where_text;
  std::map<peer_id, std::shared_ptr<socket_session>> sessions; ///< The connections, the oldest first.
  std::uint64_t latest = 0;
  bool is_stopping = false;
  std::mutex mutex;
  std::map<peer_id, std::shared_ptr<socket_session>> peers; ///< The admitted ones.
};

transport_listener::transport_listener(transport_listener_options options)
  : parts_{std::make_unique<parts>(std::move(options))} {}

transport_listener::~transport_listener() {
  stop();
}

std::uint16_t transport_listener::port() const noexcept {
  return parts_->where.port();
}

const std::string& transport_listener::address() const noexcept {
  return parts_->where_text;
}

void transport_listener::send(peer_id to, std::string bytes) {
  std::shared_ptr<socket_session> through;
  {
    const std::lock_guard lock{parts_->mutex};
    const auto found = parts_->peers.find(to);
    if (found == parts_->peers.end()) return;
    through = found->second;
  }
  through->send(std::move(bytes));
}

void transport_listener::stop() noexcept {
  parts_->stop();
}

struct transport_dialer::parts {
  explicit parts(transport_dialer_options wanted)
    : options{std::move(wanted)}, terms{connection_side::dialer, options.mode,    options.limits,
                                        options.credentials,     options.version, options.on_event} {
    if (options.port == 0)
      throw exception{errc::invalid_argument,
                      "port 0 of '" + options.host + "' is not a port to connect to: give the controller's port"};
    // A name is looked up for each connection: it may not be known yet, and its address may change.
    failure not_numeric;
    asio::ip::make_address(options.host, not_numeric);
    is_name = not_numeric && !options.host.empty();
    if (!is_name) addresses = resolve(options.mode, options.host, options.port);
    name = host_and_port(options.host, options.port);
    loop.start();
  }

  void connect(dial_handlers wanted) {
    abandon();
    ++attempt;
    handlers = std::move(wanted);
    last_code = 0;
    patience.expires_after(options.limits.connect);
    patience.async_wait([this, mine = attempt](const failure& why) {
      if (why || mine != attempt || !(connecting || is_awaiting_lookup)) return;
      connecting.reset();
      const bool is_unknown = std::exchange(is_awaiting_lookup, false);
      fail(transport_event_kind::unreachable,
           "could not be reached within " + std::to_string(options.limits.connect.count()) +
               " ms: " + (is_unknown ? "the name service" : "it") + " does not answer");
    });
    if (!is_name) return try_address(0);
    is_awaiting_lookup = true;
    try {
      if (!lookup) // else an earlier one has not ended
        lookup.emplace(loop.context, options.host, options.port,
                       [this](lookup_result made) { take_addresses(std::move(made)); });
    } catch (const std::exception& none) {
      patience.cancel();
      is_awaiting_lookup = false;
      fail(transport_event_kind::unreachable, std::string{"could not be looked up: "} + none.what());
    }
  }

  void take_addresses(lookup_result made) {
    lookup.reset();
    if (!std::exchange(is_awaiting_lookup, false)) return; // its attempt has been given up
    if (!made.why) made.why = objection_to(options.mode, options.host, made.found);
    addresses = std::move(made.found);
    if (!made.why) return try_address(0);
    patience.cancel();
    // A name that is unknown may become known. One that needs certificates is refused for good.
    const bool is_unknown = addresses.empty();
    fail(is_unknown ? transport_event_kind::unreachable : transport_event_kind::bad_certificate,
         "could not be reached: " + made.why.text + (is_unknown ? " (" + made.why.native_text + ")" : ""));
  }

  void try_address(std::size_t which) {
    if (which == addresses.size()) {
      patience.cancel();
      return fail(transport_event_kind::unreachable, "could not be reached: " + connect_failure_text(last_code));
    }
    const tcp::endpoint& to = addresses[which];
    file_descriptor made = new_socket(to);
    if (!made) {
      last_code = errno;
      return try_address(which + 1);
    }
    connecting.emplace(loop.context);
    connecting->assign(to.protocol(), made.native());
    static_cast<void>(made.release());
    connecting->async_connect(to, [this, which, mine = attempt](const failure& why) {
      if (mine != attempt || !connecting) return;
      if (why || is_itself(*connecting)) {
        last_code = why ? why.value() : ECONNREFUSED;
        connecting.reset();
        return try_address(which + 1);
      }
      patience.cancel();
      tcp::socket socket = std::move(*connecting);
      connecting.reset();
      begin(std::move(socket));
    });
  }

  /// Returns whether a socket is connected to itself: the kernel may give it the port that it connects to, when nobody
  /// listens there. It would keep the controller from listening.
  [[nodiscard]] static bool is_itself(const tcp::socket& one) {
    failure none;
    return one.local_endpoint(none) == one.remote_endpoint(none) && !none;
  }

  void begin(tcp::socket socket) {
    const auto is_mine = [this, mine = attempt] { return mine == attempt; };
    try {
      const auto made =
          std::make_shared<socket_session>(loop, terms, std::move(socket), name,
                                           session_handlers{.on_admitted =
                                                                [this, is_mine] {
                                                                  if (!is_mine()) return;
                                                                  {
                                                                    const std::lock_guard lock{mutex};
                                                                    admitted = current;
                                                                  }
                                                                  if (handlers.on_admitted) handlers.on_admitted();
                                                                },
                                                            .on_message =
                                                                [this, is_mine](std::string bytes) {
                                                                  if (is_mine() && handlers.on_message)
                                                                    handlers.on_message(std::move(bytes));
                                                                },
                                                            .on_lost =
                                                                [this, is_mine](const transport_fault& why) {
                                                                  if (is_mine()) report_lost(why);
                                                                },
                                                            .on_closed = {}});
      current = made;
      made->start();
    } catch (const std::exception& why) {
      fail(transport_event_kind::broken, std::string{"could not be served: "} + why.what());
    }
  }

  void fail(transport_event_kind kind, const std::string& predicate) {
    const transport_fault why{kind, "the controller at " + name + " " + predicate};
    terms.reports.report(kind, name, why.text);
    report_lost(why);
  }

  void report_lost(const transport_fault& why) {
    {
      const std::lock_guard lock{mutex};
      admitted.reset();
    }
    const auto lost = std::exchange(handlers, {}).on_lost;
    if (lost) lost(why);
  }

  /// Ends the present connection without calling its handlers.
  void abandon() {
    handlers = {};
    ++attempt;
    connecting.reset();
    is_awaiting_lookup = false;
    patience.cancel();
    {
      const std::lock_guard lock{mutex};
      admitted.reset();
    }
    if (const auto before = std::exchange(current, nullptr))
      before->cut(transport_event_kind::ended, "was left by this process");
  }

  void stop() noexcept {
    loop.stop([this] {
      abandon();
      lookup.reset();
    });
  }

  transport_dialer_options options;
  connection_terms terms;
  io_loop loop;
  bool is_name = false;                 ///< Whether the host is a name, not an address.
  std::vector<tcp::endpoint> addresses; ///< The host's, as of the latest lookup.
  std::optional<name_lookup> lookup;    ///< The lookup that has not ended.
  bool is_awaiting_lookup = false;      ///< Whether the latest connect() waits for it.
  std::string name;
  dial_handlers handlers; ///< The handlers of the latest connect().
  std::uint64_t attempt = 0;
  std::optional<tcp::socket> connecting;
  asio::steady_timer patience{loop.context};
  int last_code = 0; ///< Why the last address could not be reached.
  std::shared_ptr<socket_session> current;
  std::mutex mutex;
  std::shared_ptr<socket_session> admitted; ///< The present session if it is admitted.
};

transport_dialer::transport_dialer(transport_dialer_options options)
  : parts_{std::make_unique<parts>(std::move(options))} {}

transport_dialer::~transport_dialer() {
  stop();
}

void transport_dialer::connect(dial_handlers handlers) {
  asio::post(parts_->loop.context,
             [all = parts_.get(), wanted = std::move(handlers)]() mutable { all->connect(std::move(wanted)); });
}

void transport_dialer::leave() {
  std::promise<void> done;
  asio::post(parts_->loop.context, [all = parts_.get(), &done] {
    all->abandon();
    done.set_value();
  });
  done.get_future().wait();
}

void transport_dialer::send(std::string bytes) {
  std::shared_ptr<socket_session> through;
  {
    const std::lock_guard lock{parts_->mutex};
    through = parts_->admitted;
  }
  if (through) through->send(std::move(bytes));
}

void transport_dialer::stop() noexcept {
  parts_->stop();
}

} // namespace troupe
