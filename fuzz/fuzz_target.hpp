/// What the fuzz targets share: bytes as text, and the way to say that something must hold.
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

/// Ends the process, which libFuzzer reports with the input, unless \p holds.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

/// Runs \p decode. It may refuse its input, as a fault of the caller and with a text; anything else that it throws is a
/// finding, as libFuzzer sees it. Returns whether it was taken.
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

/// libFuzzer's entry: the body sees `text`.
#define TROUPE_FUZZ_TARGET()                                                                                           \
  static void fuzz_one(std::string_view text);                                                                         \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {                                  \
    fuzz_one(troupe::fuzz::text_of(data, size));                                                                       \
    return 0;                                                                                                          \
  }                                                                                                                    \
  static void fuzz_one(std::string_view text)
