/// Fetches one document from an endpoint on this machine or nearby, by plain HTTP.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace troupe::program {

struct http_address {
  std::string host; ///< A name or a numeric address, without brackets.
  std::string port;
  std::string path; ///< E.g. "/metrics".
};
/// Parses "http://HOST:PORT/PATH", "HOST:PORT" or "http://HOST". The default port is 80, the default path
/// \p standard_path. Errors: invalid_argument, whose text shows the expected form.
[[nodiscard]] http_address parse_http_address(std::string_view url, std::string_view standard_path);

/// Returns the document that GET gives. Uses HTTP/1.0, without proxies, redirections or TLS.
/// Errors: missing (no server listens there), deadline_exceeded, internal (any other answer, with its status).
[[nodiscard]] std::string http_get(const http_address& from, std::chrono::milliseconds at_most);

} // namespace troupe::program
