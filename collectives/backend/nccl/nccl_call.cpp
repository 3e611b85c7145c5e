#include <troupe/collectives/backend/nccl/nccl_call.hpp>

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

namespace troupe {

namespace {

std::string advice(errc code) {
  switch (code) {
    case errc::invalid_argument: return "NCCL refused an argument";
    case errc::device_failed: return "a CUDA call inside NCCL failed: form a new world";
    default: return "the communicator has failed: form a new world";
  }
}

} // namespace

errc meaning_of(ncclResult_t result) noexcept {
  switch (result) {
    case ncclSuccess: return errc::none;
    case ncclInvalidArgument:
    case ncclInvalidUsage: return errc::invalid_argument;
    case ncclUnhandledCudaError: return errc::device_failed;
    default: return errc::communicator_failed;
  }
}

std::string last_error_of(const nccl_functions& nccl) {
  constexpr std::size_t most = 1024;
  const char* const last = nccl.get_last_error != nullptr ? nccl.get_last_error(nullptr) : nullptr;
  std::string words{last != nullptr ? std::string(last, ::strnlen(last, most)) : std::string{}};
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return words;
}

void nccl_call(const nccl_functions& nccl, ncclResult_t result, const char* call, std::optional<rank> who,
               effect touched) {
  if (result == ncclSuccess) [[likely]]
    return;
  const errc code = meaning_of(result);
  std::string words = nccl.get_error_string(result);
  if (const std::string last = last_error_of(nccl); !last.empty()) words += "; " + last;
  throw exception{error{.code = code,
                        // NCCL checks arguments before it does anything else.
                        .effect = code == errc::invalid_argument ? effect::rejected : touched,
                        .text = advice(code),
                        .call = call,
                        .native_code = static_cast<int>(result),
                        .native_text = std::move(words),
                        .rank = who}};
}

} // namespace troupe
