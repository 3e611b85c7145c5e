#include <troupe/backends/gloo/gloo_store.hpp>

#include <troupe/device/error.hpp>
#include <troupe/device/file_descriptor.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/device/topology/thread_binding.hpp>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/post.hpp>
#include <asio/read.hpp>
#include <asio/steady_timer.hpp>
#include <asio/use_future.hpp>
#include <asio/write.hpp>

#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

using namespace std::chrono_literals;
using asio::ip::tcp;
using failure = asio::error_code;
using store_clock = std::chrono::steady_clock;

} // namespace

void throw_no_descriptors(const char* call, int code) {
  throw_system_error(errc::out_of_memory, call,
                     "no file descriptor is left for the gloo backend: raise the limit (ulimit -n)", code);
}

namespace {

[[noreturn]] void refuse_address(const char* call) {
  const int code = errno;
  if (code == EMFILE || code == ENFILE) throw_no_descriptors(call, code);
  throw_system_error(code == EADDRNOTAVAIL ? errc::invalid_argument : errc::internal, call,
                     "the gloo backend's store cannot listen: name an address of this machine (gloo.interface_address)",
                     code);
}

gloo_secret draw_secret() {
  gloo_secret made;
  if (::getrandom(made.data(), made.size(), 0) != static_cast<ssize_t>(made.size()))
    throw_system_error(errc::internal, "getrandom", "the gloo backend's store has no secret: no random numbers", errno);
  return made;
}

tcp::endpoint to_asio(const socket_address& where) {
  tcp::endpoint made;
  std::memcpy(made.data(), where.get(), where.size_bytes);
  made.resize(where.size_bytes);
  return made;
}

/// Creates a socket that child processes do not inherit, unlike Asio's own sockets.
file_descriptor new_socket(const tcp::endpoint& where) {
  return file_descriptor{::socket(where.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
}

/// Creates a T, which contains an asio::io_context. Errors: out_of_memory (no file descriptor is left for the context).
template <class T, class... Arguments>
std::unique_ptr<T> make_with_descriptors(const Arguments&... arguments) {
  try {
    return std::make_unique<T>(arguments...);
  } catch (const std::system_error& refused) { // thrown by Asio
    throw_no_descriptors("epoll_create", refused.code().value());
  }
}

constexpr auto pause_between_attempts = 100ms;

} // namespace

struct gloo_store_server::formation {
  explicit formation(asio::io_context& context) : end{context, gloo_wire::time_for_forming} {}

  [[nodiscard]] bool has_ended() const {
    return end.expiry() <= store_clock::now() || (participants > 0 && formed >= participants);
  }

  const gloo_secret secret = draw_secret();
  asio::steady_timer end;
  std::map<std::string, std::string> values;
  std::set<tcp::socket*> waiting; ///< The clients that wait for a value.
  std::size_t held_bytes = 0;
  std::uint32_t participants = 0; ///< 0: no rank has connected yet.
  std::uint32_t formed = 0;
};

/// The state of the server's thread. Threads: that thread, except for the constructor and the destructor.
struct gloo_store_server::service {
  service(const socket_address& at, std::chrono::milliseconds for_hello) : address{at}, time_for_hello{for_hello} {}
  ~service() {
    context.stop();
    thread.join();
  }

  gloo_endpoint open() {
    const auto made = std::make_shared<formation>(context);
    if (!acceptor.is_open()) listen();
    made->end.async_wait([this](const failure&) { forget_ended(); });
    formations.push_back(made);
    return {.where = where, .secret = made->secret};
  }

  void listen() {
    file_descriptor made = new_socket(to_asio(address));
    if (!made) refuse_address("socket");
    if (::bind(made.native(), address.get(), address.size_bytes) != 0) refuse_address("bind");
    if (::listen(made.native(), SOMAXCONN) != 0) refuse_address("listen");
    where.size_bytes = sizeof where.bytes;
    if (::getsockname(made.native(), where.get(), &where.size_bytes) != 0) refuse_address("getsockname");
    acceptor.assign(to_asio(where).protocol(), made.native());
    static_cast<void>(made.release());
    await_clients();
  }

  void await_clients() {
    acceptor.async_wait(tcp::acceptor::wait_read, [this](const failure& closed) {
      if (closed) return;
      if (accept()) return await_clients();
      // The connection that was not accepted keeps the socket readable, so without a pause this loop would spin.
      pause.expires_after(pause_between_attempts);
      pause.async_wait([this](const failure& cancelled) {
        if (!cancelled) await_clients();
      });
    });
  }

  /// Returns false if there is no connection to accept, no descriptor is left, or there are too many connections.
  [[nodiscard]] bool accept();

  void forget_ended() {
    std::erase_if(formations, [](const auto& one) { return one->has_ended(); });
    if (!formations.empty()) return;
    failure ignored;
    acceptor.close(ignored);
    pause.cancel();
  }

  const socket_address address; ///< Without a port.
  const std::chrono::milliseconds time_for_hello;
  std::size_t connections = 0; ///< Declared before the context, whose handlers own the connections.
  asio::io_context context{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  tcp::acceptor acceptor{context};
  asio::steady_timer pause{context};
  socket_address where; ///< Includes the port.
  std::vector<std::shared_ptr<formation>> formations;
  worker thread{[this] {
    name_this_thread("troupe/store");
    context.run();
  }};
};

/// A client's connection. Its pending operation owns it; when none is pending, the connection is closed.
class gloo_store_server::session : public std::enable_shared_from_this<session> {
public:
  session(service& all, tcp::socket socket) : all_{all}, socket_{std::move(socket)}, patience_{all.context} {
    ++all_.connections;
  }
  ~session() { --all_.connections; }

  void start() {
    close_at(store_clock::now() + all_.time_for_hello);
    read(asio::buffer(&hello_, sizeof hello_), &session::greet);
  }

private:
  void close_at(store_clock::time_point when) {
    patience_.expires_at(when);
    patience_.async_wait([weak = weak_from_this()](const failure& cancelled) {
      failure ignored;
      if (const auto self = weak.lock(); self && !cancelled) self->socket_.close(ignored);
    });
  }

  template <class Buffers>
  void read(const Buffers& into, void (session::*next)()) {
    asio::async_read(socket_, into, [self = shared_from_this(), next](const failure& why, std::size_t) {
      if (!why) (self.get()->*next)();
    });
  }

  /// Sends the answer to a request, then reads the next one.
  template <class Buffers>
  void answer(const Buffers& from) {
    asio::async_write(socket_, from, [self = shared_from_this()](const failure& why, std::size_t) {
      if (!why) self->read(asio::buffer(&self->header_, sizeof self->header_), &session::read_content);
    });
  }
  void agree() { answer(asio::buffer(&gloo_wire::agreed, sizeof gloo_wire::agreed)); }

  void greet() {
    if (hello_.magic != gloo_wire::hello_magic || hello_.participants == 0 ||
        hello_.participants > gloo_wire::most_participants)
      return;
    for (const auto& each : all_.formations)
      if (equal(each->secret, hello_.secret)) of_ = each;
    if (!of_) return;
    if (of_->participants == 0) of_->participants = hello_.participants;
    if (of_->participants != hello_.participants) return;
    close_at(of_->end.expiry());
    agree();
  }

  void read_content() {
    if (header_.key_bytes > gloo_wire::most_key_bytes || header_.value_bytes > gloo_wire::most_value_bytes) return;
    key_.resize(header_.key_bytes);
    value_.resize(header_.value_bytes);
    read(std::array{asio::buffer(key_), asio::buffer(value_)}, &session::handle);
  }

  void handle() {
    switch (header_.what) {
      case gloo_wire::request::set:
        of_->held_bytes += key_.size() + value_.size();
        if (of_->held_bytes > gloo_wire::most_formation_bytes) return;
        // A key can be set only once, because ranks may already have read its value.
        if (!of_->values.emplace(key_, value_).second) return;
        for (tcp::socket* const each : of_->waiting) each->cancel();
        return agree();
      case gloo_wire::request::get: return answer_get();
      case gloo_wire::request::formed:
        ++of_->formed;
        all_.forget_ended();
        return agree();
    }
  }

  void answer_get() {
    if (const auto found = of_->values.find(key_); found != of_->values.end()) {
      header_.value_bytes = static_cast<std::uint32_t>(found->second.size());
      return answer(std::array<asio::const_buffer, 2>{asio::buffer(&header_.value_bytes, sizeof header_.value_bytes),
                                                      asio::buffer(found->second)});
    }
    // The wait is cancelled when a key has been set. If it succeeds, the client has disconnected or sent data before
    // the answer, and the session ends.
    of_->waiting.insert(&socket_);
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](const failure& cancelled) {
      self->of_->waiting.erase(&self->socket_);
      if (cancelled && self->socket_.is_open()) self->answer_get();
    });
  }

  service& all_;
  tcp::socket socket_;
  asio::steady_timer patience_;
  std::shared_ptr<formation> of_; ///< Null until the client has presented the secret.
  gloo_wire::hello hello_{};
  gloo_wire::request_header header_{};
  std::string key_, value_; ///< Key and value of the latest request.
};

bool gloo_store_server::service::accept() {
  if (connections >= gloo_wire::most_connections) return false;
  file_descriptor made{::accept4(acceptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
  if (!made) return false;
  failure refused;
  tcp::socket socket{context};
  socket.assign(to_asio(where).protocol(), made.native(), refused);
  if (refused) return false;
  static_cast<void>(made.release());
  std::make_shared<session>(*this, std::move(socket))->start();
  return true;
}

gloo_store_server::gloo_store_server(socket_address interface, std::chrono::milliseconds time_for_hello) noexcept
  : interface_{interface}, time_for_hello_{time_for_hello} {}

gloo_store_server::~gloo_store_server() = default;

gloo_endpoint gloo_store_server::open() {
  std::call_once(started_, [this] { service_ = make_with_descriptors<service>(interface_, time_for_hello_); });
  return asio::post(service_->context, asio::use_future([this] { return service_->open(); })).get();
}

namespace {

[[noreturn]] void report_lost_store(const char* call, int code) {
  throw exception{error{.code = errc::communicator_failed,
                        .text = "the formation's store does not answer: the process that made the unique id has ended, "
                                "cannot be reached, or has given the formation up. Form again with a new id",
                        .call = call,
                        .native_code = code,
                        .native_text = code == 0 ? "connection closed" : std::generic_category().message(code)}};
}

} // namespace

/// A connection to the server, with calls that block.
class gloo_store::connection {
public:
  connection(const gloo_endpoint& endpoint, std::uint32_t participants)
    : where_{to_asio(endpoint.where)},
      hello_{.magic = gloo_wire::hello_magic, .secret = endpoint.secret, .participants = participants, .reserved = 0} {}

  void open(time_point until) {
    if (socket_.is_open()) return;
    file_descriptor made = new_socket(where_);
    if (!made) report_lost_store("socket", errno);
    failure refused;
    socket_.assign(where_.protocol(), made.native(), refused);
    if (refused) report_lost_store("socket", refused.value());
    static_cast<void>(made.release());
    run("connect", until, [&](auto done) { socket_.async_connect(where_, done); });
    send(asio::buffer(&hello_, sizeof hello_), until);
    expect_agreement(until);
  }

  template <class Buffers>
  void send(const Buffers& from, time_point until) {
    run("send", until, [&](auto done) { asio::async_write(socket_, from, done); });
  }

  void receive(asio::mutable_buffer into, time_point until) {
    run("recv", until, [&](auto done) { asio::async_read(socket_, into, done); });
  }

  void expect_agreement(time_point until) {
    std::byte answer{};
    receive(asio::buffer(&answer, sizeof answer), until);
    if (answer != gloo_wire::agreed) report_lost_store("recv", EPROTO);
  }

  void close() {
    failure ignored;
    socket_.close(ignored);
  }

  /// Threads: any.
  void interrupt() noexcept {
    is_interrupted_ = true;
    context_.stop();
  }

private:
  /// Runs the operation that \p begin begins, until it ends.
  template <class Begin>
  void run(const char* call, time_point until, Begin begin) {
    std::optional<failure> end;
    begin([&end](const failure& why, auto&&...) { end = why; });
    context_.restart();
    if (!is_interrupted_) context_.run_until(until); // interrupt() may have been called before restart()
    if (end && !is_interrupted_) {
      if (*end) report_lost_store(call, *end == asio::error::eof ? 0 : end->value());
      return;
    }
    close();
    for (; !end; context_.run()) context_.restart(); // the operation uses memory of the caller
    if (is_interrupted_) throw exception{errc::communicator_failed, "the communicator was aborted"};
    throw exception{
        errc::deadline_exceeded,
        "other ranks did not join the formation in time: check that all are started and have the same unique id"};
  }

  const tcp::endpoint where_;
  const gloo_wire::hello hello_;
  std::atomic<bool> is_interrupted_{false};
  asio::io_context context_{1};
  tcp::socket socket_{context_};
};

gloo_store::gloo_store(const gloo_endpoint& endpoint, std::uint32_t participants, std::string prefix)
  : prefix_{std::move(prefix)}, connection_{make_with_descriptors<connection>(endpoint, participants)} {}

gloo_store::~gloo_store() = default;

void gloo_store::interrupt() noexcept {
  connection_->interrupt();
}

void gloo_store::connect() {
  connection_->open(store_clock::now() + gloo_wire::time_for_forming);
}

void gloo_store::ask(gloo_wire::request what, const std::string& key, const std::vector<char>& value,
                     time_point until) {
  if (on_use_) on_use_();
  if (key.size() > gloo_wire::most_key_bytes || value.size() > gloo_wire::most_value_bytes)
    throw exception{errc::invalid_argument, "a key of " + std::to_string(key.size()) + " bytes and a value of " +
                                                std::to_string(value.size()) +
                                                " bytes exceed the limits of a formation's store (" +
                                                std::to_string(gloo_wire::most_key_bytes) + " and " +
                                                std::to_string(gloo_wire::most_value_bytes) + ")"};
  connection_->open(until);
  const gloo_wire::request_header header{.what = what,
                                         .key_bytes = static_cast<std::uint32_t>(key.size()),
                                         .value_bytes = static_cast<std::uint32_t>(value.size())};
  connection_->send(std::array{asio::buffer(&header, sizeof header), asio::buffer(key), asio::buffer(value)}, until);
}

void gloo_store::set(const std::string& key, const std::vector<char>& data) {
  const auto until = store_clock::now() + gloo_wire::time_for_forming;
  ask(gloo_wire::request::set, prefix_ + key, data, until);
  connection_->expect_agreement(until);
}

std::vector<char> gloo_store::get(const std::string& key) {
  wait({key}, gloo_wire::time_for_forming);
  return known_.at(key);
}

void gloo_store::wait(const std::vector<std::string>& keys) {
  wait(keys, gloo_wire::time_for_forming);
}

void gloo_store::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  const auto until = store_clock::now() + timeout;
  for (const std::string& key : keys) {
    if (known_.contains(key)) continue;
    ask(gloo_wire::request::get, prefix_ + key, {}, until);
    std::uint32_t size = 0;
    connection_->receive(asio::buffer(&size, sizeof size), until);
    if (size > gloo_wire::most_value_bytes) report_lost_store("recv", EPROTO);
    std::vector<char> value(size);
    connection_->receive(asio::buffer(value), until);
    known_.emplace(key, std::move(value));
  }
}

void gloo_store::formed() {
  const auto until = store_clock::now() + gloo_wire::time_for_forming;
  ask(gloo_wire::request::formed, {}, {}, until);
  connection_->expect_agreement(until);
  connection_->close();
}

} // namespace troupe
