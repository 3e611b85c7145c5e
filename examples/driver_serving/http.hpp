/// A small HTTP server and client on Asio's streams. Each connection carries one request; a thread serves one
/// connection at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

struct http_request {
  std::string method, path, body;
};

struct http_answer {
  int status = 200;
  std::string body;
};

/// Threads: the handler is called on \p threads threads of the server. It may block; further connections then wait.
class http_server {
public:
  using handler = std::function<http_answer(const http_request&)>;

  /// Listens at \p address, an IPv4 address, and \p port; 0 selects any free one. Errors: invalid_argument.
  http_server(const std::string& address, std::uint16_t port, std::size_t threads, handler handle);
  /// Waits for the requests that are being handled.
  ~http_server();
  http_server(const http_server&) = delete;
  http_server& operator=(const http_server&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }

private:
  struct listener;

  void serve();

  handler handle_;
  std::unique_ptr<listener> listener_;
  std::uint16_t port_ = 0;
  std::vector<std::thread> threads_;
};

/// Sends a POST request, and waits for the answer. Returns its status, or 0 if none arrives \p within this time.
int http_post(const std::string& address, std::uint16_t port, const std::string& path, const std::string& body,
              std::chrono::milliseconds within);
