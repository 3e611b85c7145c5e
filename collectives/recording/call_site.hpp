/// The line of a client's source code that makes a request.
#pragma once

namespace troupe {

/// Like std::source_location, which clang supports only since version 16. As a default argument or default member
/// initializer, current() returns the caller's line. Lifetime: \c file is a literal of the program, or of a library
/// that stays loaded as long as the runtime.
struct call_site {
  const char* file = nullptr; ///< Null: unknown.
  unsigned line = 0;

  [[nodiscard]] static constexpr call_site current(const char* file = __builtin_FILE(),
                                                   unsigned line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

} // namespace troupe
