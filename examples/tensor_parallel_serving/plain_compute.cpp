#include "compute.hpp"

#include <algorithm>
#include <functional>
#include <utility>

namespace {

void multiply_now(const product& p) {
  for (int row = 0; row < p.rows; ++row) {
    const float* in = p.in + row * p.inner;
    float* out = p.out + row * p.columns;
    if (p.transposed) {
      for (int column = 0; column < p.columns; ++column) {
        const float* weights = p.weights + column * p.inner;
        float sum = 0;
        for (int k = 0; k < p.inner; ++k) sum += in[k] * weights[k];
        out[column] = sum;
      }
    } else {
      std::fill_n(out, p.columns, 0.F);
      for (int k = 0; k < p.inner; ++k)
        for (int column = 0; column < p.columns; ++column) out[column] += in[k] * p.weights[k * p.columns + column];
    }
  }
}

class plain_compute : public compute {
public:
  void copy(float* to, const float* from, std::size_t count) override {
    run([=] { std::copy_n(from, count, to); });
  }
  void multiply(const product& what) override {
    run([=] { multiply_now(what); });
  }
  void each(const element_work& what, int count) override {
    run([=] {
      std::visit(
          [count](const auto& one) {
            for (int i = 0; i < count; ++i) one(i);
          },
          what);
    });
  }

private:
  virtual void run(std::function<void()> work) { work(); }
};

class queued_compute final : public plain_compute {
public:
  explicit queued_compute(troupe::stream_ref queue) : queue_{queue} {}

private:
  void run(std::function<void()> work) override {
    auto held = std::make_unique<std::function<void()>>(std::move(work));
    queue_.call(
        [](void* argument) {
          const std::unique_ptr<std::function<void()>> now{static_cast<std::function<void()>*>(argument)};
          (*now)();
        },
        held.get());
    static_cast<void>(held.release()); // the queue's from here on
  }

  troupe::stream_ref queue_;
};

} // namespace

std::unique_ptr<compute> make_plain_compute() {
  return std::make_unique<plain_compute>();
}

std::unique_ptr<compute> make_compute(troupe::stream_ref queue) {
  if (queue.where().api().name() == "mock") return std::make_unique<queued_compute>(queue);
#ifdef TENSOR_PARALLEL_CUDA
  return make_cuda_compute(queue);
#else
  throw troupe::exception{troupe::errc::unsupported,
                          "built without nvcc or cuBLAS, for the mock alone: build it with the CUDA toolkit, or set "
                          "TROUPE_BACKEND=mock"};
#endif
}
