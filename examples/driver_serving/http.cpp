#include "http.hpp"

#include <troupe/device/error.hpp>

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>

#include <sys/socket.h>

#include <charconv>
#include <istream>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>

namespace {

using asio::ip::tcp;

constexpr std::size_t longest_head_bytes = std::size_t{16} << 10U;
constexpr std::size_t longest_body_bytes = std::size_t{64} << 20U;
constexpr std::chrono::seconds slowest_client{5};

/// Receives the head of a message. Returns an empty text if it is too long, or does not end in time.
std::string receive_head(std::istream& from) {
  std::string head;
  while (head.size() < longest_head_bytes) {
    head += static_cast<char>(from.get());
    if (!from) break;
    if (head.ends_with("\r\n\r\n")) return head;
  }
  return {};
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

std::optional<http_request> receive_request(std::istream& from) {
  const std::string head = receive_head(from);
  const auto first = head.find(' ');
  const auto second = first == std::string::npos ? first : head.find(' ', first + 1);
  const std::size_t length = content_length(head);
  if (second == std::string::npos || length > longest_body_bytes) return std::nullopt;
  http_request asked{head.substr(0, first), head.substr(first + 1, second - first - 1), std::string(length, ' ')};
  if (!from.read(asked.body.data(), static_cast<std::streamsize>(length))) return std::nullopt;
  return asked;
}

} // namespace

struct http_server::listener {
  asio::io_context context{};
  tcp::acceptor acceptor{context};
  std::mutex accepting{};
};

http_server::http_server(const std::string& address, std::uint16_t port, std::size_t threads, handler handle)
  : handle_{std::move(handle)}, listener_{std::make_unique<listener>()} {
  const auto refuse = [&](const std::string& why) {
    throw troupe::exception{troupe::errc::invalid_argument,
                            "cannot listen at " + address + ":" + std::to_string(port) + ": " + why};
  };
  asio::error_code failure;
  const auto host = asio::ip::make_address_v4(address, failure);
  if (failure) refuse("not an IPv4 address");
  try {
    listener_->acceptor = tcp::acceptor{listener_->context, tcp::endpoint{host, port}};
    port_ = listener_->acceptor.local_endpoint().port();
  } catch (const asio::system_error& why) {
    refuse(why.code().message());
  }
  for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { serve(); });
}

http_server::~http_server() {
  ::shutdown(listener_->acceptor.native_handle(), SHUT_RDWR); // ends the wait in accept()
  for (std::thread& one : threads_) one.join();
}

void http_server::serve() {
  while (true) {
    tcp::iostream connection;
    asio::error_code failure;
    {
      const std::lock_guard lock{listener_->accepting};
      listener_->acceptor.accept(connection.socket(), failure);
    }
    if (failure == asio::error::interrupted) continue;
    if (failure) return;
    connection.socket().set_option(tcp::no_delay{true}, failure); // the stream sends small parts
    connection.expires_after(slowest_client);
    const auto asked = receive_request(connection);
    if (!asked) continue;
    const http_answer answer = handle_(*asked);
    connection.expires_after(slowest_client);
    connection << "HTTP/1.1 " << answer.status << (answer.status == 200 ? " OK" : " Error")
               << "\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: " << answer.body.size()
               << "\r\n\r\n"
               << answer.body << std::flush;
  }
}

int http_post(const std::string& address, std::uint16_t port, const std::string& path, const std::string& body,
              std::chrono::milliseconds within) {
  asio::error_code failure;
  const tcp::endpoint place{asio::ip::make_address_v4(address, failure), port};
  if (failure) return 0;
  tcp::iostream connection;
  connection.expires_after(within);
  connection.connect(place);
  connection.socket().set_option(tcp::no_delay{true}, failure);
  connection << "POST " << path << " HTTP/1.1\r\nHost: " << address << "\r\nContent-Length: " << body.size()
             << "\r\n\r\n"
             << body << std::flush;
  std::string version;
  int status = 0;
  connection >> version >> status;
  return status;
}
