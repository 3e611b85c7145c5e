#include <troupe/program/support/fault_kernels.hpp>

#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace troupe::program {

namespace {

/// PTX that the driver compiles, so that a build needs no nvcc. It is what nvcc generates for a loop on %globaltimer, a
/// store through a given pointer, and assert(false).
constexpr const char* kernels = R"(
.version 7.8
.target sm_75
.address_size 64

.visible .entry spin(.param .u64 span_ns)
{
  .reg .pred %over;
  .reg .b64 %span, %begun, %now, %gone;
  ld.param.u64 %span, [span_ns];
  mov.u64 %begun, %globaltimer;
LOOP:
  mov.u64 %now, %globaltimer;
  sub.s64 %gone, %now, %begun;
  setp.lt.u64 %over, %gone, %span;
  @%over bra LOOP;
  ret;
}

.visible .entry store(.param .u64 address)
{
  .reg .b64 %address, %global;
  ld.param.u64 %address, [address];
  cvta.to.global.u64 %global, %address;
  st.global.u32 [%global], 1;
  ret;
}

.extern .func __assertfail(.param .b64 what, .param .b64 file, .param .b32 line, .param .b64 function,
                           .param .b64 character_size);
.global .align 1 .b8 what[6] = {102, 97, 108, 115, 101, 0};
.global .align 1 .b8 file[7] = {116, 114, 111, 117, 112, 101, 0};

.visible .entry fail_assertion()
{
  .reg .b64 %what, %file;
  mov.u64 %what, what;
  cvta.global.u64 %what, %what;
  mov.u64 %file, file;
  cvta.global.u64 %file, %file;
  {
    .param .b64 what_text;
    .param .b64 file_text;
    .param .b32 line;
    .param .b64 function_text;
    .param .b64 size;
    st.param.b64 [what_text], %what;
    st.param.b64 [file_text], %file;
    st.param.b32 [line], 1;
    st.param.b64 [function_text], %file;
    st.param.b64 [size], 1;
    call.uni __assertfail, (what_text, file_text, line, function_text, size);
  }
  ret;
}
)";

/// The functions of libcuda that are used, with the types of cuda.h: handles are pointers, results are ints. Only
/// device/cuda includes CUDA's own headers.
struct module_functions {
  int (*load_data)(void** module, const void* image) = nullptr;
  int (*get_function)(void** function, void* module, const char* name) = nullptr;
  int (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                unsigned block_z, unsigned shared_bytes, native_stream stream, void** arguments,
                void** extra) = nullptr;

  static module_functions find() {
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw exception{errc::missing, "libcuda.so.1 is not installed: install NVIDIA's driver"};
    module_functions all;
    find_one(library, all.load_data, "cuModuleLoadData");
    find_one(library, all.get_function, "cuModuleGetFunction");
    find_one(library, all.launch, "cuLaunchKernel");
    return all;
  }

private:
  template <class Function>
  static void find_one(void* library, Function& function, const char* symbol) {
    function = reinterpret_cast<Function>(::dlsym(library, symbol));
    if (function == nullptr)
      throw exception{errc::missing, "libcuda.so.1 has no " + std::string{symbol} + ": install a newer driver"};
  }
};

void expect_cuda_success(const char* call, int result) {
  if (result != 0)
    throw exception{error{.code = errc::internal,
                          .text = "libcuda refused a kernel: see CUresult in its manual",
                          .call = call,
                          .native_code = result}};
}

/// Fault kernels on a GPU. The module stays loaded: unloading it would wait for the device, and would fail if the
/// device is poisoned.
class cuda_fault_kernels final : public fault_kernels {
public:
  explicit cuda_fault_kernels(std::shared_ptr<device> where)
    : where_{std::move(where)}, cuda_{module_functions::find()} {
    enter();
    void* module = nullptr;
    expect_cuda_success("cuModuleLoadData", cuda_.load_data(&module, kernels));
    find(module, spin_, "spin");
    find(module, store_, "store");
    find(module, fail_, "fail_assertion");
    std::uint64_t no_time = 0; // Loads the kernel in case of lazy loading.
    const stream first{where_};
    launch(first, spin_, &no_time);
    first.ref().synchronize();
  }

  void spin(stream_ref where, nanoseconds span) override {
    auto in_kernel = static_cast<std::uint64_t>(span.count());
    launch(where, spin_, &in_kernel);
  }
  void occupy(stream_ref where, nanoseconds span) override {
    auto in_kernel = static_cast<std::uint64_t>(span.count());
    launch(where, spin_, &in_kernel, 512, 1024); // more threads than any device can run at once
  }
  void poison(stream_ref where, sticky_error how) override {
    std::uint64_t nowhere = 64;
    how == sticky_error::illegal_address ? launch(where, store_, &nowhere) : launch(where, fail_, nullptr);
  }

private:
  void enter() { where_->api().enter_thread(where_->id()); }
  void find(void* module, void*& function, const char* name) const {
    expect_cuda_success("cuModuleGetFunction", cuda_.get_function(&function, module, name));
  }
  void launch(stream_ref where, void* function, void* argument, unsigned blocks = 1, unsigned threads = 1) {
    enter();
    std::array<void*, 1> arguments{argument};
    expect_cuda_success("cuLaunchKernel", cuda_.launch(function, blocks, 1, 1, threads, 1, 1, 0, where.native(),
                                                       argument != nullptr ? arguments.data() : nullptr, nullptr));
  }

  std::shared_ptr<device> where_;
  module_functions cuda_;
  void* spin_ = nullptr;
  void* store_ = nullptr;
  void* fail_ = nullptr;
};

class mock_fault_kernels final : public fault_kernels {
public:
  mock_fault_kernels(const std::shared_ptr<device>& where, mock_driver& api)
    : where_{where}, api_{api}, word_{allocate_pinned(where, sizeof(std::uint32_t))} {
    word_.host_span<std::uint32_t>()[0] = 0;
  }

  void spin(stream_ref where, nanoseconds span) override {
    api_.wait_word(where_->id(), where.native(), word_.host_span<std::uint32_t>().data(), ++spins_);
    endings_.emplace_back([this, span, value = spins_] {
      std::this_thread::sleep_for(span);
      std::atomic_ref{*word_.host_span<std::uint32_t>().data()}.store(value, std::memory_order_release);
      api_.wake();
    });
  }
  void occupy(stream_ref where, nanoseconds span) override { // the mock's devices have room for any number of kernels
    constexpr std::size_t most = 16;
    if (endings_.size() >= most) endings_.clear(); // waits for their ends
    spin(where, span);
  }
  void poison(stream_ref where, sticky_error how) override {
    api_.fail_next(where_->id(), {.code = errc::process_poisoned,
                                  .text = how == sticky_error::illegal_address ? "an illegal address, injected"
                                                                               : "a failed assertion, injected"});
    try {
      where.fill(word_.data(), 0, word_.size_bytes());
    } catch (const exception&) { // Other work of the device failed first.
    }
  }

private:
  std::shared_ptr<device> where_;
  mock_driver& api_;
  buffer word_;
  std::uint32_t spins_ = 0;
  std::vector<std::jthread> endings_;
};

std::unique_ptr<fault_kernels> make_fault_kernels(const std::shared_ptr<device>& where) {
  if (auto* const mock = dynamic_cast<mock_driver*>(&where->api()))
    return std::make_unique<mock_fault_kernels>(where, *mock);
  return std::make_unique<cuda_fault_kernels>(where);
}

} // namespace

fault_kernels_of_world::fault_kernels_of_world(const world& of) {
  for (const rank self : of.local_ranks()) all_.push_back(make_fault_kernels(of.device_of(self)));
}

} // namespace troupe::program
