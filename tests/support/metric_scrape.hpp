/// Reads a runtime's metrics over HTTP, for tests of the endpoint. Label values must have no escapes or commas.
#pragma once

#include <troupe/device/file_descriptor.hpp>
#include <troupe/runtime/metrics.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests {

/// Returns the complete answer of `HOST:PORT` to GET. Throws if it does not arrive within \p at_most.
inline std::string http_answer(const std::string& from, const std::string& path, std::chrono::seconds at_most) {
  const metrics_address where = parse_metrics_address(from);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(where.port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const file_descriptor with{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const timeval limit{.tv_sec = at_most.count(), .tv_usec = 0};
  ::setsockopt(with.native(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const std::string request = "GET " + path + " HTTP/1.0\r\nHost: " + from + "\r\nConnection: close\r\n\r\n";
  if (::connect(with.native(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::send(with.native(), request.data(), request.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(request.size()))
    throw std::runtime_error{from + " does not accept a request"};
  std::string all;
  std::array<char, 16'384> piece{};
  while (true) {
    const ssize_t got = ::recv(with.native(), piece.data(), piece.size(), 0);
    if (got < 0) throw std::runtime_error{from + " does not answer in time"};
    if (got == 0) return all;
    all.append(piece.data(), static_cast<std::size_t>(got));
  }
}

/// Returns the document of an answer with status 200.
inline std::string http_get(const std::string& from, const std::string& path, std::chrono::seconds at_most) {
  std::string answer = http_answer(from, path, at_most);
  const std::size_t body = answer.find("\r\n\r\n");
  if (answer.find(" 200 ") > answer.find("\r\n") || body == std::string::npos) throw std::runtime_error{answer};
  return answer.substr(body + 4);
}

/// Labels and their values that a sample must have.
using label_filter = std::vector<std::pair<std::string, std::string>>;

inline label_filter with(label_filter all, const std::string& name, const std::string& value) {
  all.emplace_back(name, value);
  return all;
}

class metric_scrape {
public:
  explicit metric_scrape(const std::string& text) {
    std::istringstream lines{text};
    for (std::string line; std::getline(lines, line);)
      if (!line.empty() && line.front() != '#') samples_.push_back(line);
  }

  /// Returns the sum over the samples called \p name that have the labels \p of; 0 if there are none.
  [[nodiscard]] double sum(const std::string& name, const label_filter& of = {}) const {
    double all = 0;
    for (const std::string& one : samples_)
      if (passes(one, name, of)) all += std::stod(one.substr(one.rfind(' ')));
    return all;
  }
  [[nodiscard]] bool has(const std::string& name, const label_filter& of = {}) const {
    return std::ranges::any_of(samples_, [&](const std::string& one) { return passes(one, name, of); });
  }
  /// Returns the distinct values of \p label among the selected samples.
  [[nodiscard]] std::vector<std::string> values(const std::string& name, const std::string& label,
                                                const label_filter& of = {}) const {
    std::set<std::string> all;
    for (const std::string& one : samples_)
      if (const std::size_t at = one.find(label + "=\""); passes(one, name, of) && at != std::string::npos) {
        const std::size_t begin = at + label.size() + 2;
        all.insert(one.substr(begin, one.find('"', begin) - begin));
      }
    return {all.begin(), all.end()};
  }

private:
  static bool passes(const std::string& sample, const std::string& name, const label_filter& of) {
    if (sample.substr(0, sample.find_first_of("{ ")) != name) return false;
    return std::ranges::all_of(of, [&](const auto& wanted) {
      const std::string label = wanted.first + "=\"" + wanted.second + "\"";
      return sample.find("{" + label) != std::string::npos || sample.find("," + label) != std::string::npos;
    });
  }

  std::vector<std::string> samples_;
};

} // namespace troupe::tests
