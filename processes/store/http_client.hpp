/// Requests of JSON over HTTP, by libcurl, which is opened at run time.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// How to reach a server.
struct http_options {
  std::string ca_file{};          ///< For HTTPS: certificates of authorities; empty: those of the system.
  std::string certificate_file{}; ///< This side's own certificate, in PEM.
  std::string key_file{};
  std::string bearer_file{}; ///< A file with a token that each request is to carry; read for each request.
  std::chrono::milliseconds timeout{750};
};

struct http_response {
  int status = 0;
  std::string body{};
};

/// Sends one request at a time, over a connection that is kept.
/// Threads: one at a time.
class http_client {
public:
  /// Errors: missing (no libcurl on this machine; the text says what to install), unsupported (troupe was built without
  /// its header).
  explicit http_client(http_options options);
  http_client(const http_client&) = delete;
  http_client& operator=(const http_client&) = delete;
  ~http_client();

  /// Sends \p body, if it is not empty, to \p url with this \p method. Errors: missing (no complete answer within the
  /// timeout), with the reason.
  [[nodiscard]] http_response send(const char* method, const std::string& url, const std::string& body,
                                   const std::vector<std::string>& headers = {});

private:
  struct parts;
  std::unique_ptr<parts> parts_;
};

} // namespace troupe
