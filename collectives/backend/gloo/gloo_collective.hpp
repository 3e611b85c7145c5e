/// Performs troupe's collectives with Gloo's algorithms.
#pragma once

#include <troupe/collectives/backend/mock/mock_call.hpp>
#include <troupe/collectives/backend/mock/mock_rendezvous.hpp>

#include <gloo/context.h>

#include <cstdint>
#include <memory>

namespace troupe {

/// Blocks until the launch is done for this rank. All sends and receives are started before any is waited for.
/// Errors: communicator_failed and Gloo's own exceptions. After an error no memory of the launch is touched.
void perform_launch(const mock_launch& launch, const std::shared_ptr<gloo::Context>& among);

/// Performs one collective among all ranks. Blocks until it is done for this rank.
/// Numbers: as in mock_reduce.hpp, except that the order in which ranks are combined is Gloo's and differs from element
/// to element. Every rank has the same bits. \p tag: from collective_tag().
/// Errors: communicator_failed; Gloo's own exceptions; internal (the operation is not a collective).
void perform_collective(const mock_call& mine, const std::shared_ptr<gloo::Context>& among, std::uint32_t tag);

} // namespace troupe
