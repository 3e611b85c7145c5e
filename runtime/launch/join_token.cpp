#include <troupe/runtime/launch/file_descriptor.hpp>
#include <troupe/runtime/launch/join_token.hpp>

#include <sys/random.h>

#include <array>

namespace troupe::launch {

std::string make_join_token() {
  std::array<unsigned char, 32> bytes{};
  // Requests of up to 256 bytes are never cut short.
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw_system_error("getrandom", "the system could not generate random bytes");
  constexpr const char* digits = "0123456789abcdef";
  std::string token;
  for (const unsigned byte : bytes) {
    token += digits[byte >> 4U];
    token += digits[byte & 15U];
  }
  return token;
}

} // namespace troupe::launch
