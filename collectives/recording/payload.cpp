#include <troupe/collectives/operation/dtype.hpp>
#include <troupe/collectives/recording/payload.hpp>

#include <numeric>
#include <type_traits>
#include <variant>

namespace troupe {

namespace {

template <class T>
std::size_t payload_of_one(const T& what) noexcept {
  [[maybe_unused]] const auto all_of = [](const partition& parts) {
    return std::accumulate(parts.counts.begin(), parts.counts.end(), std::size_t{0});
  };
  if constexpr (std::is_same_v<T, copy>)
    return what.from.memory.size_bytes();
  else if constexpr (std::is_same_v<T, group>) {
    std::size_t bytes = 0;
    for (const operation& part : what.parts) bytes += payload_of(part);
    return bytes;
  } else if constexpr (requires { what.count; })
    return what.count * size_bytes(what.type);
  else if constexpr (requires { what.send_parts; })
    return all_of(what.send_parts) * size_bytes(what.type);
  else if constexpr (requires { what.recv_parts; })
    return all_of(what.recv_parts) * size_bytes(what.type);
  else
    return 0;
}

} // namespace

std::size_t payload_of(const operation& what) noexcept {
  if (what.valueless_by_exception()) return 0;
  return std::visit([](const auto& one) { return payload_of_one(one); }, what);
}

} // namespace troupe
