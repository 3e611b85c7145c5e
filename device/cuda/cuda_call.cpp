#include <troupe/device/cuda/cuda_call.hpp>

#include <utility>

namespace troupe {

namespace {

std::string advice(errc code) {
  switch (code) {
    case errc::invalid_argument: return "CUDA refused an argument";
    case errc::out_of_memory: return "out of memory: free memory or request less";
    case errc::unsupported: return "the device or its driver cannot do this";
    case errc::missing: return "there is no usable CUDA device";
    case errc::too_old: return "the CUDA driver is too old for this program: upgrade it";
    case errc::process_poisoned: return "a sticky device error, which this process cannot clear: replace the process";
    default: return "the device reported an error";
  }
}

std::string words_of(cudaError_t result) {
  return std::string{cudaGetErrorName(result)} + ": " + cudaGetErrorString(result);
}

} // namespace

errc meaning_of(cudaError_t result) noexcept {
  switch (static_cast<int>(result)) {
    case cudaSuccess: return errc::none;
    case cudaErrorInvalidValue:
    case cudaErrorIllegalState: // of an argument: a stream that is already being captured
    // Errors of captures: the call was wrong, the device is intact.
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorCapturedEvent:
    case cudaErrorStreamCaptureWrongThread: return errc::invalid_argument;
    case cudaErrorMemoryAllocation: return errc::out_of_memory;
    case cudaErrorNotSupported: return errc::unsupported;

    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorStubLibrary:
    case cudaErrorSystemNotReady: return errc::missing;

    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice: return errc::too_old;

    // Each of these errors is documented to leave the process in an inconsistent state until it ends.
    case cudaErrorECCUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorMpsClientTerminated:
    // By number, because not all supported toolkits name them: contained, tensor memory leak, external device.
    case 226:
    case 721:
    case 911:
    // Except while opening a device, a poisoned process gets this error after a cudaDeviceReset().
    case cudaErrorDevicesUnavailable: return errc::process_poisoned;

    default: return errc::device_failed;
  }
}

void forget_cuda_error(cudaError_t result) noexcept {
  if (cudaPeekAtLastError() == result) static_cast<void>(cudaGetLastError());
}

void throw_cuda_error(errc code, cudaError_t result, const char* call, std::string text) {
  forget_cuda_error(result);
  throw exception{error{.code = code,
                        .text = std::move(text),
                        .call = call,
                        .native_code = static_cast<int>(result),
                        .native_text = words_of(result)}};
}

void throw_cuda_error(cudaError_t result, const char* call, std::string text) {
  const errc code = meaning_of(result);
  throw_cuda_error(code, result, call, text.empty() ? advice(code) : std::move(text));
}

} // namespace troupe
