/// Performs troupe's collectives with Gloo's algorithms.
#pragma once

#include <troupe/collectives/backend/mock/mock_rendezvous.hpp>

#include <gloo/context.h>

#include <cstddef>
#include <memory>

namespace troupe {

/// Blocks until the launch is done for this rank. All sends and receives are started before any is waited for.
/// Numbers: as in host_reduce.hpp, but ranks are combined in the order of Gloo's ring, which differs between elements,
/// and avg divides the sum. So sums, products and averages of f32 and f64 have the bits that PyTorch's process group of
/// Gloo gives them. All ranks get identical bits.
/// \p largest_through_one: see gloo_formation; the same at all ranks.
/// Errors: communicator_failed and Gloo's own exceptions; internal (not a collective operation). After an error
/// no memory of the launch is touched.
void perform_launch(const mock_launch& launch, const std::shared_ptr<gloo::Context>& among,
                    std::size_t largest_through_one);

} // namespace troupe
