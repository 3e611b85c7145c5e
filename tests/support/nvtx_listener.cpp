// A minimal profiler for NVTX: a library that NVTX_INJECTION64_PATH names. Writes every range of the domain troupe to
// the file NVTX_LISTENER_FILE, one line "bytes name" each, and at the end the number of ranges left open.
#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace {

class listener {
public:
  nvtxDomainHandle_t create(const char* name) {
    const auto made = reinterpret_cast<nvtxDomainHandle_t>(std::strcmp(name, "troupe") == 0 ? &ours_ : &others_);
    return made;
  }
  int push(nvtxDomainHandle_t where, const nvtxEventAttributes_t* what) {
    if (!is_ours(where)) return 0;
    const std::lock_guard lock{mutex_};
    std::fprintf(out_, "%llu %s\n", static_cast<unsigned long long>(what->payload.ullValue), what->message.ascii);
    return ++open_;
  }
  int pop(nvtxDomainHandle_t where) {
    if (!is_ours(where)) return 0;
    const std::lock_guard lock{mutex_};
    return --open_;
  }
  ~listener() {
    std::fprintf(out_, "left open: %d\n", open_);
    std::fclose(out_);
  }

private:
  [[nodiscard]] bool is_ours(nvtxDomainHandle_t one) const { return reinterpret_cast<const char*>(one) == &ours_; }

  std::mutex mutex_;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody sets it
  std::FILE* out_ = std::fopen(std::getenv("NVTX_LISTENER_FILE"), "w");
  int open_ = 0;
  char ours_ = 0;
  char others_ = 0;
};

listener& heard() {
  static listener one;
  return one;
}

nvtxDomainHandle_t NVTX_API create_domain(const char* name) {
  return heard().create(name);
}
int NVTX_API push_range(nvtxDomainHandle_t where, const nvtxEventAttributes_t* what) {
  return heard().push(where, what);
}
int NVTX_API pop_range(nvtxDomainHandle_t where) {
  return heard().pop(where);
}

template <class Function>
void listen(NvtxFunctionTable table, NvtxCallbackIdCore2 which, Function* with) {
  *table[which] = reinterpret_cast<NvtxFunctionPointer>(with);
}

} // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t find) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(find(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  listen(table, NVTX_CBID_CORE2_DomainCreateA, create_domain);
  listen(table, NVTX_CBID_CORE2_DomainRangePushEx, push_range);
  listen(table, NVTX_CBID_CORE2_DomainRangePop, pop_range);
  return 1;
}
