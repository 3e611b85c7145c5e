/// A file descriptor that is closed automatically.
#pragma once

#include <unistd.h>

#include <utility>

namespace troupe {

/// Owns one descriptor, or none.
class open_file {
public:
  open_file() noexcept = default;
  explicit open_file(int number) noexcept : number_{number} {}
  open_file(open_file&& other) noexcept : number_{std::exchange(other.number_, none)} {}
  open_file& operator=(open_file&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~open_file() {
    if (number_ != none) ::close(number_);
  }

  [[nodiscard]] int number() const noexcept { return number_; }
  [[nodiscard]] explicit operator bool() const noexcept { return number_ >= 0; }

private:
  static constexpr int none = -1;
  int number_ = none;
};

} // namespace troupe
