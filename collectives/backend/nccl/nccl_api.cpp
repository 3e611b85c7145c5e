#include <troupe/collectives/backend/nccl/nccl_api.hpp>
#include <troupe/device/error.hpp>

#include <dlfcn.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

namespace troupe {

nccl_functions::address nccl_functions::optional(const char* symbol) const {
  return {library_ != nullptr ? ::dlsym(library_, symbol) : nullptr};
}

nccl_functions::address nccl_functions::required(const char* symbol) const {
  const address found = optional(symbol);
  if (library_ != nullptr && found.native == nullptr)
    throw exception{errc::unsupported, "the NCCL library has no " + std::string{symbol} +
                                           ", which troupe needs: install a complete NCCL 2.27 or newer"};
  return found;
}

namespace {

std::string advice(errc code) {
  switch (code) {
    case errc::invalid_argument: return "NCCL refused an argument";
    case errc::device_failed: return "a CUDA call inside NCCL failed";
    default: return "the communicator has failed";
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
