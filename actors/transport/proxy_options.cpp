#include <troupe/actors/transport/proxy_options.hpp>

#include <troupe/device/error.hpp>

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace troupe {

std::string_view to_string(proxy_event_kind kind) noexcept {
  switch (kind) {
    case proxy_event_kind::admitted: return "admitted";
    case proxy_event_kind::ended: return "ended";
    case proxy_event_kind::broken: return "broken";
    case proxy_event_kind::bad_certificate: return "bad_certificate";
    case proxy_event_kind::bad_protocol: return "bad_protocol";
    case proxy_event_kind::bad_token: return "bad_token";
    case proxy_event_kind::bad_frame: return "bad_frame";
    case proxy_event_kind::too_slow: return "too_slow";
    case proxy_event_kind::too_many: return "too_many";
    case proxy_event_kind::unreachable: return "unreachable";
    case proxy_event_kind::left_out: return "left_out";
    case proxy_event_kind::warning: return "warning";
  }
  return "unknown";
}

std::string read_join_token(const std::filesystem::path& file) {
  struct stat found {};
  std::ifstream from{file, std::ios::binary};
  if (!from || ::stat(file.c_str(), &found) != 0 || S_ISDIR(found.st_mode))
    throw exception{error{.code = errc::missing,
                          .text = "the join token's file '" + file.string() + "' cannot be read",
                          .call = "open",
                          .native_code = errno,
                          .native_text = std::strerror(errno)}};
  if ((found.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    throw exception{errc::invalid_argument,
                    "the join token's file '" + file.string() + "' can be read or written by others: chmod 600 it"};
  std::string token(join_secret::longest + 2, '\0');
  from.read(token.data(), static_cast<std::streamsize>(token.size()));
  token.resize(static_cast<std::size_t>(from.gcount()));
  if (const std::size_t end = token.find_first_of("\r\n"); end != std::string::npos) token.resize(end);
  if (token.size() > join_secret::longest)
    throw exception{errc::invalid_argument, "the join token's file '" + file.string() + "' holds more than " +
                                                std::to_string(join_secret::longest) + " characters"};
  return token;
}

} // namespace troupe
