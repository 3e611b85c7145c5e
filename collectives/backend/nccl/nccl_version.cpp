#include <troupe/collectives/backend/nccl/nccl_library.hpp>

namespace troupe {

std::string nccl_library::version_text(int number) {
  // NCCL's version code was major·1000 + minor·100 + patch up to 2.8, and is major·10000 + minor·100 + patch since.
  const int major = number < 10000 ? number / 1000 : number / 10000;
  const int rest = number < 10000 ? number % 1000 : number % 10000;
  return std::to_string(major) + '.' + std::to_string(rest / 100) + '.' + std::to_string(rest % 100);
}

} // namespace troupe
