#include <troupe/collectives/backend/gloo/gloo_store.hpp>

#include <troupe/device/error.hpp>
#include <troupe/device/topology/thread_binding.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <system_error>
#include <utility>

namespace troupe {

gloo_notifier::gloo_notifier() : file_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {
  if (!file_)
    throw exception{error{.code = errc::internal,
                          .text = "no file descriptor is left for the gloo backend: raise the limit (ulimit -n)",
                          .call = "eventfd",
                          .native_code = errno}};
}

namespace {

using namespace std::chrono_literals;

[[noreturn]] void refuse_address(const char* call) {
  const int code = errno;
  throw_system_error(code == EADDRNOTAVAIL ? errc::invalid_argument : errc::internal, call,
                     "the gloo backend's store cannot listen: name an address of this machine "
                     "(gloo.interface_address), and check that file descriptors are left (ulimit -n)",
                     code);
}

gloo_secret draw_secret() {
  gloo_secret made;
  if (::getrandom(made.data(), made.size(), 0) != static_cast<ssize_t>(made.size())) refuse_address("getrandom");
  return made;
}

/// Limit of one read, in bytes.
constexpr std::size_t piece_bytes = 16'384;
constexpr auto pause_without_descriptors = 100ms;

} // namespace

struct gloo_store_server::formation {
  gloo_secret secret{};
  clock::time_point until{};
  std::map<std::string, std::vector<std::byte>> values{};
  std::size_t held_bytes = 0;
  std::uint32_t participants = 0; ///< 0: no rank has connected yet.
  std::uint32_t formed = 0;
};

struct gloo_store_server::connection {
  file_descriptor socket;
  clock::time_point greets_until{};
  std::shared_ptr<formation> of{}; ///< Null until the client has presented the secret.
  std::vector<std::byte> heard{};  ///< Bytes received and not yet parsed.
  std::vector<std::byte> to_say{};
  std::size_t said = 0;
  std::string awaited{}; ///< The key of a pending get. While it is pending, no further request is parsed.
  bool waits = false;

  void say(const void* what, std::size_t size_bytes) {
    const auto* const begin = static_cast<const std::byte*>(what);
    to_say.insert(to_say.end(), begin, begin + size_bytes);
  }
  void say_value(const std::vector<std::byte>& value) {
    const auto size = static_cast<std::uint32_t>(value.size());
    say(&size, sizeof size);
    say(value.data(), value.size());
  }
  /// Sends pending bytes without blocking. Returns false if the socket has failed.
  [[nodiscard]] bool flush() {
    while (said < to_say.size()) {
      const ssize_t count =
          ::send(socket.native(), to_say.data() + said, to_say.size() - said, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
      said += static_cast<std::size_t>(count);
    }
    to_say.clear();
    said = 0;
    return true;
  }
};

gloo_store_server::gloo_store_server(socket_address interface) noexcept : interface_{interface} {}

gloo_store_server::~gloo_store_server() {
  {
    const std::lock_guard lock{mutex_};
    stopping_ = true;
  }
  notifier_.notify();
  if (thread_.joinable()) thread_.join();
}

gloo_endpoint gloo_store_server::open() {
  auto made = std::make_shared<formation>();
  made->secret = draw_secret();
  made->until = clock::now() + gloo_wire::time_for_forming;
  const std::lock_guard lock{mutex_};
  if (!serving_) {
    if (thread_.joinable()) thread_.join(); // the thread has ended, because there were no formations left
    listen();
    thread_ = worker{[this] {
      name_this_thread("troupe/store");
      serve();
    }};
    serving_ = true;
  }
  formations_.push_back(made);
  notifier_.notify(); // the deadline of the new formation may be the next one
  return {.where = where_, .secret = made->secret};
}

void gloo_store_server::listen() {
  file_descriptor made{::socket(interface_.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!made) refuse_address("socket");
  if (::bind(made.native(), interface_.get(), interface_.size_bytes) != 0) refuse_address("bind");
  if (::listen(made.native(), SOMAXCONN) != 0) refuse_address("listen");
  socket_address where;
  where.size_bytes = sizeof where.bytes;
  if (::getsockname(made.native(), where.get(), &where.size_bytes) != 0) refuse_address("getsockname");
  where_ = where;
  listener_ = std::move(made);
}

void gloo_store_server::serve() {
  visitor_list all;
  std::vector<pollfd> polled;
  while (true) {
    const auto now = clock::now();
    forget_old(now);
    std::erase_if(all, [&](const auto& one) { return one->of ? one->of->until <= now : one->greets_until <= now; });
    {
      const std::lock_guard lock{mutex_};
      if (stopping_ || (formations_.empty() && all.empty())) {
        listener_ = file_descriptor{};
        serving_ = false;
        return;
      }
    }

    polled.clear();
    polled.push_back({.fd = notifier_.native(), .events = POLLIN, .revents = 0});
    const bool listens = deaf_until_ <= now && all.size() < gloo_wire::most_connections;
    polled.push_back({.fd = listens ? listener_.native() : -1, .events = POLLIN, .revents = 0});
    for (const auto& one : all) {
      const int wanted = POLLRDHUP | (one->waits ? 0 : POLLIN) | (one->to_say.empty() ? 0 : POLLOUT);
      polled.push_back({.fd = one->socket.native(), .events = static_cast<short>(wanted), .revents = 0});
    }
    const auto patience = std::chrono::ceil<std::chrono::milliseconds>(next_deadline(all) - now).count();
    ::poll(polled.data(), polled.size(), static_cast<int>(std::clamp<decltype(patience)>(patience, 0, 60'000)));
    notifier_.reset();

    for (std::size_t i = 0; i < all.size(); ++i)
      if (polled[i + 2].revents != 0 && !converse(*all[i], polled[i + 2].revents)) all[i].reset();
    std::erase(all, nullptr);
    answer_waiting(all);
    if (polled[1].revents != 0) let_in(all, clock::now());
  }
}

void gloo_store_server::forget_old(clock::time_point now) {
  const std::lock_guard lock{mutex_};
  std::erase_if(formations_, [&](const auto& one) {
    return one->until <= now || (one->participants > 0 && one->formed >= one->participants);
  });
}

gloo_store_server::clock::time_point gloo_store_server::next_deadline(const visitor_list& all) {
  auto next = clock::time_point::max();
  if (deaf_until_ > clock::now()) next = deaf_until_;
  for (const auto& one : all) next = std::min(next, one->of ? one->of->until : one->greets_until);
  const std::lock_guard lock{mutex_};
  for (const auto& one : formations_) next = std::min(next, one->until);
  return std::min(next, clock::now() + 60s);
}

void gloo_store_server::let_in(visitor_list& all, clock::time_point now) {
  while (all.size() < gloo_wire::most_connections) {
    file_descriptor socket{::accept4(listener_.native(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (!socket) {
      // A connection that waits keeps the listening socket readable. Without a free descriptor the loop would spin.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
        deaf_until_ = now + pause_without_descriptors;
      return;
    }
    all.push_back(std::make_unique<connection>(
        connection{.socket = std::move(socket), .greets_until = now + gloo_wire::time_for_hello}));
  }
}

/// Reads and writes without blocking. Returns false if the connection is to be closed.
bool gloo_store_server::converse(connection& one, short seen) {
  if ((seen & POLLIN) != 0) {
    std::array<std::byte, piece_bytes> piece; // NOLINT(cppcoreguidelines-pro-type-member-init): recv() fills it
    const ssize_t count = ::recv(one.socket.native(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (count == 0) return false;
    if (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return false;
    if (count > 0) one.heard.insert(one.heard.end(), piece.data(), piece.data() + count);
    if (!understand(one)) return false;
  } else if ((seen & (POLLERR | POLLHUP | POLLRDHUP | POLLNVAL)) != 0) {
    return false;
  }
  return one.flush();
}

/// Executes all requests that were received in full. Returns false if a request is invalid or too large.
bool gloo_store_server::understand(connection& one) {
  std::size_t used = 0;
  const auto left = [&] { return one.heard.size() - used; };
  if (!one.of) {
    if (left() < sizeof(gloo_wire::hello)) return true;
    if (!greet(one)) return false;
    used = sizeof(gloo_wire::hello);
  }
  while (!one.waits && left() >= sizeof(gloo_wire::request_header)) {
    gloo_wire::request_header header{};
    std::memcpy(&header, &one.heard[used], sizeof header);
    if (header.key_bytes > gloo_wire::most_key_bytes || header.value_bytes > gloo_wire::most_value_bytes) return false;
    const std::size_t whole = sizeof header + header.key_bytes + header.value_bytes;
    if (left() < whole) break;
    if (!handle(one, header, one.heard.data() + used + sizeof header)) return false;
    used += whole;
  }
  one.heard.erase(one.heard.begin(), one.heard.begin() + static_cast<std::ptrdiff_t>(used));
  return true;
}

bool gloo_store_server::greet(connection& one) {
  gloo_wire::hello said{};
  std::memcpy(&said, one.heard.data(), sizeof said);
  if (said.magic != gloo_wire::hello_magic || said.participants == 0 ||
      said.participants > gloo_wire::most_participants)
    return false;
  const std::lock_guard lock{mutex_};
  for (const auto& each : formations_)
    if (equal(each->secret, said.secret)) one.of = each;
  if (!one.of) return false;
  if (one.of->participants == 0) one.of->participants = said.participants;
  if (one.of->participants != said.participants) return false;
  one.say(&gloo_wire::agreed, 1);
  return true;
}

bool gloo_store_server::handle(connection& one, const gloo_wire::request_header& header, const std::byte* content) {
  formation& here = *one.of;
  const std::string key{reinterpret_cast<const char*>(content), header.key_bytes};
  switch (header.what) {
    case gloo_wire::request::set: {
      here.held_bytes += header.key_bytes + header.value_bytes;
      if (here.held_bytes > gloo_wire::most_formation_bytes) return false;
      const std::byte* const value = content + header.key_bytes;
      // A key can be set only once, because ranks may already have read its value.
      if (!here.values.emplace(key, std::vector<std::byte>(value, value + header.value_bytes)).second) return false;
      one.say(&gloo_wire::agreed, 1);
      return true;
    }
    case gloo_wire::request::get:
      one.awaited = key;
      one.waits = true;
      return true;
    case gloo_wire::request::formed:
      ++here.formed;
      one.say(&gloo_wire::agreed, 1);
      return true;
  }
  return false;
}

void gloo_store_server::answer_waiting(visitor_list& all) {
  for (auto& one : all) {
    bool sound = true;
    while (sound && one->waits) {
      const auto found = one->of->values.find(one->awaited);
      if (found == one->of->values.end()) break;
      one->waits = false;
      one->say_value(found->second);
      sound = understand(*one) && one->flush(); // further requests may have arrived meanwhile
    }
    if (!sound) one.reset();
  }
  std::erase(all, nullptr);
}

namespace {

using store_clock = std::chrono::steady_clock;

[[noreturn]] void report_lost_store(const char* call, int code) {
  throw exception{error{.code = errc::communicator_failed,
                        .text = "the formation's store does not answer: the process that made the unique id has ended, "
                                "cannot be reached, or has given the formation up. Form again with a new id",
                        .call = call,
                        .native_code = code,
                        .native_text = code == 0 ? "connection closed" : std::generic_category().message(code)}};
}

} // namespace

gloo_store::gloo_store(const gloo_endpoint& endpoint, std::uint32_t participants, std::string prefix)
  : endpoint_{endpoint}, participants_{participants}, prefix_{std::move(prefix)} {}

void gloo_store::interrupt() noexcept {
  interrupted_ = true;
  notifier_.notify();
}

/// Waits until the socket is ready for \p what.
void gloo_store::await(short what, time_point until) {
  while (true) {
    if (interrupted_) throw exception{errc::communicator_failed, "the communicator was aborted"};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - store_clock::now()).count();
    if (left <= 0)
      throw exception{
          errc::deadline_exceeded,
          "other ranks did not join the formation in time: check that all are started and have the same unique id"};
    std::array polled{pollfd{.fd = socket_.native(), .events = what, .revents = 0},
                      pollfd{.fd = notifier_.native(), .events = POLLIN, .revents = 0}};
    ::poll(polled.data(), polled.size(), static_cast<int>(std::min<decltype(left)>(left, 60'000)));
    if (polled[0].revents != 0 && !interrupted_) return;
  }
}

void gloo_store::send_all(const void* from, std::size_t size_bytes, time_point until) {
  const auto* next = static_cast<const std::byte*>(from);
  while (size_bytes > 0) {
    await(POLLOUT, until);
    const ssize_t count = ::send(socket_.native(), next, size_bytes, MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) report_lost_store("send", errno);
    if (count <= 0) continue;
    next += count;
    size_bytes -= static_cast<std::size_t>(count);
  }
}

void gloo_store::receive_all(void* to, std::size_t size_bytes, time_point until) {
  auto* next = static_cast<std::byte*>(to);
  while (size_bytes > 0) {
    await(POLLIN, until);
    const ssize_t count = ::recv(socket_.native(), next, size_bytes, 0);
    if (count == 0) report_lost_store("recv", 0);
    if (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) report_lost_store("recv", errno);
    if (count < 0) continue;
    next += count;
    size_bytes -= static_cast<std::size_t>(count);
  }
}

void gloo_store::connect() {
  connect(store_clock::now() + gloo_wire::time_for_forming);
}

void gloo_store::connect(time_point until) {
  if (socket_) return;
  socket_ = file_descriptor{::socket(endpoint_.where.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!socket_) report_lost_store("socket", errno);
  if (::connect(socket_.native(), endpoint_.where.get(), endpoint_.where.size_bytes) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) report_lost_store("connect", errno);
    await(POLLOUT, until);
    int code = 0;
    socklen_t size = sizeof code;
    if (::getsockopt(socket_.native(), SOL_SOCKET, SO_ERROR, &code, &size) != 0 || code != 0)
      report_lost_store("connect", code);
  }
  const gloo_wire::hello words{
      .magic = gloo_wire::hello_magic, .secret = endpoint_.secret, .participants = participants_, .reserved = 0};
  send_all(&words, sizeof words, until);
  expect_agreement(until);
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
  connect(until);
  const gloo_wire::request_header header{.what = what,
                                         .key_bytes = static_cast<std::uint32_t>(key.size()),
                                         .value_bytes = static_cast<std::uint32_t>(value.size())};
  std::vector<char> all(sizeof header + key.size() + value.size());
  std::memcpy(all.data(), &header, sizeof header);
  std::ranges::copy(value, std::ranges::copy(key, all.begin() + sizeof header).out);
  send_all(all.data(), all.size(), until);
}

void gloo_store::expect_agreement(time_point until) {
  std::byte answer{};
  receive_all(&answer, 1, until);
  if (answer != gloo_wire::agreed) report_lost_store("recv", EPROTO);
}

std::vector<char> gloo_store::fetch(const std::string& key, time_point until) {
  ask(gloo_wire::request::get, prefix_ + key, {}, until);
  std::uint32_t size = 0;
  receive_all(&size, sizeof size, until);
  if (size > gloo_wire::most_value_bytes) report_lost_store("recv", EPROTO);
  std::vector<char> value(size);
  receive_all(value.data(), value.size(), until);
  return value;
}

void gloo_store::set(const std::string& key, const std::vector<char>& data) {
  const auto until = store_clock::now() + gloo_wire::time_for_forming;
  ask(gloo_wire::request::set, prefix_ + key, data, until);
  expect_agreement(until);
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
  for (const std::string& key : keys)
    if (!known_.contains(key)) known_.emplace(key, fetch(key, until));
}

void gloo_store::formed() {
  const auto until = store_clock::now() + gloo_wire::time_for_forming;
  ask(gloo_wire::request::formed, {}, {}, until);
  expect_agreement(until);
  socket_ = file_descriptor{};
}

} // namespace troupe
