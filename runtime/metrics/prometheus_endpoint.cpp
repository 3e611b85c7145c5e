#include <troupe/device/error.hpp>
#include <troupe/device/file_descriptor.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/runtime/logging.hpp>
#include <troupe/runtime/metrics.hpp>
#include <troupe/runtime/metrics/metric_families.hpp>
#include <troupe/runtime/metrics/metrics_endpoint.hpp>
#include <troupe/runtime/metrics/metrics_source.hpp>

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <future>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace troupe {

class prometheus_collectable final : public prometheus::Collectable {
public:
  explicit prometheus_collectable(std::shared_ptr<const metrics_source> from) : from_{std::move(from)} {}

  [[nodiscard]] std::vector<prometheus::MetricFamily> Collect() const override;

private:
  std::shared_ptr<const metrics_source> from_;
};

std::vector<prometheus::MetricFamily> prometheus_collectable::Collect() const {
  // Runs on a thread of its own: the threads of the web server have stacks of 100 KiB, which a sanitized build exceeds.
  const auto look = [this] {
    const auto seen = from_->read();
    return seen ? families_of(*seen) : std::vector<prometheus::MetricFamily>{};
  };
  try {
    return std::async(std::launch::async, look).get();
  } catch (const std::system_error&) { // no thread could be started
    return look();
  }
}

bool has_metrics() noexcept {
  return true;
}

std::string metrics_text(const metrics_source& from) {
  const auto seen = from.read();
  const auto collected = seen ? families_of(*seen) : std::vector<prometheus::MetricFamily>{};
  return prometheus::TextSerializer{}.Serialize(collected);
}

std::shared_ptr<prometheus::Collectable> make_collectable(std::shared_ptr<const metrics_source> from) {
  return std::make_shared<prometheus_collectable>(std::move(from));
}

namespace {

using std::chrono::steady_clock;

/// Maximum number of connections; a further one replaces the oldest.
constexpr std::size_t most_connections = 64;
constexpr std::size_t most_request_bytes = 8192;
/// The time limit of a connection.
constexpr std::chrono::seconds patience{10};
/// How often connections are checked for their time limit, and accepted again after a failure.
constexpr std::chrono::milliseconds interval{100};

struct connection {
  file_descriptor socket;
  steady_clock::time_point until = steady_clock::now() + patience;
  std::string request{};
  std::string reply{}; ///< The rest to be written. The connection ends after it.
};

std::string reply_of(std::string_view status, std::string_view body) {
  return "HTTP/1.1 " + std::string{status} +
         "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nConnection: close\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + std::string{body};
}

bool would_block() noexcept {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

file_descriptor listen_on(metrics_address& where) {
  file_descriptor made{::socket(where.is_ipv6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
  const int on = 1;
  sockaddr_storage address{};
  socklen_t length = 0;
  if (where.is_ipv6) {
    auto& six = reinterpret_cast<sockaddr_in6&>(address); // NOLINT(cppcoreguidelines-pro-type-reinterpret-cast)
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(where.port);
    ::inet_pton(AF_INET6, where.host.c_str(), &six.sin6_addr);
    length = sizeof six;
  } else {
    auto& four = reinterpret_cast<sockaddr_in&>(address); // NOLINT(cppcoreguidelines-pro-type-reinterpret-cast)
    four.sin_family = AF_INET;
    four.sin_port = htons(where.port);
    ::inet_pton(AF_INET, where.host.c_str(), &four.sin_addr);
    length = sizeof four;
  }
  auto* const any = reinterpret_cast<sockaddr*>(&address); // NOLINT(cppcoreguidelines-pro-type-reinterpret-cast)
  if (!made || ::setsockopt(made.native(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      ::bind(made.native(), any, length) != 0 || ::listen(made.native(), SOMAXCONN) != 0 ||
      ::getsockname(made.native(), any, &length) != 0)
    throw exception{errc::invalid_argument, "metrics.address is " + to_string(where) +
                                                ", and listening there failed (" +
                                                std::generic_category().message(errno) +
                                                "): check that the port is not in use and that the address is one of "
                                                "this machine. Choose another, or port 0 for any free port"};
  // The port is at the same offset in both address types.
  where.port = ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port); // NOLINT(*-reinterpret-cast)
  return made;
}

class prometheus_endpoint final : public metrics_endpoint {
public:
  prometheus_endpoint(metrics_address where, std::shared_ptr<const metrics_source> from)
    : where_{std::move(where)}, shown_{std::move(from)}, listener_{listen_on(where_)} {
    if (!waker_) throw exception{errc::out_of_memory, "no file descriptor is left for metrics: raise ulimit -n"};
    thread_ = worker{[this] { run(); }};
  }
  ~prometheus_endpoint() override {
    static_cast<void>(::eventfd_write(waker_.native(), 1));
    thread_.join();
  }

  [[nodiscard]] const metrics_address& where() const noexcept override { return where_; }

private:
  void run() noexcept {
    for (bool ends = false; !ends;) return_or_report("a connection for metrics", [&] { ends = !serve_once(); });
  }

  /// Returns false when the endpoint ends.
  bool serve_once() {
    const bool accepts = steady_clock::now() >= accepts_from_;
    // poll() ignores a negative descriptor.
    std::vector<pollfd> watched{{waker_.native(), POLLIN, 0}, {accepts ? listener_.native() : -1, POLLIN, 0}};
    for (const connection& one : all_)
      watched.push_back({one.socket.native(), static_cast<short>(one.reply.empty() ? POLLIN : POLLOUT), 0});
    const auto wait = all_.empty() && accepts ? std::chrono::milliseconds{-1} : interval;
    if (::poll(watched.data(), watched.size(), static_cast<int>(wait.count())) < 0 && errno != EINTR) return false;
    if (watched[0].revents != 0) return false;
    const auto now = steady_clock::now();
    std::size_t place = 2;
    for (auto one = all_.begin(); one != all_.end(); ++place) {
      const bool goes_on = watched[place].revents == 0 ? now < one->until : attend(*one);
      one = goes_on ? std::next(one) : all_.erase(one);
    }
    if (watched[1].revents != 0) accept_one(now);
    return true;
  }

  /// Accepts a connection. If no descriptor is left, the oldest connection gives up its own.
  void accept_one(steady_clock::time_point now) {
    file_descriptor fresh{::accept4(listener_.native(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (fresh) {
      is_warned_ = false;
      if (all_.size() == most_connections) all_.pop_front();
      return all_.push_back({.socket = std::move(fresh)});
    }
    const int code = errno;
    if (would_block() || code == ECONNABORTED) return;
    const bool lacks_descriptors = code == EMFILE || code == ENFILE;
    if (lacks_descriptors && !all_.empty()) return all_.pop_front();
    // The connection that was not accepted keeps the socket readable, so without a pause this loop would spin.
    accepts_from_ = now + interval;
    if (!std::exchange(is_warned_, true))
      log_warning("metrics are not served at " + to_string(where_) + " until a connection can be accepted (" +
                  std::generic_category().message(code) + ")" +
                  (lacks_descriptors ? ": raise the limit of file descriptors (ulimit -n)" : ""));
  }

  /// Reads or writes what is possible now. Returns false when the connection has ended.
  bool attend(connection& one) {
    if (one.reply.empty()) {
      char text[1024];
      const ssize_t count = ::recv(one.socket.native(), text, sizeof text, 0);
      if (count <= 0) return count < 0 && would_block();
      one.request.append(text, static_cast<std::size_t>(count));
      if (one.request.find("\r\n\r\n") == std::string::npos) return one.request.size() < most_request_bytes;
      one.reply = answer_to(one.request);
    }
    const ssize_t count = ::send(one.socket.native(), one.reply.data(), one.reply.size(), MSG_NOSIGNAL);
    if (count < 0) return would_block();
    one.reply.erase(0, static_cast<std::size_t>(count));
    return !one.reply.empty();
  }

  [[nodiscard]] std::string answer_to(std::string_view request) const {
    const std::string_view line = request.substr(0, request.find("\r\n"));
    if (!line.starts_with("GET ")) return reply_of("405 Method Not Allowed", "only GET is answered\n");
    const std::string_view path = line.substr(4, line.find_first_of(" ?", 4) - 4);
    if (path != "/metrics") return reply_of("404 Not Found", "metrics are at /metrics\n");
    return reply_of("200 OK", metrics_text(*shown_));
  }

  metrics_address where_;
  std::shared_ptr<const metrics_source> shown_;
  file_descriptor listener_;
  file_descriptor waker_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::list<connection> all_;               ///< Open connections, oldest first.
  steady_clock::time_point accepts_from_{}; ///< No connection is accepted before.
  bool is_warned_ = false;                  ///< Since the last accepted connection.
  worker thread_;
};

} // namespace

std::unique_ptr<metrics_endpoint> serve_metrics(const metrics_settings& settings,
                                                std::shared_ptr<const metrics_source> from) {
  check(settings);
  return std::make_unique<prometheus_endpoint>(parse_metrics_address(settings.address), std::move(from));
}

} // namespace troupe
