/// `troupe bench corun`: measures how much all_reduces at a fixed rate slow down a matrix product on every GPU, once
/// with all_reduces of raw NCCL and once with those of troupe.

#include <troupe/completion/poller/wake_signal.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/stream.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/program/bench/bench.hpp>
#include <troupe/program/bench/frame/asker.hpp>
#include <troupe/program/bench/frame/thread_team.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>

#include <CLI/CLI.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

using steady = std::chrono::steady_clock;

/// Returns the bytes that the two factors and the product need.
constexpr std::size_t product_bytes(int side) noexcept {
  return std::size_t{3} * 2 * static_cast<std::size_t>(side) * static_cast<std::size_t>(side);
}

/// The functions of cuBLAS's C interface that are used, with the types of cublas_api.h: a handle is a pointer;
/// statuses, operations, data types, compute types and algorithms are ints. Only device/cuda includes CUDA's own
/// headers.
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

/// The library that computes the products: cuBLAS, opened at run time. The mock cannot multiply matrices; there, fills
/// of memory, which are work in a stream as well, stand in for products.
class product_library {
public:
  /// \p path names the library; if it is empty, it is libcublas.so.13 or .12 as the dynamic linker finds them.
  /// Errors: missing, whose text names what was tried and the remedy.
  product_library(const driver& api, const std::string& path) {
    if (api.name() != "cuda") return;
    std::vector<std::string> names{"libcublas.so.13", "libcublas.so.12"};
    if (!path.empty()) names = {path};
    std::string tried;
    void* library = nullptr;
    for (const std::string& name : names) {
      library = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      path_ = name;
      if (library != nullptr) break;
      const char* const why = ::dlerror(); // NOLINT(concurrency-mt-unsafe): glibc's is per thread
      tried += (tried.empty() ? "" : "; ") + std::string{why != nullptr ? why : name.c_str()};
    }
    if (library == nullptr)
      throw exception{errc::missing, "cuBLAS is not available (" + tried +
                                         "): install the one of the CUDA Toolkit, or name a libcublas.so with --cublas "
                                         "or its folder in LD_LIBRARY_PATH"};
    find(library, cublas_.create, "cublasCreate_v2");
    find(library, cublas_.destroy, "cublasDestroy_v2");
    find(library, cublas_.set_stream, "cublasSetStream_v2");
    find(library, cublas_.gemm, "cublasGemmEx");
  }

  [[nodiscard]] std::string name() const {
    return path_.empty() ? "fills of memory in place of products (the mock has none)" : "cuBLAS from " + path_;
  }
  /// Returns null on the mock.
  [[nodiscard]] const cublas_functions* cublas() const noexcept { return path_.empty() ? nullptr : &cublas_; }

private:
  template <class Function>
  void find(void* library, Function& function, const char* symbol) const {
    function = reinterpret_cast<Function>(::dlsym(library, symbol));
    if (function == nullptr)
      throw exception{errc::missing, path_ + " has no " + symbol + ": name another libcublas.so with --cublas"};
  }

  std::string path_{};
  cublas_functions cublas_{};
};

/// A product of \p side × \p side matrices of bf16 in \p memory, which holds product_bytes().
/// Threads: used only by the thread that constructed it.
class matrix_product {
public:
  matrix_product(const product_library& library, const std::shared_ptr<device>& where, buffer memory, int side)
    : cublas_{library.cublas()}, stream_{where}, memory_{std::move(memory)}, side_{side} {
    if (cublas_ == nullptr) return;
    where->api().enter_thread(where->id());
    constexpr std::uint8_t of_small_numbers = 0x3C; // bf16 0x3C3C is 0.0115, so sums stay far from infinity
    stream_.ref().fill(memory_.data(), of_small_numbers, memory_.size_bytes());
    expect_success("cublasCreate", cublas_->create(&handle_));
    expect_success("cublasSetStream", cublas_->set_stream(handle_, stream_.ref().native()));
  }
  matrix_product(const matrix_product&) = delete;
  matrix_product& operator=(const matrix_product&) = delete;
  ~matrix_product() {
    if (handle_ != nullptr) static_cast<void>(cublas_->destroy(handle_));
  }

  void enqueue() {
    if (cublas_ == nullptr) return stream_.ref().fill(memory_.data(), 1, memory_.size_bytes());
    constexpr float one = 1;
    constexpr float none = 0;
    std::byte* const matrix = memory_.data();
    const std::size_t bytes = product_bytes(side_) / 3;
    expect_success("cublasGemmEx", cublas_->gemm(handle_, as_it_is, as_it_is, side_, side_, side_, &one, matrix,
                                                 bf16_values, side_, matrix + bytes, bf16_values, side_, &none,
                                                 matrix + 2 * bytes, bf16_values, side_, sums_in_f32, usual_algorithm));
  }
  /// Waits until all enqueued products have finished.
  void finish() { stream_.ref().synchronize(); }

private:
  const cublas_functions* cublas_;
  stream stream_;
  buffer memory_;
  int side_;
  void* handle_ = nullptr;
};

struct corun_options {
  bench_options common{5, 200};
  std::size_t bytes = std::size_t{1} << 20U;
  double interval_us = 200;
  int side = 4'096;
  std::string cublas;
};

/// The collectives that run beside the products.
constexpr std::array beside{"nothing", "raw", "troupe"};

/// One thread per device that runs products back to back when it is released. Threads between two runs are parked.
class product_team {
public:
  product_team(const product_library& library, const world& where, int side) {
    std::vector<buffer> memory;
    for (const rank self : where.local_ranks()) memory.push_back(where.allocate(self, product_bytes(side)));
    members_.resize(memory.size());
    team_ = std::make_unique<thread_team>(
        memory.size(),
        [&](std::size_t i) {
          const rank self = where.local_ranks()[i];
          name_this_thread("bench/gemm" + to_string(self));
          members_[i].work = std::make_unique<matrix_product>(library, where.device_of(self), memory[i], side);
          for (int warm_up = 0; warm_up < 3; ++warm_up) members_[i].work->enqueue();
          members_[i].work->finish();
        },
        [this](std::size_t i) { members_[i].work = nullptr; });
    team_->rest();
  }

  /// Runs \p count products on every device and calls \p meanwhile repeatedly until they are finished. Returns the time
  /// of one product in microseconds, averaged over the devices. Throws the first error.
  [[nodiscard]] double run(std::size_t count, const std::function<void()>& meanwhile) {
    const thread_team::task products = [&](std::size_t i) {
      const time_point began = steady::now();
      for (std::size_t k = 0; k < count; ++k) members_[i].work->enqueue();
      members_[i].work->finish();
      members_[i].us = in_microseconds(steady::now() - began) / static_cast<double>(count);
    };
    team_->release(products);
    while (!team_->finished()) meanwhile();
    team_->await();
    double sum = 0;
    for (const member& one : members_) sum += one.us;
    return sum / static_cast<double>(members_.size());
  }

private:
  struct member {
    double us = 0;
    std::unique_ptr<matrix_product> work{};
  };

  std::vector<member> members_;
  std::unique_ptr<thread_team> team_; ///< Destroyed first.
};

/// Calls a function at fixed intervals. A call starts late only if the previous call has not returned in time.
class paced {
public:
  explicit paced(double interval_us)
    : interval_{std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double, std::micro>(interval_us))} {}

  template <class Work>
  void operator()(const Work& work) {
    const time_point now = steady::now();
    if (count_ == 0) first_ = next_ = now;
    if (now < next_) return spin_pause();
    work();
    ++count_;
    next_ = std::max(next_ + interval_, steady::now());
  }
  [[nodiscard]] double per_second() const {
    const double took = in_microseconds(steady::now() - first_);
    return count_ > 0 && took > 0 ? static_cast<double>(count_) / took * 1e6 : 0;
  }

private:
  nanoseconds interval_;
  time_point first_{};
  time_point next_{};
  std::size_t count_ = 0;
};

class corun_measurement {
public:
  explicit corun_measurement(const corun_options& options)
    : options_{options},
      session_{"corun", options.common},
      bytes_{float_bytes(options.bytes)},
      rig_{options.common.runtime.settings(), true},
      library_{rig_.rt.api(), options.cublas},
      parts_{make_sums(allocate_operands(rig_.where, operand_memory::pool, sums_bytes(bytes_, 1)), bytes_, 1).front()},
      client_{make_thread_asker(rig_.where)},
      products_{library_, rig_.where, options.side} {}

  [[nodiscard]] int run() {
    begin();
    progress_line progress{stderr, static_cast<double>((options_.common.blocks + 1) * beside.size())};
    interleave(options_.common.blocks + 1, beside.size(), [&](std::size_t what, std::size_t block) {
      progress.show(at_block("products beside collectives", block, options_.common.blocks));
      paced pace{options_.interval_us};
      const double us = measure(what, pace);
      progress.done(1);
      if (block == 0) return; // The first block is a warm-up.
      product_us_[what].push_back(us);
      rates_[what].push_back(pace.per_second());
    });
    progress.clear();
    session_.open_table({{"beside", "", 8, "beside"},
                         {"product", "(us)", 10, "product_us/p50"},
                         {"slower", "(%)", 8, "slower_percent/p50"},
                         {"than beside raw", "(%)", 15, "slower_than_beside_raw_percent/p50"},
                         {"all_reduces", "/s", 11, "all_reduces_per_s/p50", 0}});
    for (std::size_t what = 0; what < beside.size(); ++what) {
      json row{{"beside", beside[what]},
               {"product_us", by_block(product_us_[what])},
               {"all_reduces_per_s", by_block(rates_[what])}};
      if (what > 0) row["slower_percent"] = by_block(percent_over(what, 0));
      if (what > 1) row["slower_than_beside_raw_percent"] = by_block(percent_over(what, 1));
      session_.add_row(std::move(row));
    }
    return session_.finish();
  }

private:
  [[nodiscard]] double measure(std::size_t what, paced& pace) {
    const auto nothing = [] { std::this_thread::yield(); };
    const auto raw = [&] { pace([&] { static_cast<void>(rig_.raw->run(parts_, 1, 1)); }); };
    const auto ours = [&] { pace([&] { static_cast<void>(client_->ask(parts_, 1, 1)); }); };
    if (what == 0) return products_.run(options_.common.iterations, nothing);
    if (what == 2) return products_.run(options_.common.iterations, ours);
    const double us = products_.run(options_.common.iterations, raw);
    rig_.raw->rest();
    return us;
  }

  /// Returns by how many per cent a product takes longer than beside \p other in the same block.
  [[nodiscard]] std::vector<double> percent_over(std::size_t what, std::size_t other) const {
    auto ratios = paired_ratios(product_us_[what], product_us_[other]);
    for (double& one : ratios) one = 100 * (one - 1);
    return ratios;
  }

  void begin() {
    const std::string side = std::to_string(options_.side);
    session_.begin(rig_.rt, rig_.where,
                   {"product of " + side + " x " + side + " bf16 on every device, " +
                        std::to_string(options_.common.iterations) + " back to back in each of " +
                        std::to_string(options_.common.blocks) +
                        " interleaved blocks, mean of devices, medians of blocks, by " + library_.name(),
                    "beside: an all_reduce of " + std::to_string(bytes_) + " bytes every " +
                        fixed(options_.interval_us, 0) + " us, or as soon as the last has ended"},
                   {{"products", options_.common.iterations},
                    {"blocks", options_.common.blocks},
                    {"size_bytes", bytes_},
                    {"interval_us", options_.interval_us},
                    {"side", options_.side},
                    {"product", library_.name()}},
                   "");
  }

  const corun_options& options_;
  bench_session session_;
  std::size_t bytes_;
  bench_rig rig_;
  product_library library_;
  std::vector<operation> parts_;
  std::unique_ptr<asker> client_;
  product_team products_;
  std::array<std::vector<double>, beside.size()> product_us_;
  std::array<std::vector<double>, beside.size()> rates_;
};

int run(const corun_options& options) {
  return corun_measurement{options}.run();
}

void add_options(CLI::App& command, corun_options& options) {
  options.common.add_to(command, "products of each device in a block", 100'000);
  add_size(command, "-b,--bytes", options.bytes, "bytes of an all_reduce, e.g. 1M", "4");
  add_real(command, "--interval-us", options.interval_us, "interval between all_reduces, in microseconds", 1, 1e6);
  add_number(command, "--side", options.side, "rows and columns of the matrices", 16, 32'768);
  command.add_option("--cublas", options.cublas, "the cuBLAS library (default: the one that the dynamic linker finds)")
      ->type_name("PATH");
}

} // namespace

bench_entry corun_bench() {
  return {.name = "corun",
          .what = "slow-down of a matrix product by all_reduces of raw and of troupe",
          .add = measured_by<corun_options>(&add_options, &run)};
}

} // namespace troupe::program
