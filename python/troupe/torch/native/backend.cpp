/// The native part of the backend of torch.distributed: collectives and transfers of dense tensors of the CPU, without
/// Python. troupe/torch/_native.py compiles it against the installed PyTorch. Design record 0111.
///
/// A native_backend is the C++ object of a Python TroupeBackend, in place of PyTorch's PyBackend, from which it
/// extends: what is not asked natively is a call of the Python class, with its checks and its errors. So is every call
/// that would fail: nothing here words an error.
#include "requests.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/distributed/c10d/debug.h>
#include <torch/csrc/distributed/c10d/py/PyBackend.hpp>

#include <pthread.h>
#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;
using work_ptr = c10::intrusive_ptr<c10d::Work>;
using tensors = std::vector<at::Tensor>;

const troupe_requests* api = nullptr;
std::atomic<int> forks{0}; ///< In this process's ancestry since the module was loaded.

/// Returns a reply as Python's troupe.Reply. The caller must hold the GIL.
py::object shown(const std::shared_ptr<void>& reply) {
  auto made = py::reinterpret_steal<py::object>(static_cast<PyObject*>(api->shown(reply.get())));
  if (!made) throw py::error_already_set{};
  return made;
}

/// The last native operations of this process, for the flight record: see _records.py. Threads: any.
class operation_log {
public:
  explicit operation_log(std::size_t most = 0) : most_{most} {}
  void resize(std::size_t most) {
    const std::lock_guard lock{mutex_};
    most_ = most;
  }
  [[nodiscard]] std::size_t most() const noexcept { return most_; }
  void add(const std::shared_ptr<void>& reply) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::lock_guard lock{mutex_};
    if (most_ == 0) return;
    if (last_.size() == most_) last_.pop_front();
    last_.push_back({std::chrono::duration_cast<nanoseconds>(now).count(), pthread_self(), reply});
  }
  /// Returns tuples of time, thread and reply. The caller must hold the GIL.
  [[nodiscard]] py::list all() {
    std::deque<entry> copied;
    {
      const std::lock_guard lock{mutex_};
      copied = last_;
    }
    py::list made;
    for (const entry& one : copied) made.append(py::make_tuple(one.at_ns, one.thread, shown(one.reply)));
    return made;
  }

private:
  struct entry {
    std::int64_t at_ns;
    std::uint64_t thread;
    std::shared_ptr<void> reply;
  };
  std::mutex mutex_;
  std::deque<entry> last_;
  std::size_t most_ = 0;
};
/// Not destroyed: threads may ask while the process exits. A fork has one of its own, because a thread of its parent may
/// have held the lock of this one.
operation_log* log_of_process = new operation_log;
operation_log& operations() {
  return *log_of_process;
}

unsigned long main_thread = 0; ///< The thread in which Python handles signals.

/// Returns whether the interpreter ends or has ended: other threads than the main one must not use it any more.
bool is_over() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0 || Py_IsInitialized() == 0;
#else
  return _Py_IsFinalizing() != 0 || Py_IsInitialized() == 0;
#endif
}

/// Drops a Python object on any thread, unless the interpreter has ended.
void drop(py::object& one) {
  if (!one) return;
  if (Py_IsInitialized() == 0 || (is_over() && PyThread_get_thread_ident() != main_thread))
    return static_cast<void>(one.release());
  const py::gil_scoped_acquire gil;
  one = py::object{};
}

/// A Work whose calls are those of a Work of Python. PyTorch's own wrapper has wait() and getFuture() alone.
class forwarded_work : public c10d::Work {
public:
  explicit forwarded_work(py::object made = {}) : python_{std::move(made)} {}
  ~forwarded_work() override { drop(python_); }

  bool isCompleted() override { return call<bool>("is_completed"); }
  bool isSuccess() const override { return call<bool>("is_success"); }
  std::exception_ptr exception() const override {
    const py::gil_scoped_acquire gil;
    const py::object failure = python().attr("exception")();
    if (failure.is_none()) return nullptr;
    PyErr_SetObject(py::type::of(failure).ptr(), failure.ptr());
    return std::make_exception_ptr(py::error_already_set{});
  }
  tensors result() override { return call<tensors>("result"); }
  void synchronize() override { wait(kNoTimeout); }
  bool wait(milliseconds timeout) override { return call<bool>("wait", timeout); }
  /// Returns a future of the outputs as C++ has it: that of Python keeps an error as a value.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const py::gil_scoped_acquire gil;
    if (future_) return future_;
    const auto made = future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
    python().attr("get_future")().attr("add_done_callback")(py::cpp_function([made](const py::object& from) {
      try {
        auto outputs = from.attr("value")().cast<tensors>();
        const py::gil_scoped_release released;
        made->markCompleted(std::move(outputs));
      } catch (py::error_already_set& failure) {
        python_error kept; // which can be raised many times
        failure.restore();
        kept.persist();
        const py::gil_scoped_release released;
        made->setError(std::make_exception_ptr(std::move(kept)));
      }
    }));
    return made;
  }
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override {
    const py::gil_scoped_acquire gil;
    return python().attr("get_future_result")().cast<std::shared_ptr<torch::jit::PythonFutureWrapper>>()->fut;
  }

protected:
  /// Returns the Work of Python. The caller must hold the GIL.
  [[nodiscard]] virtual const py::object& python() const { return python_; }
  template <class Result, class... Arguments>
  Result call(const char* name, const Arguments&... given) const {
    const py::gil_scoped_acquire gil;
    return python().attr(name)(given...).template cast<Result>();
  }

  mutable py::object python_;

private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// An operation that was asked for natively. Its Work of Python is made where one is needed: for an error, or a future.
class native_work final : public forwarded_work {
public:
  native_work(std::shared_ptr<void> reply, std::string what, milliseconds deadline, tensors outputs)
    : reply_{std::move(reply)}, what_{std::move(what)}, deadline_{deadline}, outputs_{std::move(outputs)} {
    if (torch::autograd::get_current_graph_task_id() < 0) return;
    const py::gil_scoped_acquire gil; // now: it knows the backward pass, which raises its error
    static_cast<void>(python());
  }

  bool isCompleted() override { return api->state(reply_.get()) != TROUPE_REPLY_PENDING; }
  bool isSuccess() const override { return api->state(reply_.get()) == TROUPE_REPLY_SUCCEEDED; }
  std::exception_ptr exception() const override {
    return api->state(reply_.get()) == TROUPE_REPLY_FAILED ? forwarded_work::exception() : nullptr;
  }
  tensors result() override {
    wait(kNoTimeout);
    return outputs_;
  }
  /// Looks for signals now and then, in the thread that handles them. A wait with a timeout is Python's, whose error names
  /// the timeout.
  bool wait(milliseconds timeout) override {
    if (timeout != kNoTimeout && timeout != c10d::kUnsetTimeout) return forwarded_work::wait(timeout);
    const bool looks = PyThread_get_thread_ident() == main_thread;
    std::int32_t state = api->state(reply_.get());
    for (bool polls = true; state == TROUPE_REPLY_PENDING; polls = false) {
      {
        std::optional<py::gil_scoped_release> released;
        if (PyGILState_Check() != 0) released.emplace();
        state = api->wait(reply_.get(), nanoseconds{looks ? between_looks : milliseconds{hour}}.count(), polls ? 1 : 0);
        // A daemon thread that took the GIL now would crash: it stays here until the process exits.
        while (!looks && is_over()) std::this_thread::sleep_for(hour);
      }
      if (state != TROUPE_REPLY_PENDING) break;
      if (!looks) continue;
      const py::gil_scoped_acquire gil;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set{};
    }
    return state == TROUPE_REPLY_SUCCEEDED || forwarded_work::wait(timeout);
  }

private:
  static constexpr milliseconds between_looks{100};
  static constexpr std::chrono::hours hour{1};

  [[nodiscard]] const py::object& python() const override {
    if (python_) return python_;
    const py::object kind = py::module_::import("troupe.torch._work").attr("Work");
    py::object made = kind(shown(reply_), what_, deadline_, outputs_);
    if (!python_) python_ = std::move(made); // another thread may have made one meanwhile
    return python_;
  }

  std::shared_ptr<void> reply_;
  std::string what_;
  milliseconds deadline_;
  tensors outputs_;
};

/// Lanes of this process's rank. Threads: any.
class connection {
public:
  using lane = std::shared_ptr<void>;

  /// Errors: std::invalid_argument if the world does not use host memory in place.
  connection(const py::object& world, int rank, int size, const std::string& collectives, milliseconds timeout)
    : rank{rank}, size{size}, timeout{timeout}, collectives{api->open(world.ptr(), rank, collectives.c_str()), close} {
    if (!this->collectives) throw std::invalid_argument{"the world stages host memory"};
  }

  const int rank, size;
  const milliseconds timeout; ///< Of operations without one.
  const lane collectives;

  /// Returns the lane of a route and tag of transfers; null if there can be no more lanes.
  [[nodiscard]] lane transfers(const std::string& name) {
    {
      const std::lock_guard lock{mutex_};
      if (const auto found = transfers_.find(name); found != transfers_.end()) return found->second;
    }
    const py::gil_scoped_acquire gil; // before the lock, for which threads may wait with the GIL
    lane made{api->open_beside(collectives.get(), name.c_str()), close};
    const std::lock_guard lock{mutex_};
    return transfers_.try_emplace(name, std::move(made)).first->second;
  }

private:
  static void close(void* one) {
    if (one != nullptr) api->close(one);
  }

  std::mutex mutex_;
  std::map<std::string, lane> transfers_;
};

/// troupe's number of an element type; -1 if it does not have the type.
int type_number(at::ScalarType type) {
  switch (type) {
    case at::kByte: return TROUPE_REQUEST_U8;
    case at::kChar: return TROUPE_REQUEST_I8;
    case at::kInt: return TROUPE_REQUEST_I32;
    case at::kUInt32: return TROUPE_REQUEST_U32;
    case at::kLong: return TROUPE_REQUEST_I64;
    case at::kUInt64: return TROUPE_REQUEST_U64;
    case at::kHalf: return TROUPE_REQUEST_F16;
    case at::kFloat: return TROUPE_REQUEST_F32;
    case at::kDouble: return TROUPE_REQUEST_F64;
    case at::kBFloat16: return TROUPE_REQUEST_BF16;
    case at::kFloat8_e4m3fn: return TROUPE_REQUEST_F8E4M3;
    case at::kFloat8_e5m2: return TROUPE_REQUEST_F8E5M2;
    default: return -1;
  }
}

/// The fields of a native request. Each function returns false if Python has to handle the call, by the rules of
/// _tensors.py.
class description {
public:
  explicit description(int kind) { asked.kind = kind; }

  [[nodiscard]] bool moves(const at::Tensor* source, const at::Tensor* result) {
    const at::Tensor& one = source != nullptr ? *source : *result;
    type_ = type_number(one.scalar_type());
    width_ = type_ < 0 ? static_cast<std::uint64_t>(one.element_size()) : 1;
    asked.type = type_ < 0 ? TROUPE_REQUEST_U8 : type_;
    for (const at::Tensor* each : {source, result})
      if (each != nullptr &&
          !(each->device().is_cpu() && each->layout() == at::kStrided && each->is_contiguous() && !each->is_conj() &&
            !each->is_neg() && each->numel() > 0 && each->scalar_type() == one.scalar_type()))
        return false;
    if (source != nullptr) take(*source, asked.source, asked.source_count);
    if (result != nullptr && result != source) take(*result, asked.result, asked.result_count);
    if (result == source) asked.result = asked.source, asked.result_count = asked.source_count;
    return true;
  }
  [[nodiscard]] bool reduces(const c10d::ReduceOp& by, const at::Tensor* source, const at::Tensor* result) {
    static constexpr std::array<std::pair<c10d::ReduceOp::RedOpType, int>, 5> known{
        {{c10d::ReduceOp::SUM, TROUPE_REQUEST_SUM},
         {c10d::ReduceOp::PRODUCT, TROUPE_REQUEST_PROD},
         {c10d::ReduceOp::MIN, TROUPE_REQUEST_MIN},
         {c10d::ReduceOp::MAX, TROUPE_REQUEST_MAX},
         {c10d::ReduceOp::AVG, TROUPE_REQUEST_AVG}}};
    const auto* const found = std::find_if(known.begin(), known.end(), [&](auto& one) { return one.first == by.op_; });
    if (found == known.end() || !moves(source, result)) return false;
    asked.reduction = found->second;
    if (type_ >= 0) return true;
    if (source->scalar_type() != at::kBool || asked.reduction == TROUPE_REQUEST_AVG) return false;
    if (asked.reduction == TROUPE_REQUEST_SUM) asked.reduction = TROUPE_REQUEST_MAX;
    if (asked.reduction == TROUPE_REQUEST_PROD) asked.reduction = TROUPE_REQUEST_MIN;
    return true;
  }
  /// \p sizes are rows for each rank; none: equal parts.
  [[nodiscard]] bool divides(const at::Tensor& whole, const std::vector<std::int64_t>& sizes, int ranks,
                             std::vector<std::uint64_t>& parts) const {
    const std::int64_t rows = whole.dim() > 0 ? whole.size(0) : 1;
    if (sizes.empty()) {
      parts.assign(ranks, width_ * static_cast<std::uint64_t>(whole.numel() / ranks));
      return rows % ranks == 0;
    }
    const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
    if (sizes.size() != static_cast<std::size_t>(ranks) || *least < 0 || *most > rows || // so the sum does not wrap
        std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) != rows)
      return false;
    for (const std::int64_t one : sizes)
      parts.push_back(width_ * static_cast<std::uint64_t>(one * (whole.numel() / rows)));
    return true;
  }
  [[nodiscard]] bool to(int peer, int tag = 0) {
    asked.peer = peer;
    asked.tag = tag;
    return true;
  }

  troupe_request asked{};
  tensors held;

private:
  void take(const at::Tensor& one, void*& address, std::uint64_t& count) {
    address = one.data_ptr();
    count = static_cast<std::uint64_t>(one.numel()) * width_;
    held.push_back(one);
  }

  int type_ = -1;
  std::uint64_t width_ = 1; ///< Elements of the memory in one of the tensor.
};

thread_local bool coalesces = false; ///< Whether this thread is between startCoalescing() and endCoalescing().

class native_backend final : public c10d::PyBackend {
public:
  using PyBackend::PyBackend;

  /// Sets what is asked natively from now on; null: nothing.
  void connect(std::shared_ptr<connection> to) {
    const std::lock_guard lock{mutex_};
    to_.swap(to);
    asked_ = 0;
  }
  [[nodiscard]] std::uint64_t asked() const noexcept { return asked_; }

  work_ptr allreduce(tensors& all, const c10d::AllreduceOptions& opts) override {
    return collective(
        "all_reduce", TROUPE_REQUEST_ALL_REDUCE, opts.timeout, all,
        [&](auto& made, auto&) { return all.size() == 1 && made.reduces(opts.reduceOp, all.data(), all.data()); },
        "allreduce", all, opts);
  }
  work_ptr reduce(tensors& all, const c10d::ReduceOptions& opts) override {
    return collective(
        "reduce", TROUPE_REQUEST_REDUCE, opts.timeout, all,
        [&](auto& made, auto& here) {
          return all.size() == 1 && made.to(opts.rootRank) &&
                 made.reduces(opts.reduceOp, all.data(), opts.rootRank == here.rank ? all.data() : nullptr);
        },
        "reduce", all, opts);
  }
  work_ptr broadcast(tensors& all, const c10d::BroadcastOptions& opts) override {
    return collective(
        "broadcast", TROUPE_REQUEST_BROADCAST, opts.timeout, all,
        [&](auto& made, auto& here) {
          return all.size() == 1 && made.to(opts.rootRank) &&
                 made.moves(opts.rootRank == here.rank ? all.data() : nullptr, all.data());
        },
        "broadcast", all, opts);
  }
  work_ptr all_gather_single(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override {
    return collective(
        "all_gather_into_tensor", TROUPE_REQUEST_ALL_GATHER, opts.timeout, {output},
        [&](auto& made, auto& here) {
          return output.numel() == input.numel() * here.size && made.moves(&input, &output);
        },
        "all_gather_single", output, input, opts);
  }
  work_ptr reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                 const c10d::ReduceScatterOptions& opts) override {
    return collective(
        "reduce_scatter_tensor", TROUPE_REQUEST_REDUCE_SCATTER, opts.timeout, {output},
        [&](auto& made, auto& here) {
          return input.numel() == output.numel() * here.size && made.reduces(opts.reduceOp, &input, &output);
        },
        "reduce_scatter_single", output, input, opts);
  }
  work_ptr all_to_all_single(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_sizes,
                             std::vector<std::int64_t>& input_sizes, const c10d::AllToAllOptions& opts) override {
    std::vector<std::uint64_t> sent, received;
    return collective(
        "all_to_all_single", TROUPE_REQUEST_ALL_TO_ALL, opts.timeout, {output},
        [&](auto& made, auto& here) {
          if (!made.moves(&input, &output) || !made.divides(input, input_sizes, here.size, sent) ||
              !made.divides(output, output_sizes, here.size, received))
            return false;
          made.asked.send_counts = sent.data();
          made.asked.recv_counts = received.data();
          return true;
        },
        "all_to_all_single", output, input, output_sizes, input_sizes, opts);
  }
  work_ptr barrier(const c10d::BarrierOptions& opts) override {
    return collective(
        "barrier", TROUPE_REQUEST_BARRIER, opts.timeout, {}, [](auto&, auto&) { return true; }, "barrier", opts);
  }
  work_ptr send(tensors& all, int peer, int tag) override {
    return transfer("send", TROUPE_REQUEST_SEND, all, peer, tag);
  }
  work_ptr recv(tensors& all, int peer, int tag) override {
    return transfer("recv", TROUPE_REQUEST_RECV, all, peer, tag);
  }
  void startCoalescing() override {
    coalesces = true; // the Python class collects their Works
    PyBackend::startCoalescing();
  }
  work_ptr endCoalescing() override {
    coalesces = false;
    return PyBackend::endCoalescing();
  }

private:
  /// Returns what to ask natively at present; null if nothing is.
  [[nodiscard]] std::shared_ptr<connection> connected() {
    if (coalesces || made_after_ != forks || c10d::debug_level() == c10d::DebugLevel::Detail) return nullptr;
    const std::lock_guard lock{mutex_};
    return to_;
  }

  /// Asks for what \p describe describes, or calls the Python class's method \p name with \p given.
  template <class Describe, class... Given>
  work_ptr collective(const char* what, int kind, milliseconds timeout, tensors outputs, const Describe& describe,
                      const char* name, Given&... given) {
    if (const auto here = connected()) {
      description made{kind};
      if (describe(made, *here)) {
        const milliseconds deadline = timeout > kNoTimeout ? timeout : here->timeout;
        if (work_ptr asked = ask(made, here->collectives.get(), what, deadline, std::move(outputs))) {
          ++asked_;
          return asked;
        }
      }
    }
    return by_python(name, given...);
  }

  work_ptr transfer(const char* name, int kind, tensors& all, int peer, int tag) {
    if (const auto here = connected(); here && all.size() == 1) {
      description made{kind};
      const bool sends = kind == TROUPE_REQUEST_SEND;
      if (made.to(peer, tag) && made.moves(sends ? all.data() : nullptr, sends ? nullptr : all.data())) {
        const std::string route = std::to_string(sends ? here->rank : peer) + ">" +
                                  std::to_string(sends ? peer : here->rank) + " tag " + std::to_string(tag);
        if (const auto in = here->transfers(route))
          if (work_ptr asked = ask(made, in.get(), std::string{name} + " (" + route + ")", here->timeout, all))
            return asked;
      }
    }
    return by_python(name, all, peer, tag);
  }

  /// Returns null if the request was refused.
  static work_ptr ask(description& made, void* lane, std::string what, milliseconds deadline, tensors outputs) {
    if (deadline < kNoTimeout || deadline > longest_deadline) return {};
    made.asked.deadline_ns = nanoseconds{deadline}.count();
    made.asked.owner = new tensors{std::move(made.held)};
    made.asked.release = [](void* held) { delete static_cast<tensors*>(held); };
    void* const reply = api->ask(lane, &made.asked);
    if (reply == nullptr) return {};
    const std::shared_ptr<void> held{reply, api->release};
    operations().add(held);
    return c10::make_intrusive<native_work>(held, std::move(what), deadline, std::move(outputs));
  }

  template <class... Given>
  work_ptr by_python(const char* name, Given&... given) {
    const py::gil_scoped_acquire gil;
    const py::function method = py::get_override(static_cast<const c10d::Backend*>(this), name);
    TORCH_CHECK(method, "the backend troupe was given a call after its object in Python had ended");
    py::object made = method(given...);
    method.attr("__self__").attr("of_thread").attr("work") = py::none(); // returned here, not by TroupeGroup
    return c10::make_intrusive<forwarded_work>(std::move(made));
  }

  static constexpr std::chrono::seconds longest_deadline{9'000'000'000}; ///< As of troupe's requests.

  const int made_after_ = forks;
  std::mutex mutex_;
  std::shared_ptr<connection> to_;
  std::atomic<std::uint64_t> asked_{0};
};

native_backend& native(const py::object& backend) {
  auto* const found = dynamic_cast<native_backend*>(backend.cast<c10d::Backend*>());
  TORCH_CHECK(found != nullptr, "the backend has no native part");
  return *found;
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  const py::object backend = py::module_::import("torch._C._distributed_c10d").attr("Backend");
  main_thread = py::module_::import("threading").attr("main_thread")().attr("ident").cast<unsigned long>();
  ::pthread_atfork(nullptr, nullptr, [] {
    ++forks;
    main_thread = PyThread_get_thread_ident();
    log_of_process = new operation_log{log_of_process->most()};
  });

  module.def("begin", [](const py::capsule& requests, std::size_t records) {
    const auto* const given = requests.get_pointer<troupe_requests>();
    if (given->version != TROUPE_REQUESTS_VERSION || given->size != sizeof(troupe_requests)) return false;
    api = given;
    operations().resize(records);
    return true;
  });
  // In place of Backend.__init__: the object is a native_backend.
  module.attr("init") = py::cpp_function(
      [](py::detail::value_and_holder& holder, int rank, int size) {
        holder.value_ptr() = static_cast<c10d::Backend*>(new native_backend{rank, size});
      },
      py::name("__init__"), py::is_method(backend), py::detail::is_new_style_constructor());
  module.def("connect", [](const py::object& self, const py::object& world, int rank, int size,
                           const std::string& collectives, milliseconds timeout) {
    native(self).connect(std::make_shared<connection>(world, rank, size, collectives, timeout));
  });
  module.def("disconnect", [](const py::object& self) { native(self).connect(nullptr); });
  module.def("asked", [](const py::object& self) { return native(self).asked(); });
  module.def("operations", [] { return operations().all(); });
}
