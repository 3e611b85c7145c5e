// Replaces the other source files of this folder in a build without CUDA.
#include <troupe/collectives/backend/nccl/nccl_backend.hpp>
#include <troupe/collectives/backend/nccl/nccl_library.hpp>
#include <troupe/collectives/backend/nccl/nvtx_ranges.hpp>

namespace troupe {

namespace {

[[noreturn]] void refuse() {
  throw exception{errc::missing, "this troupe was built without NCCL: build it with -DTROUPE_CUDA=ON, the CUDA toolkit "
                                 "12.4 or newer and nccl.h, or set the backend to mock"};
}

} // namespace

std::shared_ptr<const nccl_library> nccl_library::open(const std::optional<std::filesystem::path>&) {
  refuse();
}

bool nccl_library::has(std::string_view) const {
  return handle_ != nullptr && false; // never reached: no library can be opened
}

bool nccl_library::is_loaded(const std::optional<std::filesystem::path>&) {
  return false;
}

std::shared_ptr<backend> make_nccl_backend(const std::optional<std::string>&, const nccl_values&) {
  refuse();
}

std::shared_ptr<launch_observer> make_nvtx_ranges() {
  return nullptr;
}

bool nvtx_is_heard() noexcept {
  return false;
}

} // namespace troupe
