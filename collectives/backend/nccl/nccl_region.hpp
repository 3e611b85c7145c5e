/// Memory allocated by ncclMemAlloc. For collectives/backend/nccl only: it needs nccl.h.
#pragma once

#include <troupe/collectives/backend/nccl/nccl_library.hpp>
#include <troupe/collectives/backend/registered_region.hpp>

#include <memory>

namespace troupe {

/// Source: NCCL's manual, "User Buffer Registration", "Window Registration"; dev_runtime.cc for what makes a window
/// symmetric (all ranks reach each other by CUDA's peer access; NCCL_WIN_ENABLE and NCCL_CUMEM_ENABLE are not 0).
class nccl_region final : public registered_region {
public:
  /// Errors: unsupported (the library is too old), out_of_memory.
  [[nodiscard]] static std::shared_ptr<nccl_region>
  allocate(std::shared_ptr<const nccl_library> library, const std::shared_ptr<device>& where, std::size_t size_bytes);
  nccl_region(std::shared_ptr<const nccl_library> library, std::shared_ptr<device> where, std::byte* address,
              std::size_t size_bytes)
    : registered_region{std::move(where), address, size_bytes}, library_{std::move(library)} {}
  ~nccl_region() override;

  /// Records the reason if requests will run as on ordinary memory. \p has_window: NCCL registered a window.
  void judge(bool has_window);

private:
  std::shared_ptr<const nccl_library> library_;
};

} // namespace troupe
