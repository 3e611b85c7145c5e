#include <troupe/collectives/backend/gloo/gloo_bell.hpp>
#include <troupe/device/error.hpp>

#include <sys/eventfd.h>

#include <cerrno>
#include <cstdint>

namespace troupe {

gloo_bell::gloo_bell() : file_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {
  if (!file_)
    throw exception{error{.code = errc::internal,
                          .text = "no file descriptor is left for the gloo backend: raise the limit (ulimit -n)",
                          .call = "eventfd",
                          .native_code = errno}};
}

void gloo_bell::ring() noexcept {
  constexpr std::uint64_t once = 1;
  // fails only if the counter is full: it is readable then
  static_cast<void>(!::write(file_.number(), &once, sizeof once));
}

void gloo_bell::calm() noexcept {
  std::uint64_t times = 0;
  static_cast<void>(!::read(file_.number(), &times, sizeof times));
}

} // namespace troupe
