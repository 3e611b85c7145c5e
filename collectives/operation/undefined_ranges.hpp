/// Which memory is undefined when nobody knows whether an operation has run (ONE-2).
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/memory/undefined_buffer.hpp>

#include <memory>

namespace troupe {

/// What rank \p self, which works on device \p where, writes in \p what: exactly what it writes of each buffer, host
/// memory and results in place too; of a group, all its parts. Of a replay, whatever its requests write on \p where and
/// whatever memory the plan was told to keep there, since the client's own kernels may write that. Null where there is
/// no memory to build the list in.
[[nodiscard]] std::shared_ptr<const undefined_buffers> undefined_ranges(const operation& what, rank self,
                                                                        int world_size, device_id where) noexcept;

} // namespace troupe
