/// Defines an owner of a file descriptor, e.g. of a socket, a pipe or a pidfd.
#pragma once

#include <unistd.h>

#include <utility>

namespace troupe {

/// Owns a file descriptor and closes it when destroyed. Move-only.
class file_descriptor {
public:
  file_descriptor() noexcept = default;
  explicit file_descriptor(int native) noexcept : native_{native} {}
  file_descriptor(file_descriptor&& other) noexcept : native_{other.release()} {}
  file_descriptor& operator=(file_descriptor&& other) noexcept {
    if (this != &other) {
      close();
      native_ = other.release();
    }
    return *this;
  }
  ~file_descriptor() { close(); }

  /// Returns the descriptor; negative if there is none.
  [[nodiscard]] int native() const noexcept { return native_; }
  [[nodiscard]] explicit operator bool() const noexcept { return native_ >= 0; }
  void close() noexcept {
    // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult): it does not follow a moved pair of these
    if (native_ >= 0) ::close(release());
  }
  /// Releases the descriptor to the caller, who must close it.
  [[nodiscard]] int release() noexcept { return std::exchange(native_, -1); }

private:
  int native_ = -1;
};

} // namespace troupe
