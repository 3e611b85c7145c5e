/// Troupe's collectives in terms of Gloo's.
#pragma once

#include <troupe/collectives/backend/mock/mock_call.hpp>

#include <gloo/context.h>

#include <cstdint>
#include <memory>

namespace troupe {

/// Does one collective among all ranks. Blocks until it is done for this rank.
/// Numbers: as mock_reduce.hpp, but that the order of the ranks is Gloo's, which differs from element to element; every
/// rank has the same bits. \p tag: collective_tag()'s.
/// Errors: communicator_failed, Gloo's own; internal for what is no collective.
void perform_collective(const mock_call& mine, const std::shared_ptr<gloo::Context>& among, std::uint32_t tag);

} // namespace troupe
