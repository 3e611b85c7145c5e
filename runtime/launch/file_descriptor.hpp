/// Owns what the operating system names by a small number: pipes, pidfds and the like.
#pragma once

#include <string>

namespace troupe::launch {

/// Closes its descriptor when it goes. Move-only.
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

  /// Negative when there is none.
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

/// A pipe whose ends are closed on exec and are none of 0, 1 and 2, even where those are free.
/// Errors: unsupported, when the system has no more descriptors.
[[nodiscard]] pipe_ends make_pipe();

/// Reads of \p descriptor return at once from now on, writes too.
void make_nonblocking(const file_descriptor& descriptor);

/// Throws an error of code unsupported with errno's number and words. \p text says what to do.
[[noreturn]] void throw_system_error(const char* call, const std::string& text);

} // namespace troupe::launch
