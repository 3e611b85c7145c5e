#include "block.hpp"

#include <algorithm>
#include <memory>

namespace {

struct loops {
  template <class Work>
  void each(std::size_t count, const Work& work) const {
    for (std::size_t i = 0; i < count; ++i) work(i);
  }
  void multiply(const product& p) const {
    each(p.rows * p.columns, [&p](std::size_t i) {
      const std::size_t row = i % p.rows, column = i / p.rows; // all rows use a column of weights while it is cached
      float sum = 0;
      for (std::size_t k = 0; k < p.depth; ++k)
        sum += p.in[row * p.depth + k] * p.weights[p.transposed ? column * p.depth + k : k * p.columns + column];
      float& out = p.out[row * p.columns + column];
      out = sum + (p.kept == 0 ? 0 : p.kept * out);
    });
  }
};

} // namespace

stage_runner make_runner(troupe::stream_ref queue) {
  if (queue.where().api().name() != "mock")
#ifdef TENSOR_PARALLEL_CUDA
    return make_gpu_runner(queue);
#else
    throw troupe::exception{troupe::errc::unsupported, "built without nvcc or cuBLAS: run it with --backend mock"};
#endif
  return [queue](const shard& on, std::size_t stage) {
    using work = std::pair<shard, std::size_t>;
    const auto run = [](void* enqueued) {
      const std::unique_ptr<const work> what{static_cast<const work*>(enqueued)};
      run_stage(loops{}, what->first, what->second);
    };
    queue.call(run, new work{on, stage});
  };
}

std::vector<float> answer_alone(shard all, const std::vector<float>& batch) {
  std::vector<float> memory(all.size());
  all.x = memory.data();
  std::ranges::copy(batch, all.x);
  for (std::size_t stage = 0; stage <= 2 * all.layers; ++stage) run_stage(loops{}, all, stage);
  return {all.x, all.x + all.batch_size()};
}
