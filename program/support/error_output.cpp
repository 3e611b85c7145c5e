#include <troupe/program/support/error_output.hpp>

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>

namespace troupe::program {

namespace {

constexpr int patience_ms = 1000;

/// Writes at most PIPE_BUF bytes: a pipe that is ready accepts that many without blocking. Returns whether it did.
bool write_piece(int to, std::string_view piece) noexcept {
  while (!piece.empty()) {
    pollfd waiting{.fd = to, .events = POLLOUT, .revents = 0};
    const int ready = ::poll(&waiting, 1, patience_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0 || waiting.revents != POLLOUT) return false; // POLLERR: the reader has gone
    const ssize_t count = ::write(to, piece.data(), piece.size());
    if (count < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (count > 0) piece.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

} // namespace

void write_error(int to, std::initializer_list<std::string_view> parts) noexcept {
  std::array<char, PIPE_BUF> piece; // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
  std::size_t size = 0;
  for (std::string_view part : parts)
    while (!part.empty()) {
      const std::size_t count = std::min(part.size(), piece.size() - size);
      std::copy_n(part.data(), count, piece.data() + size);
      size += count;
      part.remove_prefix(count);
      if (size < piece.size()) continue;
      if (!write_piece(to, {piece.data(), size})) return;
      size = 0;
    }
  write_piece(to, {piece.data(), size});
}

} // namespace troupe::program
