#include <troupe/collectives/backend/gloo/gloo_collective.hpp>
#include <troupe/collectives/backend/gloo/gloo_performance.hpp>
#include <troupe/collectives/backend/gloo/gloo_tag.hpp>

#include <gloo/transport/unbound_buffer.h>

#include <cstddef>
#include <cstring>
#include <vector>

namespace troupe {

namespace {

/// A send or recv in progress.
struct begun_transfer {
  std::unique_ptr<gloo::transport::UnboundBuffer> memory;
  bool sends;
};

std::size_t bytes_of(const mock_call& call) noexcept {
  return call.what.count * size_bytes(call.what.type);
}

/// Performs a rank's transfers to itself. Both halves of such a transfer are in the same launch.
void move_to_self(const mock_launch& launch) {
  for (const mock_launch::transfer& from : launch.transfers) {
    if (from.from != from.to || !from.call.what.is_send()) continue;
    for (const mock_launch::transfer& to : launch.transfers)
      if (to.from == to.to && to.call.what.is_recv() && to.ordinal == from.ordinal)
        perform_transfer(from.call, to.call);
  }
}

std::vector<begun_transfer> begin_transfers(const mock_launch& launch, gloo::Context& among) {
  std::vector<begun_transfer> begun;
  begun.reserve(launch.transfers.size());
  for (const mock_launch::transfer& one : launch.transfers) {
    const std::size_t length = bytes_of(one.call);
    if (one.from == one.to || length == 0) continue;
    const bool sends = one.call.what.is_send();
    // Gloo has one type of buffer. It only reads a buffer that is sent.
    void* const memory = sends ? const_cast<std::byte*>(one.call.send) : one.call.recv;
    begun.push_back({among.createUnboundBuffer(memory, length), sends});
    const std::uint64_t slot = transfer_slot(one.call.what, one.ordinal);
    if (sends)
      begun.back().memory->send(static_cast<int>(one.to), slot);
    else
      begun.back().memory->recv(static_cast<int>(one.from), slot);
  }
  return begun;
}

} // namespace

void perform_launch(const mock_launch& launch, const std::shared_ptr<gloo::Context>& among) {
  const std::vector<begun_transfer> transfers = begin_transfers(launch, *among);
  move_to_self(launch);
  for (std::size_t i = 0; i < launch.collectives.size(); ++i) {
    const mock_call& one = launch.collectives[i];
    perform_collective(one, among, collective_tag(one.what, *launch.ordinal, i));
  }
  for (const begun_transfer& one : transfers) {
    if (one.sends)
      one.memory->waitSend();
    else
      one.memory->waitRecv();
  }
}

} // namespace troupe
