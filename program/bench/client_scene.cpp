#include <troupe/program/bench/client_scene.hpp>

#include <string>
#include <utility>

namespace troupe::program {

client_scene::client_scene(bench_rig& rig, const client_scene_plan& plan)
  : ranks_{rig.where.local_ranks()},
    crew_{rig.rt.system(), rig.where, plan.clients * (plan.lanes > 0 ? ranks_.size() : 1)} {
  const std::size_t room = sums_bytes(plan.size_bytes, plan.in_flight);
  std::vector<std::vector<operation>> firsts;
  for (std::size_t c = 0; c < plan.clients; ++c) {
    // Buffers that share an allocation share a count of holders, which clients would fight for.
    const auto memory = allocate_operands(rig.where, operand_memory::pool, room);
    auto sums = make_sums(memory, plan.size_bytes, plan.in_flight);
    firsts.push_back(sums.front());
    if (plan.lanes == 0) {
      work_.push_back(std::make_shared<const client_work>(client_work{.slots = std::move(sums)}));
      continue;
    }
    std::vector<lane> lanes;
    for (std::size_t i = 0; i < plan.lanes; ++i)
      lanes.push_back(lane::named("bench " + std::to_string(c) + '.' + std::to_string(i)));
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      client_work one{.slots = {}, .whom = ranks_[r], .lanes = lanes};
      for (const auto& sum : sums) one.slots.push_back({sum[r]});
      work_.push_back(std::make_shared<const client_work>(std::move(one)));
    }
  }
  raw_ = by_rank(firsts);
  for (const auto& mine : raw_) {
    auto& addresses = addresses_.emplace_back();
    for (const operation& one : mine) addresses.push_back(&one);
  }
}

double client_scene::raw_us(raw_ranks& raw, bool together) const {
  return in_microseconds(raw.time([&](std::size_t index, communicator& peers, stream_ref stream) {
    if (together) return peers.launch_together(addresses_[index], stream);
    for (const operation* one : addresses_[index]) peers.launch(*one, stream);
  }));
}

} // namespace troupe::program
