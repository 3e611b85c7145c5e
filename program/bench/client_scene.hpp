/// Many clients in one runtime, with memory and lanes of their own.
#pragma once

#include <troupe/program/bench/bench_client.hpp>
#include <troupe/program/bench/bench_operands.hpp>
#include <troupe/program/bench/bench_rig.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace troupe::program {

struct client_scene_plan {
  std::size_t clients = 1;
  std::size_t lanes = 0; ///< Of each client, which then has an actor at every rank; 0: clients ask the world.
  std::size_t in_flight = 1;
  std::size_t size_bytes = 8; ///< Of each operation.
};

/// Lifetime: ends before \p rig's runtime.
class client_scene {
public:
  client_scene(bench_rig& rig, const client_scene_plan& plan);
  client_scene(const client_scene&) = delete;
  client_scene& operator=(const client_scene&) = delete;

  /// Every client asks \p each times, \p depth requests in flight.
  [[nodiscard]] std::vector<std::vector<request_times>> ask(std::size_t each, std::size_t depth) {
    return crew_.run(work_, each, depth);
  }
  /// As many operations as there are clients, by raw's threads: in one group, or by one launch each.
  [[nodiscard]] double raw_us(raw_ranks& raw, bool together) const;

private:
  std::vector<rank> ranks_;
  std::vector<std::vector<operation>> raw_;              ///< By rank.
  std::vector<std::vector<const operation*>> addresses_; ///< Of the same.
  std::vector<std::shared_ptr<const client_work>> work_;
  client_crew crew_;
};

} // namespace troupe::program
