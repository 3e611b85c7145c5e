/// One document of an endpoint on this machine or near it, by plain HTTP.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace troupe::program {

struct http_address {
  std::string host; ///< A name or numbers, without brackets.
  std::string port;
  std::string path; ///< "/metrics".
};
/// Of "http://HOST:PORT/PATH", "HOST:PORT" or "http://HOST"; the port is then 80, the path \p standard_path.
/// Errors: invalid_argument, saying what it must look like.
[[nodiscard]] http_address parse_http_address(std::string_view url, std::string_view standard_path);

/// What GET answers; asks by HTTP/1.0, which needs nothing of what came later. No proxies, no redirections, no TLS.
/// Errors: missing (nobody listens there), deadline_exceeded, internal (an answer that is no document, with its
/// status).
[[nodiscard]] std::string http_get(const http_address& from, std::chrono::milliseconds at_most);

} // namespace troupe::program
