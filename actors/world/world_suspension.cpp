#include <troupe/actors/world/world_suspension.hpp>

#include <utility>

namespace troupe {

void world_suspension::give_back(rank_pipeline& one) {
  const std::size_t bytes = one.peers().suspend();
  const std::lock_guard lock{mutex_};
  bytes_[one.self()] = bytes;
}

suspension_reply world_suspension::given_back() const {
  const std::lock_guard lock{mutex_};
  suspension_reply reply;
  for (const auto& [self, bytes] : bytes_) reply.bytes.push_back(bytes);
  return reply;
}

void world_suspension::ended(const error& failure) {
  for (const auto& reply : std::exchange(waiting_, {})) {
    if (failure)
      reply->deliver(failure);
    else
      reply->deliver(resumption_reply{});
  }
}

} // namespace troupe
