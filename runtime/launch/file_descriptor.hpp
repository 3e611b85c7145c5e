/// Owns a file descriptor: of a pipe, a pidfd and similar objects.
#pragma once

#include <string>

namespace troupe::launch {

/// Closes its descriptor when it is destroyed. Move-only.
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

  /// Returns the descriptor. Negative: none.
  [[nodiscard]] int native() const noexcept { return native_; }
  [[nodiscard]] explicit operator bool() const noexcept { return native_ >= 0; }
  void close() noexcept;
  [[nodiscard]] int release() noexcept {
    const int native = native_;
    native_ = -1;
    return native;
  }

private:
  int native_ = -1;
};

struct pipe_ends {
  file_descriptor reading;
  file_descriptor writing;
};

/// Creates a pipe. Both ends are closed on exec and are never 0, 1 or 2, even if those are free. Errors: unsupported if
/// there are no more descriptors.
[[nodiscard]] pipe_ends make_pipe();

/// Makes reads and writes of \p descriptor return at once.
void make_nonblocking(const file_descriptor& descriptor);

/// Throws an error with code unsupported and errno's number and text. \p text names the remedy.
[[noreturn]] void throw_system_error(const char* call, const std::string& text);

} // namespace troupe::launch
