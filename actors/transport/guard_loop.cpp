#include <troupe/actors/transport/guard_loop.hpp>

#include <troupe/device/error.hpp>

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <limits>
#include <system_error>

namespace troupe {

namespace {

constexpr int accepts_per_turn = 32;
constexpr std::chrono::seconds pause_without_descriptors{1};

time_point guard_now() {
  return std::chrono::steady_clock::now();
}

guard_socket new_wake() {
  guard_socket made{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  if (!made)
    throw exception{
        error{.code = errc::internal,
              .text = "the proxy of a control port could not be started: this process has no file descriptors left",
              .call = "eventfd",
              .native_code = errno,
              .native_text = std::strerror(errno)}};
  return made;
}

/// Threads inherit the signal mask of their creator. With signals blocked, a SIGPIPE from a socket that TLS writes to
/// has no effect.
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

guard_loop::guard_loop(guard_terms& terms, guard_socket listening, maker make)
  : terms_{terms}, listening_{std::move(listening)}, wake_{new_wake()}, make_{std::move(make)} {
  const all_signals_blocked quiet;
  try {
    thread_ = std::thread{[this] { run(); }};
  } catch (const std::system_error& why) {
    throw exception{errc::internal,
                    std::string{"the thread of a control port's proxy could not be started: "} + why.what()};
  }
}

guard_loop::~guard_loop() {
  stop();
}

void guard_loop::stop() noexcept {
  if (!thread_.joinable()) return;
  stopping_.store(true);
  wake();
  thread_.join();
}

void guard_loop::wake() noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_.descriptor(), &one, sizeof one));
}

void guard_loop::adopt(guard_socket socket) {
  const std::scoped_lock lock{adopted_guard_};
  if (stopping_.load()) return;
  adopted_.push_back(std::move(socket));
  wake();
}

void guard_loop::take_adopted(time_point now) {
  std::uint64_t count = 0;
  static_cast<void>(!::read(wake_.descriptor(), &count, sizeof count));
  std::vector<guard_socket> all;
  {
    const std::scoped_lock lock{adopted_guard_};
    all.swap(adopted_);
  }
  for (guard_socket& one : all) take_in(std::move(one), {}, now);
}

void guard_loop::run() {
  pthread_setname_np(pthread_self(), "troupe-guard");
  while (!stopping_.load()) wait_and_advance();
  for (const auto& one : connections_)
    one->cut(guard_event_kind::ended, "was closed: the proxy of this control port has been stopped");
  connections_.clear();
  listening_ = {};
  const std::scoped_lock lock{adopted_guard_};
  adopted_.clear();
}

/// Fills looks_ for poll. Returns the index of the listening socket in it, or an index beyond its end.
std::size_t guard_loop::gather(time_point now) {
  looks_.clear();
  spans_.clear();
  looks_.push_back({wake_.descriptor(), POLLIN, 0});
  const bool accepts = listening_ && now >= accept_after_;
  const std::size_t listening = accepts ? looks_.size() : std::numeric_limits<std::size_t>::max();
  if (accepts) looks_.push_back({listening_.descriptor(), POLLIN, 0});
  for (const auto& one : connections_) {
    const std::size_t first = looks_.size();
    one->gather(looks_);
    spans_.emplace_back(first, looks_.size());
  }
  return listening;
}

/// Returns the timeout for poll in milliseconds; -1: no timeout.
int guard_loop::patience(time_point now) const {
  time_point first = now < accept_after_ ? accept_after_ : time_point::max();
  for (const auto& one : connections_) {
    if (one->has_more()) return 0;
    first = std::min(first, one->due());
  }
  if (first == time_point::max()) return -1;
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(first - now);
  return static_cast<int>(std::clamp<std::int64_t>(wait.count(), 0, std::numeric_limits<int>::max()));
}

void guard_loop::wait_and_advance() {
  const time_point before = guard_now();
  const std::size_t listening = gather(before);
  if (::poll(looks_.data(), looks_.size(), patience(before)) < 0) {
    if (errno != EINTR) std::this_thread::sleep_for(std::chrono::milliseconds{10}); // the system is out of memory
    return;
  }
  const time_point now = guard_now();
  for (std::size_t i = 0; i < spans_.size() && !stopping_.load(); ++i) {
    guarded_connection& one = *connections_[i];
    const auto is_ready = [](const pollfd& look) { return look.revents != 0; };
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

void guard_loop::advance(guarded_connection& one, time_point now) {
  try {
    one.advance(now);
  } catch (const std::exception& why) {
    one.cut(guard_event_kind::broken, why.what());
  }
}

void guard_loop::accept_all(time_point now) {
  for (int i = 0; i < accepts_per_turn && !stopping_.load(); ++i) {
    sockaddr_storage storage{};
    socklen_t length = sizeof storage;
    auto* const raw = reinterpret_cast<sockaddr*>(&storage);
    guard_socket socket{::accept4(listening_.descriptor(), raw, &length, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (socket) {
      take_in(std::move(socket), guard_address{raw, length}, now);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      accept_after_ = later(now, pause_without_descriptors);
      terms_.report_stranger(guard_event_kind::too_many, {},
                             "cannot accept a connection: " + std::string{std::strerror(errno)});
      return;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return;
    }
  }
}

void guard_loop::take_in(guard_socket socket, const guard_address& peer, time_point now) {
  make_room();
  try {
    connections_.push_back(make_(std::move(socket), peer, now));
    advance(*connections_.back(), now);
  } catch (const std::exception& why) {
    terms_.report_stranger(guard_event_kind::broken, peer.text(), why.what());
  }
}

/// If the limit of pending connections is reached, closes the oldest: a legitimate peer needs only milliseconds.
void guard_loop::make_room() {
  const auto is_pending = [](const auto& one) { return !one->is_admitted() && !one->is_over(); };
  if (std::count_if(connections_.begin(), connections_.end(), is_pending) < terms_.limits.pending) return;
  const auto oldest = std::find_if(connections_.begin(), connections_.end(), is_pending);
  if (oldest == connections_.end()) return;
  (*oldest)->cut(guard_event_kind::too_many,
                 "was closed for a newer connection: " + std::to_string(terms_.limits.pending) +
                     " connections waited to be admitted, which is the limit");
  connections_.erase(oldest);
}

} // namespace troupe
