/// `troupe bench corun`: how much all_reduces at a fixed rate slow down a matrix product on every GPU, for those of raw
/// and those of troupe.

#include <troupe/completion/poller/wake_signal.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/stream.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/program/bench/bench_asker.hpp>
#include <troupe/program/bench/bench_commands.hpp>
#include <troupe/program/bench/bench_operands.hpp>
#include <troupe/program/bench/bench_options.hpp>
#include <troupe/program/bench/bench_rig.hpp>
#include <troupe/program/bench/json_file.hpp>
#include <troupe/program/support/option_ranges.hpp>
#include <troupe/program/support/progress_line.hpp>
#include <troupe/program/support/text_table.hpp>

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

class matrix_product {
public:
  matrix_product() = default;
  matrix_product(const matrix_product&) = delete;
  matrix_product& operator=(const matrix_product&) = delete;
  virtual ~matrix_product() = default;

  /// Enqueues one product. Threads: one at a time.
  virtual void enqueue() = 0;
  /// Waits until all enqueued products have finished.
  virtual void finish() = 0;
};

/// The library that computes the products.
class product_library {
public:
  product_library() = default;
  product_library(const product_library&) = delete;
  product_library& operator=(const product_library&) = delete;
  virtual ~product_library() = default;

  [[nodiscard]] virtual std::string name() const = 0;
  /// Makes a product of \p side × \p side matrices of bf16 in \p memory, which holds product_bytes(). Must be called by
  /// the thread that uses it.
  [[nodiscard]] virtual std::unique_ptr<matrix_product> make(const std::shared_ptr<device>& where, const buffer& memory,
                                                             int side) = 0;
};

/// Returns the bytes of two factors and their product.
[[nodiscard]] constexpr std::size_t product_bytes(int side) noexcept {
  return std::size_t{3} * 2 * static_cast<std::size_t>(side) * static_cast<std::size_t>(side);
}

/// Opens cuBLAS at run time: \p path or, if it is empty, libcublas.so.13 or .12 as the dynamic linker finds them. On
/// the mock, fills of memory stand in for products. Errors: missing, whose text names what was tried and the remedy.
[[nodiscard]] std::unique_ptr<product_library> open_product_library(driver& api, const std::string& path);

namespace {

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
                                         "): install the one of the CUDA Toolkit, or name a libcublas.so with --cublas "
                                         "or its folder in LD_LIBRARY_PATH"};
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

/// The mock cannot multiply matrices. A fill of the memory is work in a stream as well.
class mock_products final : public product_library {
public:
  [[nodiscard]] std::string name() const override { return "fills of memory in place of products (the mock has none)"; }
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

namespace {

using steady = std::chrono::steady_clock;

struct corun_options {
  bench_options common{5, 200};
  std::string bytes = "1M";
  double interval_us = 200;
  int side = 4'096;
  std::string cublas;
};

/// The collectives that run beside the products.
constexpr std::array beside{"nothing", "raw", "troupe"};

/// One thread per device that runs products back to back when it is released.
class product_crew {
public:
  product_crew(product_library& library, const world& where, int side) {
    for (const rank self : where.local_ranks()) {
      const buffer memory = where.allocate(self, product_bytes(side));
      members_.push_back(std::make_unique<member>());
      member& one = *members_.back();
      one.thread = std::thread{[this, &library, &one, at = where.device_of(self), memory, side,
                                name = "bench/gemm" + to_string(self)] { run(library, one, at, memory, side, name); }};
    }
    try {
      await_all();
    } catch (...) {
      stop();
      throw;
    }
  }
  product_crew(const product_crew&) = delete;
  product_crew& operator=(const product_crew&) = delete;
  ~product_crew() { stop(); }

  /// Runs \p count products on every device and calls \p meanwhile repeatedly until they are finished. Returns the time
  /// of one product in microseconds, averaged over the devices. Throws the first error.
  [[nodiscard]] double run(std::size_t count, const std::function<void()>& meanwhile) {
    count_ = count;
    release();
    while (finished_.load(std::memory_order_acquire) < members_.size()) meanwhile();
    await_all();
    double sum = 0;
    for (const auto& one : members_) sum += one->us;
    return sum / static_cast<double>(members_.size());
  }

private:
  struct member {
    double us = 0;
    std::exception_ptr failure;
    std::thread thread;
  };

  void stop() {
    count_ = 0;
    release();
    for (const auto& one : members_) one->thread.join();
  }

  void release() {
    finished_.store(0, std::memory_order_relaxed);
    turn_.fetch_add(1, std::memory_order_release);
    turn_.notify_all();
  }

  void await_all() {
    while (finished_.load(std::memory_order_acquire) < members_.size()) std::this_thread::yield();
    for (const auto& one : members_)
      if (one->failure) std::rethrow_exception(one->failure);
  }

  void run(product_library& library, member& me, const std::shared_ptr<device>& where, const buffer& memory, int side,
           const std::string& name) {
    name_this_thread(name);
    std::unique_ptr<matrix_product> work;
    const auto guarded = [&](const auto& what) {
      try {
        what();
      } catch (...) {
        me.failure = std::current_exception();
      }
      finished_.fetch_add(1, std::memory_order_release);
    };
    std::uint64_t seen = turn_.load(std::memory_order_relaxed);
    guarded([&] {
      work = library.make(where, memory, side);
      for (int i = 0; i < 3; ++i) work->enqueue();
      work->finish();
    });
    for (;;) {
      turn_.wait(seen, std::memory_order_acquire);
      ++seen;
      if (count_ == 0) return;
      guarded([&] {
        if (!work) return; // The failure has been reported.
        const std::size_t count = count_;
        const time_point began = steady::now();
        for (std::size_t i = 0; i < count; ++i) work->enqueue();
        work->finish();
        me.us = in_microseconds(steady::now() - began) / static_cast<double>(count);
      });
    }
  }

  std::atomic<std::uint64_t> turn_{0}; ///< Publishes count_.
  std::atomic<std::size_t> finished_{0};
  std::atomic<std::size_t> count_{0};
  std::vector<std::unique_ptr<member>> members_;
};

/// Calls a function at fixed intervals. A call starts later only if the one before has not ended in time.
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

class corun_bench {
public:
  explicit corun_bench(const corun_options& options)
    : options_{options},
      bytes_{float_bytes("--bytes", options.bytes)},
      rig_{options.common.runtime.settings(), true},
      library_{open_product_library(rig_.rt.api(), options.cublas)},
      parts_{make_sums(allocate_operands(rig_.where, operand_memory::pool, sums_bytes(bytes_, 1)), bytes_, 1).front()},
      client_{make_thread_asker(rig_.where)},
      products_{*library_, rig_.where, options.side} {}

  void run(const json_file& document) {
    std::FILE* const out = document.text_output();
    begin(out);
    progress_line progress{stderr, static_cast<double>(options_.common.blocks + 1)};
    for (std::size_t block = 0; block < options_.common.blocks + 1; ++block) { // The first block is a warm-up.
      progress.show("products beside collectives, block " + std::to_string(block) + "/" +
                    std::to_string(options_.common.blocks));
      for (std::size_t i = 0; i < beside.size(); ++i) {
        const std::size_t what = (i + block) % beside.size(); // The first one rotates.
        paced pace{options_.interval_us};
        const double us = measure(what, pace);
        if (block == 0) continue;
        product_us_[what].push_back(us);
        rates_[what].push_back(pace.per_second());
      }
      progress.done(1);
    }
    progress.clear();
    const text_table table{out,
                           {{"beside", "", 8},
                            {"product", "(us)", 10},
                            {"slower", "(%)", 8},
                            {"than beside raw", "(%)", 15},
                            {"all_reduces", "/s", 11}}};
    table.print_heading();
    for (std::size_t what = 0; what < beside.size(); ++what) {
      const auto slower = percent_over(what, 0);
      const auto than_raw = percent_over(what, 1);
      table.print_row({beside[what], fixed(median(product_us_[what])), what == 0 ? "-" : fixed(median(slower)),
                       what == 2 ? fixed(median(than_raw)) : "-", fixed(median(rates_[what]), 0)});
      json row{{"beside", beside[what]},
               {"product_us", {{"p50", median(product_us_[what])}, {"blocks", product_us_[what]}}},
               {"all_reduces_per_s", {{"p50", median(rates_[what])}, {"blocks", rates_[what]}}}};
      if (what > 0) row["slower_percent"] = {{"p50", median(slower)}, {"blocks", slower}};
      if (what > 1) row["slower_than_beside_raw_percent"] = {{"p50", median(than_raw)}, {"blocks", than_raw}};
      report_["rows"].push_back(std::move(row));
    }
    document.write(report_);
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

  void begin(std::FILE* out) {
    auto heading = world_heading(rig_.rt, rig_.where);
    const std::string side = std::to_string(options_.side);
    heading.push_back("product of " + side + " x " + side + " bf16 on every device, " +
                      std::to_string(options_.common.iterations) + " back to back in each of " +
                      std::to_string(options_.common.blocks) +
                      " interleaved blocks, mean of devices, medians of "
                      "blocks, by " +
                      library_->name());
    heading.push_back("beside: an all_reduce of " + std::to_string(bytes_) + " bytes every " +
                      fixed(options_.interval_us, 0) + " us, or as soon as the last has ended");
    print_heading(out, heading);
    report_ = begin_world_report("corun", heading, rig_.rt, rig_.where);
    report_["options"] = {{"products", options_.common.iterations},
                          {"blocks", options_.common.blocks},
                          {"size_bytes", bytes_},
                          {"interval_us", options_.interval_us},
                          {"side", options_.side},
                          {"product", library_->name()}};
    report_["rows"] = json::array();
  }

  const corun_options& options_;
  std::size_t bytes_;
  bench_rig rig_;
  std::unique_ptr<product_library> library_;
  std::vector<operation> parts_;
  std::unique_ptr<asker> client_;
  product_crew products_;
  std::array<std::vector<double>, beside.size()> product_us_;
  std::array<std::vector<double>, beside.size()> rates_;
  json report_;
};

int run(const corun_options& options) {
  const json_file document{options.common.json_path};
  corun_bench{options}.run(document);
  return 0;
}

} // namespace

void add_corun_bench(CLI::App& bench, action& chosen) {
  auto options = std::make_shared<corun_options>();
  CLI::App* command =
      bench.add_subcommand("corun", "slow-down of a matrix product by all_reduces of raw and of troupe");
  options->common.add_to(*command, "products of each device in a block", 100'000);
  command->add_option("-b,--bytes", options->bytes, "bytes of an all_reduce, e.g. 1M")
      ->capture_default_str()
      ->check(size_in("4"));
  command->add_option("--interval-us", options->interval_us, "interval between all_reduces, in microseconds")
      ->capture_default_str()
      ->check(real_in(1, 1e6));
  command->add_option("--side", options->side, "rows and columns of the matrices")
      ->capture_default_str()
      ->check(CLI::Range(16, 32'768));
  command
      ->add_option("--cublas", options->cublas, "the cuBLAS library (default: the one that the dynamic linker finds)")
      ->type_name("PATH");
  command->callback([options, &chosen] { chosen = [options] { return run(*options); }; });
}

} // namespace troupe::program
