// Measures how several communicators should share one GPU. Each rank is a member of three communicators: the world, a
// pair of neighbours, and a pair of ranks half a world apart. A step is one all_reduce in each. Compares one stream for
// all communicators, one stream each without ordering, and one stream each chained by events. To measure one stream
// each with NCCL_LAUNCH_ORDER_IMPLICIT=1, run the program again with that variable set.
#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/nccl/nccl_backend.hpp>
#include <troupe/device/cuda/cuda_driver.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/stream.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace troupe;

namespace {

using steady = std::chrono::steady_clock;
using microseconds = std::chrono::duration<double, std::micro>;

enum class sharing : std::uint8_t { one_stream, own_streams, chained };
constexpr std::array ways{sharing::one_stream, sharing::own_streams, sharing::chained};
constexpr std::array names{"one stream", "own streams", "chained"};

struct workload {
  std::string name;
  std::array<std::size_t, 3> bytes; ///< Sizes in the world, in the pair of neighbours and in the other pair.
};

struct sample {
  double step_us = 0;
  double launch_us = 0; ///< The duration of one launch call.
};

class rank_thread {
public:
  rank_thread(const std::shared_ptr<driver>& api, backend& nccl, const unique_id& id, int self, int size)
    : gpu_{device::open(api, device_id{self})}, pool_{memory_pool::create(gpu_)} {
    api->enter_thread(gpu_->id());
    peers_[0] = nccl.create(id, rank{self}, size, gpu_);
    peers_[0]->init();
    peers_[1] = peers_[0]->split({.color = self / 2, .self = rank{self % 2}, .world_size = 2});
    peers_[1]->init();
    peers_[2] = peers_[0]->split({.color = self % (size / 2), .self = rank{self / (size / 2)}, .world_size = 2});
    peers_[2]->init();
    for (auto& one : streams_) one = std::make_unique<stream>(gpu_);
    for (auto& one : memory_) one = pool_->allocate(std::size_t{64} << 20U);
  }
  rank_thread(const rank_thread&) = delete;
  rank_thread& operator=(const rank_thread&) = delete;
  ~rank_thread() {
    for (auto at = peers_.rbegin(); at != peers_.rend(); ++at) (*at)->destroy();
  }

  sample run(sharing way, const workload& what, int steps) {
    event last{gpu_};
    const auto began = steady::now();
    for (int i = 0; i < steps; ++i)
      for (std::size_t k = 0; k < peers_.size(); ++k) {
        stream& line = *streams_[way == sharing::one_stream ? 0 : k];
        if (way == sharing::chained && (i > 0 || k > 0)) line.ref().wait(last);
        peers_[k]->launch(
            all_reduce{.send = memory_[k], .recv = memory_[k], .count = what.bytes[k] / 4, .type = dtype::f32}, line);
        if (way == sharing::chained) last.record(line);
      }
    const auto launched = steady::now();
    for (const auto& one : streams_) one->ref().synchronize();
    return {microseconds{steady::now() - began}.count() / steps,
            microseconds{launched - began}.count() / steps / static_cast<double>(peers_.size())};
  }

private:
  std::shared_ptr<device> gpu_;
  std::shared_ptr<memory_pool> pool_;
  std::array<std::shared_ptr<communicator>, 3> peers_;
  std::array<std::unique_ptr<stream>, 3> streams_;
  std::array<buffer, 3> memory_;
};

double median(std::vector<double> all) {
  std::ranges::sort(all);
  return all[all.size() / 2];
}

int run_all(int size, int blocks, int steps) {
  const auto api = make_cuda_driver();
  const auto nccl = make_nccl_backend();
  const char* implicit = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"); // NOLINT(concurrency-mt-unsafe): nobody sets it
  std::printf("# %s, %s, %d ranks, %d blocks of %d steps, NCCL_LAUNCH_ORDER_IMPLICIT=%s\n", nccl->version().c_str(),
              api->version().c_str(), size, blocks, steps, implicit != nullptr ? implicit : "unset");
  const std::vector<workload> workloads{{"8 B each", {8, 8, 8}},
                                        {"64 KiB each", {65536, 65536, 65536}},
                                        {"1 MiB each", {1U << 20U, 1U << 20U, 1U << 20U}},
                                        {"32 MiB each", {32U << 20U, 32U << 20U, 32U << 20U}},
                                        {"32 MiB and two of 8 B", {32U << 20U, 8, 8}}};
  const unique_id id = nccl->make_unique_id();
  std::barrier<> together{size};
  // samples[workload][way][block], as measured by rank 0. Every way begins at a barrier of all ranks.
  std::vector<std::array<std::vector<sample>, ways.size()>> samples(workloads.size());
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<std::size_t>(size));
    for (int self = 0; self < size; ++self)
      threads.emplace_back([&, self] {
        try {
          rank_thread me{api, *nccl, id, self, size};
          for (std::size_t w = 0; w < workloads.size(); ++w)
            for (int block = -1; block < blocks; ++block) // the first block is a warm-up
              for (std::size_t way = 0; way < ways.size(); ++way) {
                together.arrive_and_wait();
                const sample took = me.run(ways[way], workloads[w], steps);
                if (self == 0 && block >= 0) samples[w][way].push_back(took);
              }
        } catch (const std::exception& why) {
          std::fprintf(stderr, "rank %d: %s\n", self, why.what());
          std::_Exit(1); // the other ranks would wait indefinitely
        }
      });
  }
  std::printf("%-24s %-12s %14s %14s %8s\n", "workload", "way", "step p50 us", "launch p50 us", "ratio");
  for (std::size_t w = 0; w < workloads.size(); ++w) {
    double base = 0;
    for (std::size_t way = 0; way < ways.size(); ++way) {
      std::vector<double> steps_us;
      std::vector<double> launch_us;
      for (const sample& one : samples[w][way]) {
        steps_us.push_back(one.step_us);
        launch_us.push_back(one.launch_us);
      }
      if (way == 0) base = median(steps_us);
      std::printf("%-24s %-12s %14.2f %14.2f %8.3f\n", workloads[w].name.c_str(), names[way], median(steps_us),
                  median(launch_us), median(steps_us) / base);
    }
  }
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  CLI::App program{"Measures how streams of several communicators should share a GPU."};
  int ranks = 4;
  int blocks = 7;
  int steps = 200;
  program.add_option("--ranks", ranks, "an even number, at least 4")->check(CLI::Range(4, 64));
  program.add_option("--blocks", blocks)->check(CLI::PositiveNumber);
  program.add_option("--steps", steps)->check(CLI::PositiveNumber);
  CLI11_PARSE(program, argc, argv);
  try {
    return run_all(ranks, blocks, steps);
  } catch (const std::exception& why) {
    std::fprintf(stderr, "communicator_streams: %s\n", why.what());
    return 1;
  }
}
