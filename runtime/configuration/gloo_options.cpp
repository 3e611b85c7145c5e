#include <troupe/runtime/configuration/gloo_options.hpp>

#include <troupe/device/error.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

namespace troupe {

void check(const gloo_options& options) {
  const std::string& numbers = options.interface_address;
  in_addr v4{};
  in6_addr v6{};
  const bool is_v4 = ::inet_pton(AF_INET, numbers.c_str(), &v4) == 1;
  if (!is_v4 && ::inet_pton(AF_INET6, numbers.c_str(), &v6) != 1)
    throw exception{errc::invalid_argument,
                    "'" + numbers + "' is not a numeric IPv4 or IPv6 address: write one, for example 127.0.0.1"};
  if (is_v4 ? v4.s_addr == htonl(INADDR_ANY) : std::memcmp(&v6, &in6addr_any, sizeof in6addr_any) == 0)
    throw exception{errc::invalid_argument, "'" + numbers +
                                                "' stands for all interfaces, and no peer can connect to "
                                                "it: name the address of one"};
}

} // namespace troupe
