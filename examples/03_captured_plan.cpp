/// A simplified decoder layer: compute, all_reduce, compute, all_reduce, captured once and replayed by one message per
/// step. Runs on GPUs if there are any, otherwise on the mock. Device copies stand for kernels.

#include <troupe/troupe.hpp>

#include <algorithm>
#include <cstdio>

using namespace troupe;

namespace {

constexpr std::size_t count = 1024;
constexpr std::size_t length = count * sizeof(float);

/// One rank's memory: the input, and the results of two stages.
struct layer {
  buffer input;
  buffer attention;
  buffer output;
};

} // namespace

int main() try {
  runtime here;
  world ranks = here.form_world();
  const per_rank layers{
      ranks.local_ranks(), [&](rank self) {
        return layer{ranks.allocate(self, length), ranks.allocate(self, length), ranks.allocate(self, length)};
      }};

  // [capture]
  // Called once for each rank, on that GPU's launcher thread, while its stream is being captured. It is called again
  // when the world forms a new epoch, so it must own everything that it uses.
  const auto plan = ranks.capture([layers](rank_capture& mine) {
    const layer& on = layers[mine.self()];
    // With CUDA: kernel<<<grid, block, 0, reinterpret_cast<cudaStream_t>(mine.stream().native())>>>(…).
    mine.stream().copy(on.attention.data(), on.input.data(), length);
    mine.launch(all_reduce{on.attention, on.attention, count});
    mine.stream().copy(on.output.data(), on.attention.data(), length);
    mine.launch(all_reduce{on.output, on.output, count});
    mine.keep(on.input); // troupe keeps the buffers of requests alive; pass other buffers of kernels to keep()
  });
  // [capture]

  bool right = true;
  const buffer host = ranks.allocate_pinned(length);
  for (int step = 1; step <= 3; ++step) {
    std::ranges::fill(host.host_span<float>(), static_cast<float>(step));
    for (const rank self : ranks.local_ranks()) ranks.copy(self, host, layers[self].input).get();
    // [replay]
    const completion reply = ranks.replay(plan).get();
    // [replay]
    const auto expected = static_cast<float>(step * ranks.size() * ranks.size());
    for (const rank self : ranks.local_ranks()) {
      ranks.copy(self, layers[self].output, host).get();
      right = right && std::ranges::all_of(host.host_span<float>(), [=](float seen) { return seen == expected; });
    }
    const auto took = std::chrono::duration_cast<std::chrono::microseconds>(reply.times.done - reply.times.queued);
    std::printf("step %d: every result is %.0f: %s (%lld us)\n", step, expected, right ? "right" : "WRONG",
                static_cast<long long>(took.count()));
  }
  return right ? 0 : 1;
} catch (const troupe::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
