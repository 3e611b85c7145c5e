/// A product of square matrices on one device, as work of a client's own that runs beside collectives.
#pragma once

#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <memory>
#include <string>

namespace troupe::program {

class matrix_product {
public:
  matrix_product() = default;
  matrix_product(const matrix_product&) = delete;
  matrix_product& operator=(const matrix_product&) = delete;
  virtual ~matrix_product() = default;

  /// Enqueues one product. Threads: one at a time.
  virtual void enqueue() = 0;
  /// Waits for all that have been enqueued.
  virtual void finish() = 0;
};

/// Whose products there are.
class product_library {
public:
  product_library() = default;
  product_library(const product_library&) = delete;
  product_library& operator=(const product_library&) = delete;
  virtual ~product_library() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  /// Of matrices of \p side × \p side bf16 in \p memory, which has product_bytes(). Called by the thread that uses it.
  [[nodiscard]] virtual std::unique_ptr<matrix_product> make(const std::shared_ptr<device>& where, const buffer& memory,
                                                             int side) = 0;
};

/// Of two factors and their product.
[[nodiscard]] constexpr std::size_t product_bytes(int side) noexcept {
  return std::size_t{3} * 2 * static_cast<std::size_t>(side) * static_cast<std::size_t>(side);
}

/// cuBLAS, opened at run time: \p path, or where it is empty libcublas.so.13 or .12 as the linker finds them. On the
/// mock, fills of memory stand in for products. Errors: missing, with what was tried and the remedy.
[[nodiscard]] std::unique_ptr<product_library> open_product_library(driver& api, const std::string& path);

} // namespace troupe::program
