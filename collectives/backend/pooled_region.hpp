/// Memory that stands in for registered memory where nothing needs registration: in the mock, and in a world of one
/// rank.
#pragma once

#include <troupe/collectives/backend/registered_region.hpp>

#include <memory>
#include <string>

namespace troupe {

/// Allocates the region from a memory pool of its own. \p why_ordinary: see registered_region.
[[nodiscard]] std::shared_ptr<registered_region>
make_pooled_region(const std::shared_ptr<device>& where, std::size_t size_bytes, std::string why_ordinary = {});

} // namespace troupe
