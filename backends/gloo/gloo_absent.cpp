// Replaces the other source files of this folder in a build without Gloo.
#include <troupe/backends/gloo/gloo_backend.hpp>
#include <troupe/device/error.hpp>

namespace troupe {

bool has_gloo() noexcept {
  return false;
}

std::shared_ptr<backend> make_gloo_backend(gloo_options) {
  throw exception{errc::missing,
                  "this troupe was built without Gloo: install it (on Debian and Ubuntu: apt-get install "
                  "libgloo-dev) and build with -DTROUPE_GLOO=ON, or set the backend to mock"};
}

} // namespace troupe
