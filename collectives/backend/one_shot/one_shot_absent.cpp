// Takes the place of one_shot_kernels.cu where there is no CUDA compiler.
#include <troupe/collectives/backend/one_shot/one_shot_kernels.hpp>

namespace troupe {

const void* compiled_one_shot_kernel(int, one_shot_form) noexcept {
  return nullptr;
}

} // namespace troupe
