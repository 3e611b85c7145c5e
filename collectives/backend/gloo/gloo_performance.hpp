/// Performs one launch of a rank with Gloo's algorithms.
#pragma once

#include <troupe/collectives/backend/mock/mock_rendezvous.hpp>

#include <gloo/context.h>

#include <memory>

namespace troupe {

/// Blocks until the launch is done for this rank. All sends and receives are started before any is waited for.
/// Errors: communicator_failed and Gloo's own exceptions. After an error no memory of the launch is touched.
void perform_launch(const mock_launch& launch, const std::shared_ptr<gloo::Context>& among);

} // namespace troupe
