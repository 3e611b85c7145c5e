/// The native part of the backend of torch.distributed: collectives and transfers of dense tensors without Python.
/// troupe/torch/_native.py compiles it against the installed PyTorch. Design records 0111 and 0120.
///
/// A native_backend is the C++ object of a Python TroupeBackend, in place of PyTorch's PyBackend, from which it
/// extends: what is not asked natively is a call of the Python class, with its checks and its errors. So is every call
/// that would fail: nothing here words an error.
#include "requests.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
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
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;
using work_ptr = c10::intrusive_ptr<c10d::Work>;
using tensors = std::vector<at::Tensor>;
using future_ptr = c10::intrusive_ptr<c10::ivalue::Future>;

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
/// Not destroyed: threads may ask while the process exits. A fork has one of its own, because a thread of its parent
/// may have held the lock of this one.
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
  void synchronize() override { call<void>("synchronize"); }
  bool wait(milliseconds timeout) override { return call<bool>("wait", timeout); }
  void blockCurrentStream() override { call<void>("block_current_stream"); }
  /// Returns a future of the outputs as C++ has it: that of Python keeps an error as a value.
  future_ptr getFuture() override {
    const py::gil_scoped_acquire gil;
    if (future_) return future_;
    const auto theirs = python().attr("get_future")().cast<std::shared_ptr<torch::jit::PythonFutureWrapper>>()->fut;
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors(), theirs->devices());
    settle_as_python(future_);
    return future_;
  }
  future_ptr getFutureResult() override {
    const py::gil_scoped_acquire gil;
    return python().attr("get_future_result")().cast<std::shared_ptr<torch::jit::PythonFutureWrapper>>()->fut;
  }

protected:
  /// Returns the Work of Python. The caller must hold the GIL.
  [[nodiscard]] virtual const py::object& python() const { return python_; }
  template <class Result, class... Arguments>
  Result call(const char* name, const Arguments&... given) const {
    const py::gil_scoped_acquire gil;
    const py::object made = python().attr(name)(given...);
    if constexpr (!std::is_void_v<Result>) return made.template cast<Result>();
  }
  /// Settles \p made as the future of the Work of Python is settled. The caller must hold the GIL.
  void settle_as_python(const future_ptr& made) const {
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
  }

  mutable py::object python_;
  future_ptr future_;
};

/// Threads that settle futures, and so run callbacks, which may wait for later futures: one more than there are
/// callbacks that have not returned. Threads: any.
class settling_threads {
public:
  /// Starts the first one. Errors: std::system_error.
  void begin() {
    const std::lock_guard lock{mutex_};
    if (running_ == 0) start();
  }
  /// Calls \p settle on one of them, once begin() has been called. \p settle must not throw.
  void add(std::function<void()> settle) {
    const std::lock_guard lock{mutex_};
    due_.push_back(std::move(settle));
    if (resting_ == 0) start_another();
    due_or_closed_.notify_one();
  }
  /// Lets nothing more begin, and waits for what has, at most for \p patience: a callback that needed the GIL after the
  /// interpreter's end would end the process. The caller must not hold the GIL.
  void close(nanoseconds patience) {
    std::unique_lock lock{mutex_};
    is_closed_ = true;
    due_or_closed_.notify_all();
    if (!ended_.wait_for(lock, patience, [this] { return running_ == resting_; }))
      std::fputs(
          "troupe: the interpreter ends, and a callback of a future has not ended: if it goes on now, the process is "
          "aborted\n",
          stderr);
  }

private:
  /// The caller must have the lock.
  void start() {
    std::thread{[this] { run(); }}.detach();
    ++running_;
    ++resting_;
  }
  void start_another() noexcept {
    try {
      start();
    } catch (const std::system_error& why) {
      std::fprintf(stderr,
                   "troupe: no thread can be started for a callback of a future, which waits until another one has "
                   "ended, and may wait for it (%s): raise the limit of threads (ulimit -u)\n",
                   why.what());
    }
  }
  void run() {
    std::unique_lock lock{mutex_};
    for (;;) {
      const bool has_work =
          due_or_closed_.wait_for(lock, rest, [this] { return is_closed_ || !due_.empty(); }) && !is_closed_;
      if (!has_work && !is_closed_ && resting_ <= 2)
        continue; // one for the next future, one for what its callback waits for
      if (!has_work) break;
      {
        const auto next = std::move(due_.front());
        due_.pop_front();
        if (--resting_ == 0) start_another();
        lock.unlock();
        next();
      } // destroyed without the lock: it may be the last owner of objects of Python
      lock.lock();
      ++resting_;
      ended_.notify_all();
    }
    --running_;
    --resting_;
    ended_.notify_all();
  }

  static constexpr std::chrono::seconds rest{10}; ///< After which a thread without work may end.

  std::mutex mutex_;
  std::condition_variable due_or_closed_, ended_;
  std::deque<std::function<void()>> due_;
  int running_ = 0, resting_ = 0; ///< Threads; those that wait for work.
  bool is_closed_ = false;
};
/// Not destroyed, as the operations' log; a fork has none of its parent's threads.
settling_threads* settling = new settling_threads;

/// The pass of autograd that raises an operation's error at its end: Python's Backward. An object for each pass.
using backward_pass = std::shared_ptr<py::object>;

/// Returns the pass in which this thread is; null if it is in none.
backward_pass current_backward() {
  const auto task = torch::autograd::get_current_graph_task_id();
  if (task < 0) return nullptr;
  static auto& mutex = *new std::mutex;
  static auto& last = *new std::pair<decltype(+task), std::weak_ptr<py::object>>; // a failed pass keeps frames alive
  {
    const std::lock_guard lock{mutex};
    if (last.first == task)
      if (auto found = last.second.lock()) return found;
  }
  const py::gil_scoped_acquire gil; // before the lock, for which threads may wait with the GIL
  const auto made =
      backward_pass{new py::object{py::module_::import("troupe.torch._recovery").attr("Backward").attr("current")()},
                    [](py::object* one) {
                      drop(*one);
                      delete one;
                    }};
  const std::lock_guard lock{mutex};
  last = {task, made};
  return made;
}

/// Where the tensors of a rank are, and how its works wait. Threads: any.
class rank_device {
public:
  /// \p gpu: the number of the rank's GPU; negative: the world is one of the CPU. \p blocks: whether wait() waits for
  /// the outcome on a GPU, too. \p make_work: makes a Work of Python from a reply, its text, its deadline and its
  /// outputs.
  rank_device(int gpu, bool blocks, py::object make_work)
    : gpu{gpu}, blocks{gpu < 0 || blocks}, make_work{std::move(make_work)} {
    if (gpu >= 0) side_.emplace(side_stream_of(device()));
  }
  rank_device(const rank_device&) = delete;
  rank_device& operator=(const rank_device&) = delete;
  ~rank_device() { drop(make_work); }

  const int gpu;
  const bool blocks;
  py::object make_work;

  [[nodiscard]] bool has(const at::Tensor& one) const {
    return gpu < 0 ? one.device().is_cpu() : one.device().is_cuda() && one.device().index() == gpu;
  }
  /// Returns the devices of a future, on which its wait() makes the current stream wait. None without a GPU.
  [[nodiscard]] std::vector<c10::Device> devices() const {
    return gpu < 0 ? std::vector<c10::Device>{} : std::vector{device()};
  }
  /// Returns the handle of a stream of the GPU.
  [[nodiscard]] static void* handle_of(const c10::Stream& one) { return of_gpus().getStreamNativeHandle(one); }
  /// Returns this thread's current stream of the GPU.
  [[nodiscard]] c10::Stream current_stream() const { return of_gpus().getStream(device()); }
  /// Returns the stream in which the events of futures are recorded; none without a GPU. It is one of PyTorch's pool,
  /// which may give it to others as well, whose work those events then wait for.
  [[nodiscard]] const std::optional<c10::Stream>& side_stream() const { return side_; }

private:
  [[nodiscard]] c10::Device device() const { return {at::kCUDA, static_cast<c10::DeviceIndex>(gpu)}; }
  /// The calls of PyTorch for GPUs.
  [[nodiscard]] static const c10::impl::VirtualGuardImpl& of_gpus() {
    static const c10::impl::VirtualGuardImpl made{at::kCUDA};
    return made;
  }
  /// Returns the same stream for all works of this process.
  [[nodiscard]] static c10::Stream side_stream_of(c10::Device where) {
    static std::mutex mutex;
    static auto& made = *new std::map<c10::DeviceIndex, c10::Stream>;
    const std::lock_guard lock{mutex};
    const auto found = made.find(where.index());
    if (found != made.end()) return found->second;
    return made.emplace(where.index(), of_gpus().getStreamFromGlobalPool(where, false)).first->second;
  }

  std::optional<c10::Stream> side_;
};

/// Counts the requests whose tensors may still be read or written. Threads: any.
class use_count {
public:
  /// Returns an object that each of these requests holds.
  [[nodiscard]] std::shared_ptr<void> one() const noexcept { return each_; }
  [[nodiscard]] std::size_t count() const noexcept { return static_cast<std::size_t>(each_.use_count()) - 1; }

private:
  const std::shared_ptr<void> each_ = std::make_shared<char>();
};

/// Lanes of this process's rank. Threads: any.
class connection {
public:
  using lane = std::shared_ptr<void>;

  /// \p uses: counts the requests, in a group that recovers, whose sends and recvs are Python's. Null in others.
  /// Errors: std::invalid_argument if the world would copy the tensors (host memory, in a world on GPUs).
  connection(const py::object& world, int rank, int size, const std::string& collectives, milliseconds timeout,
             std::shared_ptr<const use_count> uses, std::shared_ptr<const rank_device> on)
    : rank{rank},
      size{size},
      timeout{timeout},
      uses{std::move(uses)},
      on{std::move(on)},
      collectives{api->open(world.ptr(), rank, collectives.c_str(), this->on->gpu >= 0 ? 1 : 0), close} {
    if (!this->collectives) throw std::invalid_argument{"the world stages host memory"};
  }

  const int rank, size;
  const milliseconds timeout;                  ///< Of operations without one.
  const std::shared_ptr<const use_count> uses; ///< Null: requests are not counted.
  const std::shared_ptr<const rank_device> on;
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

/// An operation that was asked for natively. It makes a Work of Python only where that has to answer: to word an error,
/// for example.
class native_work final : public forwarded_work {
public:
  native_work(std::shared_ptr<const rank_device> on, std::shared_ptr<void> reply, std::string what,
              milliseconds deadline, tensors outputs)
    : on_{std::move(on)},
      reply_{std::move(reply)},
      what_{std::move(what)},
      deadline_{deadline},
      outputs_{std::move(outputs)},
      backward_{current_backward()} {}

  bool isCompleted() override { return api->state(reply_.get()) != TROUPE_REPLY_PENDING; }
  bool isSuccess() const override { return api->state(reply_.get()) == TROUPE_REPLY_SUCCEEDED; }
  std::exception_ptr exception() const override {
    return api->state(reply_.get()) == TROUPE_REPLY_FAILED ? forwarded_work::exception() : nullptr;
  }
  tensors result() override {
    synchronize();
    return outputs_;
  }
  /// Waits for the outcome.
  void synchronize() override {
    if (!await([this](nanoseconds at_most, bool polls) {
          return api->wait(reply_.get(), at_most.count(), polls ? 1 : 0);
        }))
      forwarded_work::synchronize();
  }
  /// On a GPU makes the current stream wait; otherwise waits for the outcome. A wait with a timeout is Python's, whose
  /// error names the timeout.
  bool wait(milliseconds timeout) override {
    if (timeout != kNoTimeout && timeout != c10d::kUnsetTimeout) return forwarded_work::wait(timeout);
    if (on_->blocks) {
      native_work::synchronize();
      return true;
    }
    void* const stream = on_->handle_of(on_->current_stream());
    return await([&](nanoseconds at_most, bool polls) {
             return api->order(reply_.get(), stream, at_most.count(), polls ? 1 : 0);
           }) ||
           forwarded_work::wait(timeout);
  }
  void blockCurrentStream() override { native_work::wait(kNoTimeout); }
  /// Returns a future of the outputs. On a GPU it is settled when the launch is in the GPU's queue, and orders streams.
  future_ptr getFuture() override {
    if (on_->gpu >= 0 && on_->blocks) return forwarded_work::getFuture(); // settled at the outcome
    settling->begin();
    {
      const std::lock_guard lock{mutex_};
      if (future_) return future_;
      future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors(), on_->devices());
    }
    auto self =
        std::make_unique<told_work>(told_work{c10::intrusive_ptr<native_work>::unsafe_reclaim_from_nonowning(this)});
    if (api->tell(reply_.get(), &be_told, self.get()) != 0)
      static_cast<void>(self.release());
    else
      settle();
    return future_;
  }

private:
  using told_work = c10::intrusive_ptr<native_work>;
  static constexpr milliseconds between_looks{100};
  static constexpr std::chrono::hours hour{1};

  static void be_told(void* what) {
    const std::unique_ptr<told_work> told{static_cast<told_work*>(what)};
    settling->add([one = std::move(*told)] { one->settle(); });
  }
  /// Settles the future. What fails is settled as in Python.
  void settle() noexcept {
    try {
      std::optional<c10::StreamGuard> side; // the future's events are recorded where this stream is
      if (on_->side_stream()) side.emplace(*on_->side_stream());
      std::int32_t state = TROUPE_REPLY_PENDING;
      {
        std::optional<py::gil_scoped_release> released;
        if (PyGILState_Check() != 0) released.emplace();
        state = side ? api->order(reply_.get(), on_->handle_of(*on_->side_stream()), 0, 0) : api->state(reply_.get());
      }
      if (state == TROUPE_REPLY_SUCCEEDED) return future_->markCompleted(outputs_);
      if (is_over()) return;
      const py::gil_scoped_acquire gil;
      settle_as_python(future_);
    } catch (const std::exception&) {
      if (!future_->completed()) future_->setError(std::current_exception());
    }
  }

  /// Calls \p wait with the longest time that it may take, and whether to poll first, until the state that it returns
  /// is not PENDING. In the thread that handles signals it looks for signals in between. Returns whether the operation
  /// has succeeded.
  template <class Wait>
  bool await(const Wait& wait) {
    const bool looks = PyThread_get_thread_ident() == main_thread;
    for (bool polls = true;; polls = false) {
      std::int32_t state = TROUPE_REPLY_PENDING;
      {
        std::optional<py::gil_scoped_release> released;
        if (PyGILState_Check() != 0) released.emplace();
        state = wait(looks ? nanoseconds{between_looks} : nanoseconds{hour}, polls);
        // A daemon thread that took the GIL now would crash: it stays here until the process exits.
        while (!looks && is_over()) std::this_thread::sleep_for(hour);
      }
      if (state != TROUPE_REPLY_PENDING) return state == TROUPE_REPLY_SUCCEEDED;
      if (!looks) continue;
      const py::gil_scoped_acquire gil;
      if (PyErr_CheckSignals() != 0) throw py::error_already_set{};
    }
  }

  [[nodiscard]] const py::object& python() const override {
    if (python_) return python_;
    py::object made = on_->make_work(shown(reply_), what_, deadline_, outputs_);
    made.attr("_backward") = backward_ ? *backward_ : py::object{py::none()}; // not that of this call
    if (!python_) python_ = std::move(made); // another thread may have made one meanwhile
    return python_;
  }

  const std::shared_ptr<const rank_device> on_;
  const std::shared_ptr<void> reply_;
  const std::string what_;
  const milliseconds deadline_;
  const tensors outputs_;
  const backward_pass backward_;
  std::mutex mutex_;
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
  description(int kind, const rank_device& on) : on_{on} { asked.kind = kind; }

  [[nodiscard]] bool moves(const at::Tensor* source, const at::Tensor* result) {
    const at::Tensor& one = source != nullptr ? *source : *result;
    type_ = type_number(one.scalar_type());
    width_ = type_ < 0 ? static_cast<std::uint64_t>(one.element_size()) : 1;
    asked.type = type_ < 0 ? TROUPE_REQUEST_U8 : type_;
    for (const at::Tensor* each : {source, result})
      if (each != nullptr &&
          !(on_.has(*each) && each->layout() == at::kStrided && each->is_contiguous() && !each->is_conj() &&
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

  const rank_device& on_;
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
        "barrier", TROUPE_REQUEST_BARRIER, opts.timeout, {}, [](auto&, auto& here) { return here.on->gpu < 0; },
        "barrier", opts);
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
      description made{kind, *here->on};
      if (describe(made, *here)) {
        const milliseconds deadline = timeout > kNoTimeout ? timeout : here->timeout;
        if (work_ptr asked = ask(*here, made, here->collectives.get(), what, deadline, std::move(outputs))) {
          ++asked_;
          return asked;
        }
      }
    }
    return by_python(name, given...);
  }

  work_ptr transfer(const char* name, int kind, tensors& all, int peer, int tag) {
    if (const auto here = connected(); here && !here->uses && all.size() == 1) {
      description made{kind, *here->on};
      const bool sends = kind == TROUPE_REQUEST_SEND;
      if (made.to(peer, tag) && made.moves(sends ? all.data() : nullptr, sends ? nullptr : all.data())) {
        const std::string route = std::to_string(sends ? here->rank : peer) + ">" +
                                  std::to_string(sends ? peer : here->rank) + " tag " + std::to_string(tag);
        if (const auto in = here->transfers(route))
          if (work_ptr asked = ask(*here, made, in.get(), std::string{name} + " (" + route + ")", here->timeout, all))
            return asked;
      }
    }
    return by_python(name, all, peer, tag);
  }

  /// The tensors of a request.
  struct operands {
    tensors held;
    std::shared_ptr<void> counted;
  };

  /// Returns null if the request was refused.
  static work_ptr ask(const connection& in, description& made, void* lane, std::string what, milliseconds deadline,
                      tensors outputs) {
    if (deadline < kNoTimeout || deadline > longest_deadline) return {};
    if (in.on->gpu >= 0) made.asked.stream = in.on->handle_of(in.on->current_stream());
    made.asked.deadline_ns = nanoseconds{deadline}.count();
    made.asked.owner = new operands{std::move(made.held), in.uses ? in.uses->one() : nullptr};
    made.asked.release = [](void* held) { delete static_cast<operands*>(held); };
    void* const reply = api->ask(lane, &made.asked);
    if (reply == nullptr) return {};
    const std::shared_ptr<void> held{reply, api->release};
    operations().add(held);
    return c10::make_intrusive<native_work>(in.on, held, std::move(what), deadline, std::move(outputs));
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
    settling = new settling_threads;
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
                           const std::string& collectives, milliseconds timeout, const std::shared_ptr<use_count>& uses,
                           const py::object& make_work, int gpu, bool blocks) {
    native(self).connect(std::make_shared<connection>(world, rank, size, collectives, timeout, uses,
                                                      std::make_shared<const rank_device>(gpu, blocks, make_work)));
  });
  py::class_<use_count, std::shared_ptr<use_count>>(module, "Uses").def(py::init<>()).def("count", &use_count::count);
  module.def(
      "end", [] { settling->close(std::chrono::seconds{10}); }, py::call_guard<py::gil_scoped_release>());
  module.def("disconnect", [](const py::object& self) { native(self).connect(nullptr); });
  module.def("asked", [](const py::object& self) { return native(self).asked(); });
  module.def("operations", [] { return operations().all(); });
}
