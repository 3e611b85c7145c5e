/// Registered memory where nothing is to be registered: of the mock, and of a world of one rank.
#pragma once

#include <troupe/collectives/backend/registered_region.hpp>

#include <memory>
#include <string>

namespace troupe {

/// Memory of a pool of its own. \p why_ordinary as registered_region's.
[[nodiscard]] std::shared_ptr<registered_region>
make_pooled_region(const std::shared_ptr<device>& where, std::size_t size_bytes, std::string why_ordinary = {});

} // namespace troupe
