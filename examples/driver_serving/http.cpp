#include "http.hpp"

#include <troupe/device/error.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

namespace {

constexpr std::size_t longest_head_bytes = std::size_t{16} << 10U;
constexpr std::size_t longest_body_bytes = std::size_t{64} << 20U;
constexpr std::chrono::seconds slowest_client{5};

struct closed_at_end {
  explicit closed_at_end(int which) : socket{which} {}
  closed_at_end(const closed_at_end&) = delete;
  closed_at_end& operator=(const closed_at_end&) = delete;
  ~closed_at_end() {
    if (socket >= 0) ::close(socket);
  }
  int socket;
};

std::optional<sockaddr_in> address_of(const std::string& text, std::uint16_t port) {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  made.sin_port = htons(port);
  if (::inet_pton(AF_INET, text.c_str(), &made.sin_addr) != 1) return std::nullopt;
  return made;
}

void set_time_limit(int socket, std::chrono::milliseconds most) {
  const timeval limit{.tv_sec = most.count() / 1000, .tv_usec = most.count() % 1000 * 1000};
  for (const int which : {SO_RCVTIMEO, SO_SNDTIMEO})
    static_cast<void>(::setsockopt(socket, SOL_SOCKET, which, &limit, sizeof limit));
}

bool send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

/// Receives the head of a message, and what has come of its body.
std::optional<std::pair<std::string, std::string>> receive_head(int socket) {
  std::string text;
  while (text.size() < longest_head_bytes) {
    char part[4096];
    const ssize_t received = ::recv(socket, part, sizeof part, 0);
    if (received <= 0) return std::nullopt;
    text.append(part, static_cast<std::size_t>(received));
    if (const auto end = text.find("\r\n\r\n"); end != std::string::npos)
      return std::pair{text.substr(0, end + 2), text.substr(end + 4)};
  }
  return std::nullopt;
}

std::size_t content_length(std::string head) {
  for (char& one : head) one = one >= 'A' && one <= 'Z' ? static_cast<char>(one - 'A' + 'a') : one;
  constexpr std::string_view name = "\r\ncontent-length:";
  const auto found = head.find(name);
  if (found == std::string::npos) return 0;
  const auto begin = head.find_first_not_of(' ', found + name.size());
  std::size_t value = 0;
  std::from_chars(head.data() + begin, head.data() + head.size(), value);
  return value;
}

std::optional<http_request> receive_request(int socket) {
  auto head = receive_head(socket);
  if (!head) return std::nullopt;
  const auto first = head->first.find(' '), second = head->first.find(' ', first + 1);
  const std::size_t length = content_length(head->first);
  if (second == std::string::npos || length > longest_body_bytes) return std::nullopt;
  http_request asked{head->first.substr(0, first), head->first.substr(first + 1, second - first - 1),
                     std::move(head->second)};
  std::size_t received_bytes = asked.body.size();
  asked.body.resize(std::max(length, received_bytes));
  while (received_bytes < length) {
    const ssize_t received = ::recv(socket, &asked.body[received_bytes], length - received_bytes, 0);
    if (received <= 0) return std::nullopt;
    received_bytes += static_cast<std::size_t>(received);
  }
  return asked;
}

} // namespace

http_server::http_server(const std::string& address, std::uint16_t port, std::size_t threads, handler handle)
  : handle_{std::move(handle)}, listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
  auto place = address_of(address, port);
  socklen_t size = sizeof(sockaddr_in);
  const int yes = 1;
  if (!place || ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(listener_, reinterpret_cast<const sockaddr*>(&*place), size) != 0 || ::listen(listener_, SOMAXCONN) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&*place), &size) != 0) {
    const std::string why = place ? std::generic_category().message(errno) : "not an IPv4 address";
    ::close(listener_);
    throw troupe::exception{troupe::errc::invalid_argument,
                            "cannot listen at " + address + ":" + std::to_string(port) + ": " + why};
  }
  port_ = ntohs(place->sin_port);
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { serve(); });
}

http_server::~http_server() {
  ::shutdown(listener_, SHUT_RDWR); // ends the waits in accept()
  for (std::thread& one : threads_) one.join();
  ::close(listener_);
}

void http_server::serve() {
  while (true) {
    const closed_at_end connection{::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)};
    if (connection.socket < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return;
    }
    set_time_limit(connection.socket, slowest_client);
    const auto asked = receive_request(connection.socket);
    if (!asked) continue;
    const http_answer answer = handle_(*asked);
    send_all(connection.socket, "HTTP/1.1 " + std::to_string(answer.status) +
                                    (answer.status == 200 ? " OK" : " Error") +
                                    "\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " +
                                    std::to_string(answer.body.size()) + "\r\n\r\n" + answer.body);
  }
}

int http_post(const std::string& address, std::uint16_t port, const std::string& path, const std::string& body,
              std::chrono::milliseconds within) {
  const auto place = address_of(address, port);
  const closed_at_end connection{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  if (!place || connection.socket < 0) return 0;
  set_time_limit(connection.socket, within); // Linux applies it to connect(), too
  if (::connect(connection.socket, reinterpret_cast<const sockaddr*>(&*place), sizeof *place) != 0 ||
      !send_all(connection.socket, "POST " + path + " HTTP/1.1\r\nHost: " + address +
                                       "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body))
    return 0;
  const auto head = receive_head(connection.socket);
  int status = 0;
  if (head)
    std::from_chars(head->first.data() + std::strlen("HTTP/1.1 "), head->first.data() + head->first.size(), status);
  return status;
}
