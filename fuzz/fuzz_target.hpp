/// Defines what the fuzz targets share: libFuzzer's entry point and checks that end the process.
#pragma once

#include <troupe/device/error.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace troupe::fuzz {

[[nodiscard]] inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Ends the process if \p holds is false. libFuzzer then reports the input.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

/// Runs \p decode and returns whether it accepted its input. It may refuse the input with an exception whose code is
/// invalid_argument and which has a text; libFuzzer reports any other exception as a finding.
template <class Decode>
bool taken(Decode&& decode) {
  try {
    std::forward<Decode>(decode)();
    return true;
  } catch (const exception& refusal) {
    require(refusal.why().code == errc::invalid_argument, "a decoder refuses with invalid_argument");
    require(!refusal.why().text.empty(), "a refusal says why");
    return false;
  }
}

} // namespace troupe::fuzz

/// Defines libFuzzer's entry point. The body that follows the macro receives the input as `text`.
#define TROUPE_FUZZ_TARGET()                                                                                           \
  static void fuzz_one(std::string_view text);                                                                         \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {                                  \
    fuzz_one(troupe::fuzz::text_of(data, size));                                                                       \
    return 0;                                                                                                          \
  }                                                                                                                    \
  static void fuzz_one(std::string_view text)
