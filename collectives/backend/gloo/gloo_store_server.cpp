#include <troupe/collectives/backend/gloo/gloo_store_server.hpp>
#include <troupe/device/topology/thread_binding.hpp>

#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

using namespace std::chrono_literals;

[[noreturn]] void refuse_address(const char* call) {
  const int code = errno;
  throw exception{error{.code = code == EADDRNOTAVAIL ? errc::invalid_argument : errc::internal,
                        .text = "the gloo backend's store cannot listen: name an address of this machine "
                                "(gloo.interface_address), and check that file descriptors are left (ulimit -n)",
                        .call = call,
                        .native_code = code,
                        .native_text = std::generic_category().message(code)}};
}

gloo_secret draw_secret() {
  gloo_secret made;
  if (::getrandom(made.data(), made.size(), 0) != static_cast<ssize_t>(made.size())) refuse_address("getrandom");
  return made;
}

/// Limit of one read.
constexpr std::size_t piece_bytes = 16'384;
constexpr auto pause_without_descriptors = 100ms;

} // namespace

struct gloo_store_server::formation {
  gloo_secret secret{};
  clock::time_point until{};
  std::map<std::string, std::vector<std::byte>> values{};
  std::size_t held_bytes = 0;
  std::uint32_t comers = 0; ///< 0: no rank has connected yet.
  std::uint32_t formed = 0;
};

struct gloo_store_server::visitor {
  open_file socket;
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
  /// Returns false if the socket has failed.
  [[nodiscard]] bool flush() {
    while (said < to_say.size()) {
      const ssize_t count =
          ::send(socket.number(), to_say.data() + said, to_say.size() - said, MSG_NOSIGNAL | MSG_DONTWAIT);
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
    const std::lock_guard lock{guard_};
    stopping_ = true;
  }
  bell_.ring();
  if (thread_.joinable()) thread_.join();
}

gloo_door gloo_store_server::open() {
  auto made = std::make_shared<formation>();
  made->secret = draw_secret();
  made->until = clock::now() + gloo_wire::time_for_forming;
  const std::lock_guard lock{guard_};
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
  bell_.ring(); // the deadline of the new formation may be the next one
  return {.where = where_, .secret = made->secret};
}

void gloo_store_server::listen() {
  open_file made{::socket(interface_.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!made) refuse_address("socket");
  if (::bind(made.number(), interface_.get(), interface_.size_bytes) != 0) refuse_address("bind");
  if (::listen(made.number(), SOMAXCONN) != 0) refuse_address("listen");
  socket_address where;
  where.size_bytes = sizeof where.bytes;
  if (::getsockname(made.number(), where.get(), &where.size_bytes) != 0) refuse_address("getsockname");
  where_ = where;
  listener_ = std::move(made);
}

void gloo_store_server::serve() {
  visitor_list all;
  std::vector<pollfd> looks;
  while (true) {
    const auto now = clock::now();
    forget_old(now);
    std::erase_if(all, [&](const auto& one) { return one->of ? one->of->until <= now : one->greets_until <= now; });
    {
      const std::lock_guard lock{guard_};
      if (stopping_ || (formations_.empty() && all.empty())) {
        listener_ = open_file{};
        serving_ = false;
        return;
      }
    }

    looks.clear();
    looks.push_back({.fd = bell_.number(), .events = POLLIN, .revents = 0});
    const bool listens = deaf_until_ <= now && all.size() < gloo_wire::most_visitors;
    looks.push_back({.fd = listens ? listener_.number() : -1, .events = POLLIN, .revents = 0});
    for (const auto& one : all) {
      const int wanted = POLLRDHUP | (one->waits ? 0 : POLLIN) | (one->to_say.empty() ? 0 : POLLOUT);
      looks.push_back({.fd = one->socket.number(), .events = static_cast<short>(wanted), .revents = 0});
    }
    const auto patience = std::chrono::ceil<std::chrono::milliseconds>(next_deadline(all) - now).count();
    ::poll(looks.data(), looks.size(), static_cast<int>(std::clamp<decltype(patience)>(patience, 0, 60'000)));
    bell_.calm();

    for (std::size_t i = 0; i < all.size(); ++i)
      if (looks[i + 2].revents != 0 && !converse(*all[i], looks[i + 2].revents)) all[i].reset();
    std::erase(all, nullptr);
    answer_waiting(all);
    if (looks[1].revents != 0) let_in(all, clock::now());
  }
}

void gloo_store_server::forget_old(clock::time_point now) {
  const std::lock_guard lock{guard_};
  std::erase_if(formations_,
                [&](const auto& one) { return one->until <= now || (one->comers > 0 && one->formed >= one->comers); });
}

gloo_store_server::clock::time_point gloo_store_server::next_deadline(const visitor_list& all) {
  auto next = clock::time_point::max();
  if (deaf_until_ > clock::now()) next = deaf_until_;
  for (const auto& one : all) next = std::min(next, one->of ? one->of->until : one->greets_until);
  const std::lock_guard lock{guard_};
  for (const auto& one : formations_) next = std::min(next, one->until);
  return std::min(next, clock::now() + 60s);
}

void gloo_store_server::let_in(visitor_list& all, clock::time_point now) {
  while (all.size() < gloo_wire::most_visitors) {
    open_file socket{::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    if (!socket) {
      // A connection that waits keeps the listening socket readable. Without a free descriptor the loop would spin.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
        deaf_until_ = now + pause_without_descriptors;
      return;
    }
    all.push_back(std::make_unique<visitor>(
        visitor{.socket = std::move(socket), .greets_until = now + gloo_wire::time_for_hello}));
  }
}

/// Reads and writes without blocking. Returns false if the connection is to be closed.
bool gloo_store_server::converse(visitor& one, short seen) {
  if ((seen & POLLIN) != 0) {
    std::array<std::byte, piece_bytes> piece;
    const ssize_t count = ::recv(one.socket.number(), piece.data(), piece.size(), MSG_DONTWAIT);
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
bool gloo_store_server::understand(visitor& one) {
  std::size_t used = 0;
  const auto left = [&] { return one.heard.size() - used; };
  if (!one.of) {
    if (left() < sizeof(gloo_wire::hello)) return true;
    if (!greet(one)) return false;
    used = sizeof(gloo_wire::hello);
  }
  while (!one.waits && left() >= sizeof(gloo_wire::heading)) {
    gloo_wire::heading wish;
    std::memcpy(&wish, &one.heard[used], sizeof wish);
    if (wish.key_bytes > gloo_wire::most_key_bytes || wish.value_bytes > gloo_wire::most_value_bytes) return false;
    const std::size_t whole = sizeof wish + wish.key_bytes + wish.value_bytes;
    if (left() < whole) break;
    if (!obey(one, wish, one.heard.data() + used + sizeof wish)) return false;
    used += whole;
  }
  one.heard.erase(one.heard.begin(), one.heard.begin() + static_cast<std::ptrdiff_t>(used));
  return true;
}

bool gloo_store_server::greet(visitor& one) {
  gloo_wire::hello said;
  std::memcpy(&said, one.heard.data(), sizeof said);
  if (said.magic != gloo_wire::hello_magic || said.comers == 0 || said.comers > gloo_wire::most_comers) return false;
  const std::lock_guard lock{guard_};
  for (const auto& each : formations_)
    if (equal(each->secret, said.secret)) one.of = each;
  if (!one.of) return false;
  if (one.of->comers == 0) one.of->comers = said.comers;
  if (one.of->comers != said.comers) return false;
  one.say(&gloo_wire::agreed, 1);
  return true;
}

bool gloo_store_server::obey(visitor& one, const gloo_wire::heading& wish, const std::byte* content) {
  formation& here = *one.of;
  const std::string key{reinterpret_cast<const char*>(content), wish.key_bytes};
  switch (wish.what) {
    case gloo_wire::request::set: {
      here.held_bytes += wish.key_bytes + wish.value_bytes;
      if (here.held_bytes > gloo_wire::most_formation_bytes) return false;
      const std::byte* const value = content + wish.key_bytes;
      // A key is set once: a rank that has read its value relies on it.
      if (!here.values.emplace(key, std::vector<std::byte>(value, value + wish.value_bytes)).second) return false;
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

} // namespace troupe
