/// The place in a client's source where a request was asked for.
#pragma once

namespace troupe {

/// As std::source_location, which clang supports only since version 16. As a default argument or a member's default it
/// names the caller's line. Lifetime: \c file is a literal of the program, or of a library that stays loaded as long as
/// the runtime.
struct call_site {
  const char* file = nullptr; ///< Null: unknown.
  unsigned line = 0;

  [[nodiscard]] static constexpr call_site current(const char* file = __builtin_FILE(),
                                                   unsigned line = __builtin_LINE()) noexcept {
    return {file, line};
  }
};

} // namespace troupe
