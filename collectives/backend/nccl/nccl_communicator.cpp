#include <troupe/collectives/backend/nccl/nccl_communicator.hpp>

#include <troupe/collectives/backend/nccl/nccl_api.hpp>
#include <troupe/collectives/backend/nccl/nccl_library.hpp>
#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/device/memory/leak_report.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t granularity = 4096; // required for windows (NCCL_WIN_REQUIRED_ALIGNMENT)

bool switched_off(const char* variable) {
  const char* const value = std::getenv(variable); // NOLINT(concurrency-mt-unsafe): nobody sets it while worlds live
  return value != nullptr && std::string{value} == "0";
}

/// Memory from ncclMemAlloc() that is registered as a symmetric window. A window is symmetric if all ranks reach each
/// other by CUDA's peer access and neither NCCL_WIN_ENABLE nor NCCL_CUMEM_ENABLE is 0.
/// Source: NCCL's manual, "User Buffer Registration", "Window Registration"; dev_runtime.cc.
class nccl_region final : public registered_region {
public:
  /// Errors: unsupported (the library is too old), out_of_memory.
  [[nodiscard]] static std::shared_ptr<nccl_region>
  allocate(std::shared_ptr<const nccl_library> library, const std::shared_ptr<device>& where, std::size_t size_bytes) {
    const nccl_functions& nccl = library->functions();
    if (nccl.mem_alloc == nullptr || nccl.mem_free == nullptr || nccl.comm_window_register == nullptr ||
        nccl.comm_window_deregister == nullptr)
      throw exception{errc::unsupported, "NCCL " + library->version() +
                                             " cannot register memory as a window: use NCCL 2.27 or newer, or the "
                                             "pools' memory"};
    where->api().enter_thread(where->id());
    const std::size_t rounded = (size_bytes + granularity - 1) / granularity * granularity;
    void* address = nullptr;
    nccl_call(nccl, nccl.mem_alloc(&address, rounded), "ncclMemAlloc");
    return std::make_shared<nccl_region>(std::move(library), where, static_cast<std::byte*>(address), rounded);
  }
  nccl_region(std::shared_ptr<const nccl_library> library, std::shared_ptr<device> where, std::byte* address,
              std::size_t size_bytes)
    : registered_region{std::move(where), address, size_bytes}, library_{std::move(library)} {}
  ~nccl_region() override {
    // Frees on a separate thread, so that the thread that drops the last handle keeps its current device.
    return_or_report("registered memory", [this] {
      std::thread{[this] {
        return_or_report("registered memory", [this] {
          where()->api().enter_thread(where()->id());
          nccl_call(library_->functions(), library_->functions().mem_free(address()), "ncclMemFree");
        });
      }}.join();
    });
  }

  /// Records the reason if requests will run as on ordinary memory. \p has_window: NCCL registered a window.
  void judge(bool has_window) {
    if (!has_window) return ordinary("NCCL gave no window for it");
    for (const char* variable : {"NCCL_WIN_ENABLE", "NCCL_CUMEM_ENABLE"})
      if (switched_off(variable)) return ordinary(std::string{variable} + " is 0");
    driver& api = where()->api();
    for (int other = 0; other < api.device_count(); ++other)
      if (!api.describe_peer(where()->id(), device_id{other}).access)
        return ordinary("device " + to_string(where()->id()) + " has no peer access to device " +
                        std::to_string(other));
  }

private:
  std::shared_ptr<const nccl_library> library_;
};

cudaStream_t as_cuda(stream_ref stream) noexcept {
  return reinterpret_cast<cudaStream_t>(stream.native());
}

bool is_captured(stream_ref stream) {
  return stream.where().api().status_of_capture(stream.where().id(), stream.native()) != capture_status::none;
}

bool uses_barrier_word(const operation& what) {
  if (const auto* several = std::get_if<group>(&what)) return std::ranges::any_of(several->parts, uses_barrier_word);
  return std::holds_alternative<barrier>(what);
}

} // namespace

/// Counts the calling thread as inside NCCL while it lives. The constructor throws unless the communicator is ready.
class nccl_communicator::visit {
public:
  /// Time for a running call to return. A launch takes microseconds, so a call that takes longer is stuck.
  static constexpr std::chrono::milliseconds time_to_leave{10};
  /// usual: other calls may run at the same time. last: waits for running calls and refuses all later ones.
  enum class kind : std::uint8_t { usual, last };

  explicit visit(nccl_communicator& host, kind which = kind::usual) : host_{host} {
    std::unique_lock lock{host_.mutex_};
    host_.require_ready();
    if (which == kind::last) {
      host_.phase_ = phase::spent;
      if (!host_.left_.wait_for(lock, time_to_leave, [&] { return host_.inside_ == 0; }))
        throw exception{
            error{.code = errc::communicator_failed,
                  .text = "a call on the failed communicator has not returned, so no other can be derived from it",
                  .rank = host_.self()}};
      if (host_.phase_ == phase::ended) throw exception{host_.aborted("a recovery")};
    }
    handle_ = host_.handle_;
    ++host_.inside_;
  }
  visit(const visit&) = delete;
  visit& operator=(const visit&) = delete;
  ~visit() {
    const std::lock_guard lock{host_.mutex_};
    --host_.inside_;
    host_.left_.notify_all();
  }
  [[nodiscard]] ncclComm_t handle() const noexcept { return handle_; }

private:
  nccl_communicator& host_;
  ncclComm_t handle_ = nullptr;
};

nccl_communicator::nccl_communicator(std::shared_ptr<const nccl_library> library,
                                     std::shared_ptr<nccl_barrier_memories> words, const unique_id& id, rank self,
                                     int world_size, std::shared_ptr<device> where,
                                     const nccl_native_config& config) noexcept
  : communicator{self, world_size, std::move(where)},
    library_{std::move(library)},
    nccl_{library_->functions()},
    words_{std::move(words)},
    config_{config} {
  std::memcpy(&id_, id.bytes.data(), sizeof id_);
}

nccl_communicator::nccl_communicator(derivation from, rank self, int world_size) noexcept
  : communicator{self, world_size, from.parent->where()},
    library_{from.parent->library_},
    nccl_{library_->functions()},
    words_{from.parent->words_},
    config_{from.parent->config_},
    from_{std::move(from)} {
  if (from_.how == derivation::method::split) return;
  config_.splitShare = config_.shrinkShare = 0; // the abort of the failed parent would release shared resources
}

/// Throws unless the communicator is ready. Requires mutex_ to be locked.
void nccl_communicator::require_ready() const {
  if (phase_ == phase::ready) return;
  const char* text = "the communicator has been aborted or destroyed";
  if (phase_ == phase::fresh || phase_ == phase::forming)
    text = "the communicator has not been formed yet: call init() first";
  if (phase_ == phase::spent) text = "another communicator was derived from this one: use that one";
  throw exception{error{.code = errc::communicator_failed, .text = text, .rank = self()}};
}

nccl_communicator::~nccl_communicator() {
  if (phase_ == phase::fresh || phase_ == phase::ended) return;
  return_or_report("an NCCL communicator", [this] {
    throw exception{error{.code = errc::internal,
                          .text = "it was neither aborted nor destroyed, and is leaked: call abort() or destroy() "
                                  "before dropping it",
                          .rank = self()}};
  });
}

error nccl_communicator::aborted(const char* during) const {
  return error{.code = errc::communicator_failed,
               .text = std::string{"the communicator was aborted during "} + during,
               .rank = self()};
}

/// Waits until \p result is final. NCCL_COMM_BLOCKING=0 in the environment overrides our configuration; calls then
/// return ncclInProgress first.
ncclResult_t nccl_communicator::wait_out(ncclResult_t result) const {
  while (result == ncclInProgress) {
    std::this_thread::yield();
    const std::lock_guard lock{mutex_}; // abort() must not free the handle during this short call
    if (phase_ == phase::ended) return ncclRemoteError;
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = nccl_.comm_get_async_error(handle_, &state);
    result = asked == ncclSuccess ? state : asked;
  }
  return result;
}

void nccl_communicator::init() {
  where()->api().enter_thread(where()->id());
  auto word = std::make_unique<nccl_barrier_word>(words_->of(where()), where());
  {
    const std::lock_guard lock{mutex_};
    if (phase_ == phase::ended) throw exception{aborted("init()")};
    if (phase_ != phase::fresh)
      throw exception{errc::invalid_argument, "init() is called once: create a new communicator"};
    barrier_word_ = std::move(word);
    if (!from_.parent) form();
    phase_ = phase::forming;
    ++inside_;
  }
  if (from_.parent)
    form_from_parent();
  else
    end_forming(wait_out(nccl_.group_end()), "ncclCommInitRankConfig"); // blocks until all ranks have joined
}

void nccl_communicator::warm_up(stream_ref stream) {
  // The call itself makes NCCL's connections, so there is no need to wait for the operation. Waiting would be harmful:
  // a stream that CUDA has seen idle may later be blocked behind unfinished work of another communicator on this device
  // (docs/design/0075-first-operation.md).
  launch(barrier{}, stream);
}

void nccl_communicator::form_from_parent() {
  const derivation from = std::exchange(from_, {});
  ncclComm_t formed = nullptr;
  ncclResult_t result = ncclSuccess;
  try {
    result = form_from(from, formed);
  } catch (const exception&) { // the parent is aborted or busy with another call, and NCCL was not called
    const std::lock_guard lock{mutex_};
    --inside_;
    left_.notify_all();
    phase_ = phase::ended;
    throw;
  }
  bool ended = false;
  {
    const std::lock_guard lock{mutex_};
    ended = phase_ == phase::ended;
    if (!ended) handle_ = formed;
  }
  if (ended && formed != nullptr) static_cast<void>(nccl_.comm_abort(formed)); // abort() ran before the handle existed
  end_forming(result, from.how == derivation::method::shrink ? "ncclCommShrink" : "ncclCommSplit");
}

ncclResult_t nccl_communicator::form_from(const derivation& from, ncclComm_t& formed) {
  nccl_communicator& parent = *from.parent;
  const visit stay{parent, from.how == derivation::method::split ? visit::kind::usual : visit::kind::last};
  if (from.how == derivation::method::shrink) {
    std::vector<int> without = from.without;
    return parent.wait_out(nccl_.comm_shrink(stay.handle(), without.data(), static_cast<int>(without.size()), &formed,
                                             as_nccl(config_), nccl_shrink_abort));
  }
  if (from.how == derivation::method::revoke) {
    const ncclResult_t begun = nccl_.comm_revoke(stay.handle(), nccl_revoke_default);
    if (begun != ncclSuccess && begun != ncclInProgress) return begun;
    // A revoked communicator has no operation in flight once its state is no longer in progress. This holds for
    // blocking communicators too.
    const ncclResult_t quiet = parent.wait_out(ncclInProgress);
    if (quiet != ncclSuccess) return quiet;
  }
  return parent.wait_out(nccl_.comm_split(stay.handle(), from.color, self().value(), &formed, as_nccl(config_)));
}

void nccl_communicator::end_forming(ncclResult_t result, const char* call) {
  const std::lock_guard lock{mutex_};
  --inside_;
  left_.notify_all();
  if (phase_ == phase::ended) throw exception{aborted("init()")};
  phase_ = result == ncclSuccess ? phase::ready : handle_ != nullptr ? phase::unusable : phase::ended;
  nccl_call(nccl_, result, call, self());
}

std::shared_ptr<communicator> nccl_communicator::split(const split_spec& as) {
  return std::make_shared<nccl_communicator>(
      derivation{.parent = shared_from_this(), .how = derivation::method::split, .color = as.color}, as.self,
      as.world_size);
}

std::shared_ptr<communicator> nccl_communicator::shrink(const shrink_spec& as) {
  if (nccl_.comm_shrink == nullptr)
    throw exception{
        errc::unsupported,
        "this NCCL has no ncclCommShrink: install NCCL 2.27 or newer, or set recovery.first_rung to form_beside"};
  const std::lock_guard lock{mutex_};
  require_ready();
  derivation from{.parent = shared_from_this(), .how = derivation::method::shrink};
  for (const rank one : as.without) from.without.push_back(one.value());
  return std::make_shared<nccl_communicator>(std::move(from), as.self, as.world_size);
}

std::shared_ptr<communicator> nccl_communicator::revoke_and_split() {
  if (nccl_.comm_revoke == nullptr)
    throw exception{
        errc::unsupported,
        "this NCCL has no ncclCommRevoke: install NCCL 2.28.9 or newer, or set recovery.first_rung to form_beside"};
  const std::lock_guard lock{mutex_};
  require_ready();
  return std::make_shared<nccl_communicator>(
      derivation{.parent = shared_from_this(), .how = derivation::method::revoke}, self(), world_size());
}

void nccl_communicator::split_none() {
  where()->api().enter_thread(where()->id());
  const visit stay{*this};
  ncclComm_t none = nullptr;
  nccl_call(nccl_, wait_out(nccl_.comm_split(stay.handle(), NCCL_SPLIT_NOCOLOR, 0, &none, nullptr)), "ncclCommSplit",
            self());
}

/// Obtains the handle and leaves the calling thread inside an NCCL group. The end of the group connects the ranks. This
/// function does not communicate, so it is fast.
void nccl_communicator::form() {
  nccl_call(nccl_, nccl_.group_start(), "ncclGroupStart", self());
  const ncclResult_t result =
      nccl_.comm_init_rank_config(&handle_, world_size(), id_, self().value(), as_nccl(config_));
  std::memset(&id_, 0, sizeof id_); // the id is a capability (SEC-1) and is no longer needed
  if (result == ncclSuccess || result == ncclInProgress) return;
  handle_ = nullptr;
  phase_ = phase::ended;
  static_cast<void>(nccl_.group_end()); // the first failure is the one to report
  nccl_call(nccl_, result, "ncclCommInitRankConfig", self());
}

library_diagnostics nccl_communicator::last_diagnostics() const {
  return {.last_error = last_error_of(nccl_), .ask = library_->ras_command()};
}

bool nccl_communicator::do_launch(const operation& what, stream_ref stream, completion_word) {
  const visit stay{*this};
  const nccl_enqueued enqueued = enqueue(what, target(stay.handle(), stream));
  // A captured launch does not run, and the event would belong to the capture. Graphs are destroyed before the
  // communicator.
  if (uses_barrier_word(what) && !is_captured(stream)) barrier_word_->used_in(stream);
  end_launch(enqueued);
  return false;
}

bool nccl_communicator::do_launch_together(std::span<const operation* const> all, stream_ref stream, completion_word) {
  const visit stay{*this};
  end_launch(enqueue_together(all, target(stay.handle(), stream)));
  return false;
}

nccl_target nccl_communicator::target(ncclComm_t handle, stream_ref stream) const noexcept {
  return {.nccl = nccl_,
          .communicator = handle,
          .stream = as_cuda(stream),
          .self = self(),
          .world_size = world_size(),
          .barrier_word = barrier_word_->address()};
}

void nccl_communicator::end_launch(const nccl_enqueued& enqueued) const {
  const ncclResult_t result = wait_out(enqueued.result);
  if (result == ncclSuccess) [[likely]]
    return;
  {
    const std::lock_guard lock{mutex_};
    if (phase_ == phase::ended) throw exception{with_unknown_outcome(aborted("a launch"))};
  }
  nccl_call(nccl_, result, enqueued.call, self(), effect::unknown_outcome);
}

void nccl_communicator::check() {
  const visit stay{*this};
  ncclResult_t state = ncclSuccess;
  nccl_call(nccl_, nccl_.comm_get_async_error(stay.handle(), &state), "ncclCommGetAsyncError", self());
  if (state != ncclInProgress) nccl_call(nccl_, state, "ncclCommGetAsyncError", self(), effect::unknown_outcome);
}

void nccl_communicator::abort() {
  ncclComm_t handle = nullptr;
  {
    std::unique_lock lock{mutex_};
    phase_ = phase::ended; // refuses all later calls, also an init() that has not begun
    handle = std::exchange(handle_, nullptr);
    if (handle == nullptr) return;
    left_.wait_for(lock, visit::time_to_leave, [this] { return inside_ == 0; });
  }
  try {
    where()->api().enter_thread(where()->id());
  } catch (const exception&) { // a device with a sticky error refuses this; the communicator must end anyway
  }
  nccl_call(nccl_, nccl_.comm_abort(handle), "ncclCommAbort", self());
}

void nccl_communicator::destroy() {
  ncclComm_t handle = nullptr;
  {
    std::unique_lock lock{mutex_};
    if (phase_ == phase::ended || phase_ == phase::closing) return;
    if (phase_ == phase::forming) throw exception{errc::invalid_argument, "destroy() during init(): call abort()"};
    if (phase_ == phase::unusable || phase_ == phase::spent) {
      lock.unlock();
      return abort();
    }
    handle = handle_;
    phase_ = handle != nullptr ? phase::closing : phase::ended;
    if (handle == nullptr) return;
    ++inside_;
  }

  where()->api().enter_thread(where()->id());
  for (void* const window : windows_)
    return_or_report("an NCCL window", [&] {
      nccl_call(nccl_, nccl_.comm_window_deregister(handle, window), "ncclCommWindowDeregister", self());
    });
  const ncclResult_t finalized = wait_out(nccl_.comm_finalize(handle)); // flushes; waits for NCCL's own work

  {
    const std::lock_guard lock{mutex_};
    --inside_;
    left_.notify_all();
    if (phase_ == phase::ended) throw exception{aborted("destroy()")};
    phase_ = phase::ended;
    handle_ = nullptr;
  }
  if (finalized != ncclSuccess) static_cast<void>(nccl_.comm_abort(handle)); // frees the remaining resources
  nccl_call(nccl_, finalized, "ncclCommFinalize", self());
  nccl_call(nccl_, nccl_.comm_destroy(handle), "ncclCommDestroy", self());
}

std::shared_ptr<registered_region> nccl_communicator::allocate_region(std::size_t size_bytes) {
  try {
    return nccl_region::allocate(library_, where(), size_bytes);
  } catch (const exception& failure) { // the same on all ranks, because they use the same library
    if (failure.why().code != errc::unsupported) throw;
    return make_pooled_region(where(), size_bytes, failure.why().text);
  }
}

void nccl_communicator::register_region(registered_region& region) {
  where()->api().enter_thread(where()->id());
  auto* const memory = dynamic_cast<nccl_region*>(&region);
  if (memory == nullptr) return;
  void* window = nullptr;
  {
    const visit stay{*this};
    nccl_call(nccl_,
              wait_out(nccl_.comm_window_register(stay.handle(), memory->address(), memory->size_bytes(), &window,
                                                  nccl_window_symmetric)),
              "ncclCommWindowRegister", self());
  }
  memory->judge(window != nullptr);
  const std::lock_guard lock{mutex_};
  if (window != nullptr) windows_.push_back(window);
}

std::size_t nccl_communicator::suspend() {
  if (nccl_.comm_suspend == nullptr || nccl_.comm_resume == nullptr) return communicator::suspend();
  where()->api().enter_thread(where()->id());
  const visit stay{*this};
  std::uint64_t bytes = 0;
  if (nccl_.comm_mem_stats != nullptr)
    nccl_call(nccl_, nccl_.comm_mem_stats(stay.handle(), nccl_memory_to_suspend, &bytes), "ncclCommMemStats", self());
  nccl_call(nccl_, wait_out(nccl_.comm_suspend(stay.handle(), nccl_suspend_memory)), "ncclCommSuspend", self());
  return bytes;
}

void nccl_communicator::resume() {
  if (nccl_.comm_resume == nullptr) return communicator::resume();
  where()->api().enter_thread(where()->id());
  const visit stay{*this};
  nccl_call(nccl_, wait_out(nccl_.comm_resume(stay.handle())), "ncclCommResume", self());
}

nccl_barrier_memory::nccl_barrier_memory(const std::shared_ptr<device>& where)
  : side_{where}, word_{memory_pool::create(where)->allocate(sizeof(std::int32_t))} {
  side_.ref().fill(word_.data(), 0, word_.size_bytes());
  side_.ref().synchronize();
}

nccl_barrier_memory::~nccl_barrier_memory() {
  return_or_report("the word of NCCL barriers", [this] { word_.note_use(side_); });
}

void nccl_barrier_memory::outlast(const event& last_use) {
  const std::lock_guard lock{mutex_};
  side_.ref().wait(last_use);
}

std::shared_ptr<nccl_barrier_memory> nccl_barrier_memories::of(const std::shared_ptr<device>& where) {
  const std::lock_guard lock{mutex_};
  auto& one = all_[where];
  if (one == nullptr) one = std::make_shared<nccl_barrier_memory>(where);
  return one;
}

nccl_barrier_word::~nccl_barrier_word() {
  return_or_report("an NCCL barrier's event", [this] { memory_->outlast(last_use_); });
}

} // namespace troupe
