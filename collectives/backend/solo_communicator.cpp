#include <troupe/collectives/backend/pooled_region.hpp>
#include <troupe/collectives/backend/solo_communicator.hpp>
#include <troupe/collectives/pipeline/launch_parts.hpp>

#include <vector>

namespace troupe {

namespace {

void move(const operand& to, std::size_t to_first, const operand& from, std::size_t from_first, std::size_t count,
          dtype type, stream_ref stream) {
  const std::size_t width = size_bytes(type);
  std::byte* const target = to.memory.data() + to_first * width;
  const std::byte* const source = from.memory.data() + from_first * width;
  if (count > 0 && target != source) stream.copy(target, source, count * width);
}

/// Executes any operation of a world of one rank as a transfer of the rank to itself.
struct solo_launch {
  stream_ref stream;
  solo_scale& scale;

  template <class Operation>
  void operator()(const Operation& what) const {
    if constexpr (requires { what.op; })
      if (what.op == reduction::pre_mul_sum)
        return scale.enqueue(what.recv.memory.data(), what.send.memory.data(), what.count, what.type, what.factor,
                             stream);
    if constexpr (requires {
                    what.count;
                    what.recv;
                  })
      move(what.recv, 0, what.send, 0, what.count, what.type, stream);
  }
  void operator()(const all_gather_v& what) const {
    move(what.recv, what.recv_parts.displacements[0], what.send, 0, what.recv_parts.counts[0], what.type, stream);
  }
  void operator()(const reduce_scatter_v& what) const {
    if (what.op == reduction::pre_mul_sum)
      return scale.enqueue(what.recv.memory.data(),
                           what.send.memory.data() + what.send_parts.displacements[0] * size_bytes(what.type),
                           what.send_parts.counts[0], what.type, what.factor, stream);
    move(what.recv, 0, what.send, what.send_parts.displacements[0], what.send_parts.counts[0], what.type, stream);
  }
  void operator()(const gather_v& what) const {
    move(what.recv, what.recv_parts.displacements[0], what.send, 0, what.recv_parts.counts[0], what.type, stream);
  }
  void operator()(const scatter_v& what) const {
    move(what.recv, 0, what.send, what.send_parts.displacements[0], what.send_parts.counts[0], what.type, stream);
  }
  void operator()(const all_to_all_v& what) const {
    move(what.recv, what.recv_parts.displacements[0], what.send, what.send_parts.displacements[0],
         what.send_parts.counts[0], what.type, stream);
  }
  void operator()(const replay&) const {
    throw exception{errc::internal, "a replay launches its plan's graph and never reaches a communicator"};
  }
  void operator()(const group& what) const {
    std::vector<const operation*> parts;
    for (const operation& one : what.parts) parts.push_back(&one);
    together(parts);
  }

  void together(std::span<const operation* const> all) const {
    const launch_parts parts = parts_of_launch(all);
    std::vector<const send*> sends;
    std::vector<const recv*> recvs;
    for (const operation* each : parts.transfers) {
      if (const auto* one = std::get_if<send>(each)) sends.push_back(one);
      if (const auto* one = std::get_if<recv>(each)) recvs.push_back(one);
    }
    if (sends.size() != recvs.size())
      throw exception{errc::mismatch, "a world of one rank sends to itself: give a recv for each send"};
    for (std::size_t i = 0; i < sends.size(); ++i)
      move(recvs[i]->memory, 0, sends[i]->memory, 0, sends[i]->count, sends[i]->type, stream);
    for (const operation* one : parts.collectives) std::visit(*this, *one);
  }
};

} // namespace

std::shared_ptr<registered_region> solo_communicator::allocate_region(std::size_t size_bytes) {
  return make_pooled_region(where(), size_bytes, "a world of one rank has no peers to reach");
}

void solo_communicator::launch(const operation& what, stream_ref stream) {
  std::visit(solo_launch{stream, scale_}, what);
}

void solo_communicator::launch_together(std::span<const operation* const> all, stream_ref stream) {
  solo_launch{stream, scale_}.together(all);
}

} // namespace troupe
