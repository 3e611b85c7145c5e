#include <troupe/runtime/packages.hpp>

#include <troupe/device/error.hpp>

#include <string>

namespace troupe {

namespace {

template <class Package>
const Package& need(const Package* (*linked)() noexcept, std::string_view what, std::string_view target) {
  if (linked != nullptr) return *linked();
  throw exception{errc::unsupported, std::string{what} +
                                         ", which this program is linked without: link the CMake target " +
                                         std::string{target} + ", or troupe::troupe, which is everything"};
}

} // namespace

const processes_package& need_processes_package(std::string_view what) {
  return need(troupe_processes_package, what, "troupe::processes");
}

const backends_package& need_backends_package(std::string_view what) {
  return need(troupe_backends_package, what, "troupe::backends");
}

const backends_package* find_backends_package() noexcept {
  return troupe_backends_package != nullptr ? troupe_backends_package() : nullptr;
}

} // namespace troupe
