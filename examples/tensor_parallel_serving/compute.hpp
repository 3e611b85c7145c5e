/// Where a rank's arithmetic is done: the one seam between the model and GPUs.
#pragma once

#include "elements.hpp"

#include <troupe/device/stream.hpp>

#include <cstddef>
#include <memory>

/// out [rows][columns] = in [rows][inner] · weights, row by row.
struct product {
  const float* in;
  const float* weights; ///< [inner][columns], or, where transposed, [columns][inner].
  float* out;
  int rows;
  int inner;
  int columns;
  bool transposed;
};

/// All of it is done in order; on a stream it is only enqueued. Threads: one at a time.
class compute {
public:
  compute() = default;
  compute(const compute&) = delete;
  compute& operator=(const compute&) = delete;
  virtual ~compute() = default;

  virtual void copy(float* to, const float* from, std::size_t count) = 0;
  virtual void multiply(const product& what) = 0;
  /// Elements 0 to \p count - 1 of \p what.
  virtual void each(const element_work& what, int count) = 0;
};

/// Plain loops, at once.
[[nodiscard]] std::unique_ptr<compute> make_plain_compute();
/// As work in \p queue: plain loops on a mock device, cuBLAS and kernels on a GPU.
/// Errors: unsupported (a GPU, and the example was built without them).
[[nodiscard]] std::unique_ptr<compute> make_compute(troupe::stream_ref queue);
/// The latter. \p queue is of a GPU.
[[nodiscard]] std::unique_ptr<compute> make_cuda_compute(troupe::stream_ref queue);
