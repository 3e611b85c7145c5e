#include <troupe/device/error.hpp>
#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/metrics.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <limits>

namespace troupe {

metrics_address parse_metrics_address(std::string_view text) {
  const auto colon = text.rfind(':');
  std::string_view host = text.substr(0, colon);
  constexpr std::uint64_t last_port = std::numeric_limits<std::uint16_t>::max();
  const std::uint64_t port = colon == std::string_view::npos
                                 ? last_port + 1
                                 : parse_whole_number(text.substr(colon + 1)).value_or(last_port + 1);
  metrics_address where;
  where.is_ipv6 = host.starts_with('[') && host.ends_with(']');
  if (where.is_ipv6) host = host.substr(1, host.size() - 2);
  where.host = host == "localhost" ? "127.0.0.1" : std::string{host};
  in_addr four{};
  in6_addr six{};
  const bool is_sound = where.is_ipv6 ? inet_pton(AF_INET6, where.host.c_str(), &six) == 1
                                      : inet_pton(AF_INET, where.host.c_str(), &four) == 1;
  if (port > last_port || !is_sound)
    throw exception{errc::invalid_argument,
                    "'" + std::string{text} +
                        "' is not an address for metrics: write HOST:PORT with a numeric host, for example "
                        "127.0.0.1:9464 or [::1]:9464. Port 0 chooses a free port, which is logged"};
  where.port = static_cast<std::uint16_t>(port);
  constexpr unsigned loopback_net = 127;
  where.is_loopback = where.is_ipv6 ? IN6_IS_ADDR_LOOPBACK(&six) != 0 : ntohl(four.s_addr) >> 24U == loopback_net;
  return where;
}

std::string to_string(const metrics_address& where) {
  return (where.is_ipv6 ? "[" + where.host + "]" : where.host) + ":" + std::to_string(where.port);
}

void check(const metrics_settings& settings) {
  if (settings.address.empty()) return;
  const metrics_address where = parse_metrics_address(settings.address);
  if (!where.is_loopback && !settings.allow_remote)
    throw exception{errc::invalid_argument,
                    "metrics.address is " + settings.address +
                        ", which is beyond loopback, and every host that reaches it can read the metrics, unencrypted: "
                        "use 127.0.0.1, or set metrics.allow_remote to yes where only permitted hosts can reach it"};
}

} // namespace troupe
