#include "kernel_queue.hpp"

#include <memory>

namespace training {

#if TRAINING_HAS_KERNELS
const char* launch_kernel(const kernel& what, void* stream); // kernels.cu
#else
static const char* launch_kernel(const kernel&, void*) {
  throw troupe::exception{troupe::errc::missing,
                          "this example was built without nvcc: build it with the CUDA Toolkit's, "
                          "or run it with --backend mock"};
}
#endif

static void run_as_loops(void* enqueued) {
  const std::unique_ptr<const kernel> what{static_cast<const kernel*>(enqueued)};
  std::visit(
      [](const auto& one) {
        for (std::size_t i = 0; i < one.size; ++i) one(i);
      },
      *what);
}

void enqueue(troupe::stream_ref where, const kernel& what) {
  troupe::driver& api = where.where().api();
  if (api.name() == "mock") return where.call(run_as_loops, std::make_unique<kernel>(what).release());
  api.enter_thread(where.where().id());
  if (const char* const failure = launch_kernel(what, where.native()))
    throw troupe::exception{troupe::errc::device_failed, std::string{"a kernel was not launched: "} + failure};
}

} // namespace training
