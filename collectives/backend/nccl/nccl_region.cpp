#include <troupe/collectives/backend/nccl/nccl_call.hpp>
#include <troupe/collectives/backend/nccl/nccl_region.hpp>
#include <troupe/device/memory/leak_report.hpp>

#include <cstdlib>
#include <string>
#include <thread>

namespace troupe {

namespace {

constexpr std::size_t granularity = 4096; // required for windows (NCCL_WIN_REQUIRED_ALIGNMENT)

bool switched_off(const char* variable) {
  const char* const value = std::getenv(variable); // NOLINT(concurrency-mt-unsafe): nobody sets it while worlds live
  return value != nullptr && std::string{value} == "0";
}

} // namespace

std::shared_ptr<nccl_region> nccl_region::allocate(std::shared_ptr<const nccl_library> library,
                                                   const std::shared_ptr<device>& where, std::size_t size_bytes) {
  const nccl_functions& nccl = library->functions();
  if (nccl.mem_alloc == nullptr || nccl.mem_free == nullptr || nccl.comm_window_register == nullptr ||
      nccl.comm_window_deregister == nullptr)
    throw exception{errc::unsupported, "NCCL " + library->version() +
                                           " cannot register memory as a window: use NCCL 2.27 or newer, or the "
                                           "pools' memory"};
  where->api().enter_thread(where->id());
  const std::size_t rounded = (size_bytes + granularity - 1) / granularity * granularity;
  void* address = nullptr;
  nccl_call(nccl, nccl.mem_alloc(&address, rounded), "ncclMemAlloc");
  return std::make_shared<nccl_region>(std::move(library), where, static_cast<std::byte*>(address), rounded);
}

nccl_region::~nccl_region() {
  // Frees on a thread of its own, so that the thread that drops the last handle keeps its current device.
  std::thread{[this] {
    return_or_report("registered memory", [this] {
      where()->api().enter_thread(where()->id());
      nccl_call(library_->functions(), library_->functions().mem_free(address()), "ncclMemFree");
    });
  }}.join();
}

void nccl_region::judge(bool has_window) {
  if (!has_window) return ordinary("NCCL gave no window for it");
  for (const char* variable : {"NCCL_WIN_ENABLE", "NCCL_CUMEM_ENABLE"})
    if (switched_off(variable)) return ordinary(std::string{variable} + " is 0");
  driver& api = where()->api();
  for (int other = 0; other < api.device_count(); ++other)
    if (!api.describe_peer(where()->id(), device_id{other}).access)
      return ordinary("device " + to_string(where()->id()) + " has no peer access to device " + std::to_string(other));
}

} // namespace troupe
