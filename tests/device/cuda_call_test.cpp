/// What CUDA's codes mean to troupe, as far as it can be told without a GPU.

#include <troupe/device/cuda/cuda_call.hpp>

#include <catch2/catch_test_macros.hpp>

namespace troupe::tests {

TEST_CASE("a CUDA code means what the caller should do", "[device]") {
  CHECK(meaning_of(cudaSuccess) == errc::none);
  CHECK(meaning_of(cudaErrorInvalidValue) == errc::invalid_argument);
  CHECK(meaning_of(cudaErrorMemoryAllocation) == errc::out_of_memory);
  CHECK(meaning_of(cudaErrorNoDevice) == errc::missing);
  CHECK(meaning_of(cudaErrorInsufficientDriver) == errc::too_old);
  CHECK(meaning_of(cudaErrorPeerAccessUnsupported) == errc::device_failed);
}

TEST_CASE("codes that a process cannot undo poison it", "[device]") {
  for (const int sticky : {214, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721})
    CHECK(meaning_of(static_cast<cudaError_t>(sticky)) == errc::process_poisoned);
}

TEST_CASE("a failed CUDA call names itself, its code and CUDA's own words", "[device]") {
  CHECK_NOTHROW(cuda_call(cudaSuccess, "cudaMalloc"));
  try {
    cuda_call(cudaErrorMemoryAllocation, "cudaMalloc");
    FAIL("a failed call did not throw");
  } catch (const exception& failure) {
    CHECK(failure.why().code == errc::out_of_memory);
    CHECK(failure.why().call == "cudaMalloc");
    CHECK(failure.why().native_code == 2);
    CHECK(failure.why().native_text.find("cudaErrorMemoryAllocation") != std::string::npos);
  }
}

TEST_CASE("giving back to a CUDA that is being unloaded is no failure", "[device]") {
  CHECK_NOTHROW(cuda_return(cudaErrorCudartUnloading, "cudaFreeAsync"));
  CHECK_THROWS_AS(cuda_return(cudaErrorInvalidValue, "cudaFreeAsync"), exception);
}

} // namespace troupe::tests
