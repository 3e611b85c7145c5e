// Registered memory of an NCCL communicator, and the memory of NCCL that an idle communicator gives back (suspend).
#include <troupe/collectives/backend/nccl/nccl_call.hpp>
#include <troupe/collectives/backend/nccl/nccl_region.hpp>
#include <troupe/collectives/backend/nccl/nccl_visit.hpp>
#include <troupe/collectives/backend/pooled_region.hpp>

#include <cstdint>

namespace troupe {

std::shared_ptr<registered_region> nccl_communicator::allocate_region(std::size_t size_bytes) {
  try {
    return nccl_region::allocate(library_, where(), size_bytes);
  } catch (const exception& failure) { // the same on all ranks, because they use the same library
    if (failure.why().code != errc::unsupported) throw;
    return make_pooled_region(where(), size_bytes, failure.why().text);
  }
}

void nccl_communicator::register_region(registered_region& region) {
  where()->api().enter_thread(where()->id());
  auto* const memory = dynamic_cast<nccl_region*>(&region);
  if (memory == nullptr) return;
  void* window = nullptr;
  {
    const visit stay{*this};
    nccl_call(nccl_,
              wait_out(nccl_.comm_window_register(stay.handle(), memory->address(), memory->size_bytes(), &window,
                                                  nccl_window_symmetric)),
              "ncclCommWindowRegister", self());
  }
  memory->judge(window != nullptr);
  const std::lock_guard lock{guard_};
  if (window != nullptr) windows_.push_back(window);
}

std::size_t nccl_communicator::suspend() {
  if (nccl_.comm_suspend == nullptr || nccl_.comm_resume == nullptr) return communicator::suspend();
  where()->api().enter_thread(where()->id());
  const visit stay{*this};
  std::uint64_t bytes = 0;
  if (nccl_.comm_mem_stats != nullptr)
    nccl_call(nccl_, nccl_.comm_mem_stats(stay.handle(), nccl_memory_to_suspend, &bytes), "ncclCommMemStats", self());
  nccl_call(nccl_, wait_out(nccl_.comm_suspend(stay.handle(), nccl_suspend_memory)), "ncclCommSuspend", self());
  return bytes;
}

void nccl_communicator::resume() {
  if (nccl_.comm_resume == nullptr) return communicator::resume();
  where()->api().enter_thread(where()->id());
  const visit stay{*this};
  nccl_call(nccl_, wait_out(nccl_.comm_resume(stay.handle())), "ncclCommResume", self());
}

} // namespace troupe
