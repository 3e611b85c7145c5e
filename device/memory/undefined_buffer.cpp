#include <troupe/device/memory/undefined_buffer.hpp>

#include <array>
#include <cstdint>
#include <cstdio>

namespace troupe {

namespace {

constexpr std::size_t most_described = 4; // with a thousand ranks, the first few are enough

} // namespace

std::string describe(const undefined_buffer& one) {
  std::array<char, 24> at{};
  std::snprintf(at.data(), at.size(), "0x%jx",
                static_cast<std::uintmax_t>(reinterpret_cast<std::uintptr_t>(one.address)));
  return std::to_string(one.size_bytes) + " bytes at " + at.data() +
         (one.device ? " on device " + to_string(*one.device) : std::string{" in host memory"}) + " (rank " +
         to_string(one.rank) + ")";
}

std::string describe(const undefined_buffers& all) {
  std::string text;
  for (std::size_t i = 0; i < all.size() && i < most_described; ++i) text += (i == 0 ? "" : ", ") + describe(all[i]);
  if (all.size() > most_described) text += " and " + std::to_string(all.size() - most_described) + " more";
  return text;
}

} // namespace troupe
