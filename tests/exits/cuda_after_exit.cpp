// Tells of each call of CUDA's driver that is made when the program has begun to end: CUDA loads it where
// CUDA_INJECTION64_PATH names it. It says how many there were, as its last word.
#include <cupti.h>

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<bool> ending{false};
std::atomic<unsigned> calls_after{0};

void say(const char* text) {
  static_cast<void>(::write(STDERR_FILENO, text, std::strlen(text)) != 0); // streams may have been closed
}

void on_call(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
  const auto& call = *static_cast<const CUpti_CallbackData*>(data);
  if (call.callbackSite != CUPTI_API_ENTER || !ending.load()) return;
  ++calls_after;
  char line[160];
  std::snprintf(line, sizeof line, "after exit: %s\n", call.functionName);
  say(line);
}

/// What was constructed before CUDA was loaded is destroyed after this.
void on_exit() {
  ending = true;
  say("CUDA is watched from here\n");
}

struct last_word {
  ~last_word() {
    char line[64];
    std::snprintf(line, sizeof line, "calls of CUDA after exit: %u\n", calls_after.load());
    say(line);
  }
} const at_unload;

} // namespace

extern "C" int InitializeInjection() {
  CUpti_SubscriberHandle subscriber{};
  if (cuptiSubscribe(&subscriber, reinterpret_cast<CUpti_CallbackFunc>(&on_call), nullptr) != CUPTI_SUCCESS ||
      cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API) != CUPTI_SUCCESS) {
    say("CUPTI cannot watch\n");
    return 0;
  }
  return std::atexit(on_exit) == 0 ? 1 : 0;
}
