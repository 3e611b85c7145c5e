#include <troupe/program/bench/matrix_product.hpp>

#include <dlfcn.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

/// The part of cuBLAS's C interface that is used, with the types of cublas_api.h: a handle is a pointer, and statuses,
/// operations, data types, compute types and algorithms are ints. CUDA's own header is device/cuda's to name.
struct cublas_functions {
  int (*create)(void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;
  int (*set_stream)(void* handle, native_stream stream) = nullptr;
  int (*gemm)(void* handle, int trans_a, int trans_b, int m, int n, int k, const void* alpha, const void* a, int a_type,
              int lda, const void* b, int b_type, int ldb, const void* beta, void* c, int c_type, int ldc,
              int compute_type, int algorithm) = nullptr;
};

constexpr int as_it_is = 0;         // CUBLAS_OP_N
constexpr int bf16_values = 14;     // CUDA_R_16BF
constexpr int sums_in_f32 = 68;     // CUBLAS_COMPUTE_32F
constexpr int usual_algorithm = -1; // CUBLAS_GEMM_DEFAULT

void expect_success(const char* call, int status) {
  if (status != 0)
    throw exception{error{.code = errc::internal,
                          .text = "cuBLAS refused a product: see cublasStatus_t in its manual",
                          .call = call,
                          .native_code = status}};
}

class cublas_product final : public matrix_product {
public:
  cublas_product(const cublas_functions& cublas, const std::shared_ptr<device>& where, const buffer& memory, int side)
    : cublas_{cublas}, stream_{where}, memory_{memory}, side_{side} {
    constexpr std::uint8_t of_small_numbers = 0x3C; // bf16 0x3C3C is 0.0115: sums stay far from infinity
    stream_.ref().fill(memory_.data(), of_small_numbers, memory_.size_bytes());
    expect_success("cublasCreate", cublas_.create(&handle_));
    expect_success("cublasSetStream", cublas_.set_stream(handle_, stream_.ref().native()));
  }
  ~cublas_product() override { static_cast<void>(cublas_.destroy(handle_)); }

  void enqueue() override {
    constexpr float one = 1;
    constexpr float none = 0;
    std::byte* const matrix = memory_.data();
    const std::size_t bytes = product_bytes(side_) / 3;
    expect_success("cublasGemmEx", cublas_.gemm(handle_, as_it_is, as_it_is, side_, side_, side_, &one, matrix,
                                                bf16_values, side_, matrix + bytes, bf16_values, side_, &none,
                                                matrix + 2 * bytes, bf16_values, side_, sums_in_f32, usual_algorithm));
  }
  void finish() override { stream_.ref().synchronize(); }

private:
  const cublas_functions& cublas_;
  stream stream_;
  buffer memory_;
  int side_;
  void* handle_ = nullptr;
};

class cublas_library final : public product_library {
public:
  explicit cublas_library(const std::string& path) {
    std::vector<std::string> names{"libcublas.so.13", "libcublas.so.12"};
    if (!path.empty()) names = {path};
    std::string tried;
    void* library = nullptr;
    for (const std::string& name : names) {
      library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      name_ = name;
      if (library != nullptr) break;
      const char* const why = ::dlerror(); // NOLINT(concurrency-mt-unsafe): glibc's is of the thread
      tried += (tried.empty() ? "" : "; ") + std::string{why != nullptr ? why : name.c_str()};
    }
    if (library == nullptr)
      throw exception{errc::missing, "cuBLAS is not available (" + tried +
                                         "): install the CUDA Toolkit's, or name a libcublas.so with --cublas or its "
                                         "folder in LD_LIBRARY_PATH"};
    find(library, functions_.create, "cublasCreate_v2");
    find(library, functions_.destroy, "cublasDestroy_v2");
    find(library, functions_.set_stream, "cublasSetStream_v2");
    find(library, functions_.gemm, "cublasGemmEx");
  }

  [[nodiscard]] std::string name() const override { return "cuBLAS from " + name_; }
  [[nodiscard]] std::unique_ptr<matrix_product> make(const std::shared_ptr<device>& where, const buffer& memory,
                                                     int side) override {
    where->api().enter_thread(where->id());
    return std::make_unique<cublas_product>(functions_, where, memory, side);
  }

private:
  template <class Function>
  void find(void* library, Function& function, const char* symbol) const {
    function = reinterpret_cast<Function>(::dlsym(library, symbol));
    if (function == nullptr)
      throw exception{errc::missing, name_ + " has no " + symbol + ": name another libcublas.so with --cublas"};
  }

  std::string name_;
  cublas_functions functions_;
};

/// The mock has no products: a fill of the memory is work in a stream, too.
class mock_products final : public product_library {
public:
  [[nodiscard]] std::string name() const override { return "fills of memory in their place (the mock has none)"; }
  [[nodiscard]] std::unique_ptr<matrix_product> make(const std::shared_ptr<device>& where, const buffer& memory,
                                                     int) override {
    return std::make_unique<filling>(where, memory);
  }

private:
  class filling final : public matrix_product {
  public:
    filling(const std::shared_ptr<device>& where, const buffer& memory) : stream_{where}, memory_{memory} {}
    void enqueue() override { stream_.ref().fill(memory_.data(), 1, memory_.size_bytes()); }
    void finish() override { stream_.ref().synchronize(); }

  private:
    stream stream_;
    buffer memory_;
  };
};

} // namespace

std::unique_ptr<product_library> open_product_library(driver& api, const std::string& path) {
  if (api.name() != "cuda") return std::make_unique<mock_products>();
  return std::make_unique<cublas_library>(path);
}

} // namespace troupe::program
