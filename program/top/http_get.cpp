#include <troupe/program/top/http_get.hpp>

#include <troupe/device/error.hpp>
#include <troupe/runtime/launch/file_descriptor.hpp>

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <optional>
#include <system_error>

namespace troupe::program {

namespace {

using clock = std::chrono::steady_clock;

/// An endpoint's answer is about 100 KiB; a longer one is not from a metrics endpoint.
constexpr std::size_t longest_answer = std::size_t{64} << 20U;

std::string url_of(const http_address& where) {
  const bool has_colons = where.host.find(':') != std::string::npos;
  return "http://" + (has_colons ? "[" + where.host + "]" : where.host) + ":" + where.port + where.path;
}

/// One exchange over one connection, with a deadline.
class http_exchange {
public:
  http_exchange(const http_address& with, clock::time_point until) : with_{with}, until_{until} {}

  [[nodiscard]] std::string get() {
    connect();
    send("GET " + with_.path + " HTTP/1.0\r\nHost: " + with_.host + ":" + with_.port +
         "\r\nAccept: text/plain\r\nConnection: close\r\n\r\n");
    return document(receive());
  }

private:
  [[noreturn]] void fail(errc code, const std::string& why) const { throw exception{code, url_of(with_) + ": " + why}; }
  [[noreturn]] void fail_in(const char* call, int native) const {
    fail(native == ECONNREFUSED || native == EHOSTUNREACH || native == ENETUNREACH ? errc::missing : errc::internal,
         std::string{call} + ": " + std::system_category().message(native));
  }

  void await(short what) const {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until_ - clock::now()).count();
    pollfd one{.fd = socket_.native(), .events = what, .revents = 0};
    const int ready = left > 0 ? poll(&one, 1, static_cast<int>(left)) : 0;
    if (ready == 0) fail(errc::deadline_exceeded, "no answer in time");
    if (ready < 0 && errno != EINTR) fail_in("poll", errno);
  }

  void connect() {
    addrinfo wanted{};
    wanted.ai_family = AF_UNSPEC;
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int problem = getaddrinfo(with_.host.c_str(), with_.port.c_str(), &wanted, &found); problem != 0)
      fail(errc::invalid_argument, "unknown host: " + std::string{gai_strerror(problem)});
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all{found, freeaddrinfo};
    int last = ECONNREFUSED;
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      last = connect_to(*one);
      if (last == 0) return;
    }
    fail_in("connect", last);
  }

  /// Returns 0, or the error number.
  [[nodiscard]] int connect_to(const addrinfo& one) {
    socket_ =
        launch::file_descriptor{socket(one.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, one.ai_protocol)};
    if (socket_.native() < 0) return errno;
    if (::connect(socket_.native(), one.ai_addr, one.ai_addrlen) == 0) return 0;
    if (errno != EINPROGRESS) return errno;
    await(POLLOUT);
    int problem = 0;
    socklen_t size = sizeof problem;
    return getsockopt(socket_.native(), SOL_SOCKET, SO_ERROR, &problem, &size) == 0 ? problem : errno;
  }

  void send(std::string_view text) const {
    while (!text.empty()) {
      const ssize_t sent = ::send(socket_.native(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) fail_in("send", errno);
      if (sent < 0)
        await(POLLOUT);
      else
        text.remove_prefix(static_cast<std::size_t>(sent));
    }
  }

  [[nodiscard]] std::string receive() const {
    std::string all;
    std::array<char, 16'384> piece{};
    while (all.size() <= longest_answer) {
      const ssize_t got = ::recv(socket_.native(), piece.data(), piece.size(), 0);
      if (got == 0) return all;
      if (got < 0 && errno != EAGAIN && errno != EINTR) fail_in("recv", errno);
      if (got < 0)
        await(POLLIN);
      else
        all.append(piece.data(), static_cast<std::size_t>(got));
    }
    fail(errc::internal, "the answer is too long for a metrics endpoint");
  }

  [[nodiscard]] std::string document(const std::string& answer) const {
    const std::size_t body = answer.find("\r\n\r\n");
    const std::string status = answer.substr(0, std::min(answer.find("\r\n"), answer.size()));
    if (!status.starts_with("HTTP/") || body == std::string::npos) fail(errc::internal, "the answer is not HTTP");
    if (status.find(" 200") == std::string::npos) fail(errc::internal, "the answer is '" + status + "'");
    return answer.substr(body + 4);
  }

  const http_address& with_;
  clock::time_point until_;
  launch::file_descriptor socket_;
};

} // namespace

http_address parse_http_address(std::string_view url, std::string_view standard_path) {
  std::string_view rest = url;
  if (rest.starts_with("http://")) rest.remove_prefix(std::string_view{"http://"}.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  http_address where{{}, "80", std::string{rest.substr(slash)}};
  if (where.path.empty() || where.path == "/") where.path = standard_path;
  rest = rest.substr(0, slash);
  const std::size_t bracket = rest.starts_with('[') ? rest.find(']') : std::string_view::npos;
  const std::size_t colon = rest.find(':', bracket == std::string_view::npos ? 0 : bracket);
  where.host = bracket == std::string_view::npos ? rest.substr(0, colon) : rest.substr(1, bracket - 1);
  if (colon != std::string_view::npos) where.port = rest.substr(colon + 1);
  const bool is_number =
      !where.port.empty() && std::ranges::all_of(where.port, [](char c) { return c >= '0' && c <= '9'; });
  if (where.host.empty() || where.host.find("://") != std::string::npos || url.starts_with("https:") || !is_number)
    throw exception{errc::invalid_argument, "'" + std::string{url} +
                                                "' is not an address of metrics: write http://HOST:PORT, e.g. "
                                                "http://127.0.0.1:9464 (https is not supported)"};
  return where;
}

std::string http_get(const http_address& from, std::chrono::milliseconds at_most) {
  return http_exchange{from, clock::now() + at_most}.get();
}

} // namespace troupe::program
