// Replaces cuda_driver.cpp if troupe is built without CUDA.
#include <troupe/device/cuda/cuda_driver.hpp>

namespace troupe {

std::shared_ptr<driver> make_cuda_driver() {
  throw exception{errc::missing, "this troupe was built without CUDA: build it with -DTROUPE_CUDA=ON and the CUDA "
                                 "toolkit 12.4 or newer, or set the backend to mock"};
}

std::optional<bool> find_nvlink_between(const std::string&, const std::string&) {
  return std::nullopt;
}

} // namespace troupe
