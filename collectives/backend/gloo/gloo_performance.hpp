/// Does what one launch of a rank asks for, by Gloo's algorithms.
#pragma once

#include <troupe/collectives/backend/mock/mock_rendezvous.hpp>

#include <gloo/context.h>

#include <memory>

namespace troupe {

/// Blocks until it is done for this rank. Sends and receives are all begun before anything is waited for.
/// Errors: communicator_failed and Gloo's own; no memory of the launch is touched afterwards.
void perform_launch(const mock_launch& launch, const std::shared_ptr<gloo::Context>& among);

} // namespace troupe
