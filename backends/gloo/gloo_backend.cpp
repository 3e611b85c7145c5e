#include <troupe/backends/gloo/gloo_backend.hpp>

#include <troupe/backends/gloo/gloo_collective.hpp>
#include <troupe/backends/gloo/gloo_formation.hpp>
#include <troupe/backends/host_staged/host_staged_backend.hpp>
#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/mock/mock_rendezvous.hpp>
#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/device/mock/mock_engine.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/device/topology/thread_binding.hpp>

#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/config.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// Runs jobs on one thread, in the order in which they were added. Each job starts once its stream has reached it.
///
/// After a job has failed, no other job runs. The failed job and those behind it stay pending until stop(), so that
/// their completion is not taken for success. Threads: safe from any.
class gloo_job_queue {
public:
  class job {
  public:
    explicit job(std::function<void()> what) : work{std::move(what)} {}

    std::function<void()> work;
    bool awaited = false; ///< The job's stream has reached it.
    bool done = false;
  };

  /// \p cut: makes a stuck job throw. It is called from any thread, and more than once. \p engine is woken when a job
  /// has ended.
  gloo_job_queue(std::function<void()> cut, std::shared_ptr<mock_waker> engine)
    : cut_{std::move(cut)}, engine_{std::move(engine)} {}
  gloo_job_queue(const gloo_job_queue&) = delete;
  gloo_job_queue& operator=(const gloo_job_queue&) = delete;
  /// Calls stop().
  ~gloo_job_queue() { stop(); }

  /// Starts the thread. Errors: communicator_failed after stop(), std::system_error.
  void start() {
    const std::lock_guard joining{joining_};
    const std::lock_guard lock{mutex_};
    if (stopping_) throw exception{errc::communicator_failed, "the communicator was aborted"};
    thread_ = worker{[this] {
      name_this_thread("troupe/gloo");
      // Gloo writes to sockets whose peer may have ended. That must be an error of the call; it must not end the
      // process.
      sigset_t broken_pipe;
      ::sigemptyset(&broken_pipe);
      ::sigaddset(&broken_pipe, SIGPIPE);
      ::pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
      serve();
    }};
  }

  [[nodiscard]] std::shared_ptr<job> add(std::function<void()> work) {
    auto made = std::make_shared<job>(std::move(work));
    const std::lock_guard lock{mutex_};
    jobs_.push_back(made);
    return made;
  }

  /// Polls \p one, which its stream has reached. Returns reached if the job is done or stop() has returned.
  [[nodiscard]] progress poll(job& one) {
    {
      const std::lock_guard lock{mutex_};
      if (one.done || stopped_) return progress::reached; // after stop() completion does not mean success
      if (std::exchange(one.awaited, true)) return progress::pending;
    }
    changed_.notify_all(); // without the lock, for which the queue's thread would be put to sleep again
    return progress::pending;
  }

  /// Reports that the stream will not reach \p one, or does not wait for it any more. If the job is not done, it counts
  /// as failed. Returns when no thread runs the job.
  void drop(job& one) noexcept {
    {
      const std::lock_guard lock{mutex_};
      if (one.done || stopped_) return;
    }
    // Its peers would wait for it indefinitely, and so would all later jobs.
    if (fail({.code = errc::device_failed, .text = "a launch was dropped by its device"})) cut_();
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return running_.get() != &one; });
  }

  /// Adds a job and waits until it is done. Errors: those of the job; communicator_failed after stop() or after the
  /// failure of another job.
  void run(std::function<void()> work) {
    const auto mine = add(std::move(work));
    std::unique_lock lock{mutex_};
    mine->awaited = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return mine->done || failure_ || stopped_; });
    if (mine->done) return;
    if (failure_) throw exception{*failure_};
    throw exception{errc::communicator_failed, "the communicator was aborted"};
  }

  /// Ends the thread: cuts the running job and starts no other one. When stop() has returned, no job's memory is
  /// touched any more. Idempotent.
  void stop() noexcept {
    bool cuts = false;
    {
      const std::lock_guard lock{mutex_};
      stopping_ = true;
      cuts = running_ != nullptr;
    }
    changed_.notify_all();
    if (cuts) cut_();
    {
      const std::lock_guard joining{joining_};
      if (thread_.joinable()) thread_.join();
      const std::lock_guard lock{mutex_};
      stopped_ = true;
      jobs_.clear();
    }
    changed_.notify_all();
    engine_->wake();
  }

  /// Throws the failure, if there was one.
  void check() const {
    const std::lock_guard lock{mutex_};
    if (failure_) throw exception{*failure_};
  }

private:
  void serve() {
    while (const auto one = next()) {
      error failure;
      try {
        one->work();
      } catch (const exception& thrown) {
        failure = thrown.why();
      } catch (const std::exception& thrown) { // thrown by Gloo
        failure = {.code = errc::communicator_failed,
                   .text = "a peer has ended, or the network failed",
                   .call = "gloo",
                   .native_text = thrown.what()};
      } catch (...) {
        failure = current_error();
      }
      end(*one, std::move(failure));
    }
  }

  /// Waits for the next job that may run. Returns null if no job will run any more.
  [[nodiscard]] std::shared_ptr<job> next() {
    std::unique_lock lock{mutex_};
    const auto ready = [&] { return !jobs_.empty() && jobs_.front()->awaited; };
    changed_.wait(lock, [&] { return stopping_ || failure_ || ready(); });
    if (stopping_ || failure_) return nullptr;
    running_ = std::move(jobs_.front());
    jobs_.pop_front();
    return running_;
  }

  void end(job& one, error failure) noexcept {
    const bool sound = !failure;
    if (!sound && fail(std::move(failure))) cut_(); // peers that wait for this rank then fail too
    {
      const std::lock_guard lock{mutex_};
      running_.reset();
      one.done = sound;
      one.work = nullptr;
    }
    changed_.notify_all();
    engine_->wake();
  }

  /// Records a failure. Returns whether it is the first one, which is the cause of the others.
  [[nodiscard]] bool fail(error why) noexcept {
    {
      const std::lock_guard lock{mutex_};
      if (failure_ || stopping_) return false;
      failure_ = std::move(why);
    }
    changed_.notify_all();
    return true;
  }

  const std::function<void()> cut_;
  const std::shared_ptr<mock_waker> engine_;
  mutable std::mutex mutex_; ///< Protects the members below.
  condition changed_;
  std::deque<std::shared_ptr<job>> jobs_;
  std::shared_ptr<job> running_;
  std::optional<error> failure_;
  bool stopping_ = false;
  bool stopped_ = false; ///< The thread has ended, or was never started.
  worker thread_;
  std::mutex joining_; ///< Locked before mutex_.
};

/// Tag of an exchange that is not a launch. It collides with the tag of a launch no more often than two launches' tags
/// do.
std::uint32_t rendezvous_tag(std::uint64_t ordinal) noexcept {
  return 0xA5000000U + static_cast<std::uint32_t>(ordinal);
}

/// Implements communicator. Launches are tasks of the mock's streams. Their operations run on one thread of this rank,
/// in the order of the launches, also if the launches are in several streams.
/// BUF-1: when abort() has returned, no operation's memory is touched any more.
class gloo_communicator final : public communicator {
public:
  gloo_communicator(std::shared_ptr<gloo_network> network, const gloo_endpoint& endpoint, rank self, int world_size,
                    std::shared_ptr<device> where, mock_driver& driver)
    : gloo_communicator{std::make_shared<shared_state>(std::move(network), self, world_size, driver.waker()),
                        std::move(where), driver} {
    rendezvous_ = {.endpoint = endpoint, .participants = static_cast<std::uint32_t>(world_size), .is_whole = true};
  }

  ~gloo_communicator() override {
    if (life_ == life::formed)
      report_leak({.code = errc::internal, .text = "a communicator was neither destroyed nor aborted", .rank = self()});
    shared_->jobs.stop();
  }

  void init() override {
    driver_.open(where()->id()); // fails if the device has failed
    if (split_off_.parent) rendezvous_ = arrange(std::exchange(split_off_, {}), color_);
    shared_->jobs.start();
    shared_->jobs.run([this] { shared_->among.form(rendezvous_); });
    auto expected = life::fresh;
    if (!life_.compare_exchange_strong(expected, life::formed)) require_formed(); // abort() ran meanwhile
  }

  bool do_launch_together(std::span<const operation* const> all, stream_ref stream, completion_word) override {
    require_formed();
    const mock_launch mine = make_launch(all, self(), world_size());
    driver_.enqueue(where()->id(), stream.native(), mock_task_factory{[with = shared_, mine] {
                      return make_task(with, mine); // each launch of a graph gets numbers of its own
                    }});
    return false;
  }

  void check() override {
    try {
      shared_->jobs.check();
    } catch (const exception& failed) {
      error why = failed.why();
      why.effect = effect::unknown_outcome;
      why.rank = self();
      throw exception{std::move(why)};
    }
    if (life_ == life::ended)
      throw exception{error{.code = errc::communicator_failed, .text = "the communicator was aborted", .rank = self()}};
  }

  void abort() override {
    std::vector<std::weak_ptr<shared_state>> splits;
    const bool was_ended = life_.exchange(life::ended) == life::ended;
    {
      const std::lock_guard lock{splits_guard_};
      splits = splits_;
    }
    for (const auto& one : splits)
      if (const auto forming = one.lock()) forming->among.cut();
    shared_->among.cut();
    shared_->jobs.stop();
    if (!was_ended) shared_->among.leave();
  }

  void destroy() override {
    if (life_.exchange(life::ended) == life::ended) return;
    shared_->jobs.stop();
    shared_->among.leave();
  }

  [[nodiscard]] std::shared_ptr<communicator> split(const split_spec& as) override {
    side_exchange mine = next_side_exchange();
    std::shared_ptr<gloo_communicator> made{new gloo_communicator{
        std::make_shared<shared_state>(mine.parent->among.network(), as.self, as.world_size, driver_.waker()), where(),
        driver_}};
    made->split_off_ = std::move(mine);
    made->color_ = as.color;
    const std::lock_guard lock{splits_guard_};
    std::erase_if(splits_, [](const auto& one) { return one.expired(); });
    splits_.push_back(made->shared_);
    return made;
  }

  void split_none() override {
    constexpr int no_color = -1;
    const gloo_rendezvous at = arrange(next_side_exchange(), no_color);
    shared_->jobs.run([&] { shared_->among.pass(at); });
  }

  [[nodiscard]] std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes) override {
    require_formed();
    return make_pooled_region(where(), size_bytes);
  }

  /// Registers nothing, because sockets read and write any memory. Waits for the other ranks, as a registration of NCCL
  /// does.
  void register_region(registered_region&) override {
    const side_exchange here = next_side_exchange();
    shared_->jobs.run([&] {
      gloo::BarrierOptions all{shared_->among.context()};
      all.setTag(rendezvous_tag(here.ordinal));
      gloo::barrier(all);
    });
  }

private:
  enum class life : std::uint8_t { fresh, formed, ended };

  /// State that the tasks in the streams share with their communicator. Tasks may outlive the communicator.
  struct shared_state {
    shared_state(std::shared_ptr<gloo_network> network, rank me, int size, std::shared_ptr<mock_waker> engine)
      : self{me},
        world_size{size},
        among{std::move(network), me, size},
        jobs{[this] { among.cut(); }, std::move(engine)} {}

    const rank self;
    const int world_size;
    gloo_formation among;
    gloo_job_queue jobs; ///< Declared after the members that its jobs use.
    mock_order order;
  };
  /// One rank's launch, as a task of its stream.
  class launch_task final : public mock_task {
  public:
    launch_task(std::shared_ptr<shared_state> with, std::shared_ptr<gloo_job_queue::job> job) noexcept
      : with_{std::move(with)}, job_{std::move(job)} {}
    // A task that ends early was dropped because its device failed. Its memory must not be touched any more.
    ~launch_task() override { with_->jobs.drop(*job_); }

    progress step() override { return with_->jobs.poll(*job_); }
    /// So the launcher itself wakes the thread of the jobs, without a switch to the thread of the streams.
    [[nodiscard]] bool is_brief() const noexcept override { return true; }

  private:
    std::shared_ptr<shared_state> with_;
    std::shared_ptr<gloo_job_queue::job> job_;
  };
  /// One exchange among a communicator's ranks that is not a launch: a split or a registration.
  struct side_exchange {
    std::shared_ptr<shared_state> parent;
    std::uint64_t ordinal = 0;
  };

  gloo_communicator(std::shared_ptr<shared_state> with, std::shared_ptr<device> where, mock_driver& driver)
    : communicator{with->self, with->world_size, std::move(where)}, driver_{driver}, shared_{std::move(with)} {}

  void require_formed() const {
    switch (life_.load()) {
      case life::formed: return;
      case life::fresh: throw exception{errc::invalid_argument, "launch() or split() before init() has returned"};
      case life::ended:
        throw exception{error{
            .code = errc::communicator_failed, .text = "the communicator was aborted or destroyed", .rank = self()}};
    }
  }

  [[nodiscard]] side_exchange next_side_exchange() {
    require_formed();
    const std::lock_guard lock{splits_guard_};
    return {.parent = shared_, .ordinal = side_exchanges_++};
  }

  /// Makes rank 0 open a formation and broadcasts its address to all ranks.
  [[nodiscard]] static gloo_rendezvous arrange(const side_exchange& one, int color) {
    unique_id id;
    shared_state& with = *one.parent;
    with.jobs.run([&] {
      if (with.self == rank{0}) id = to_unique_id(with.among.network()->stores().open());
      gloo::BroadcastOptions all{with.among.context()};
      all.setOutput(reinterpret_cast<std::uint8_t*>(id.bytes.data()), id.bytes.size());
      all.setRoot(0);
      all.setTag(rendezvous_tag(one.ordinal));
      gloo::broadcast(all);
    });
    return {.endpoint = to_endpoint(id),
            .participants = static_cast<std::uint32_t>(with.world_size),
            .prefix = std::to_string(color) + "/"}; // ranks are numbered anew in each part
  }

  [[nodiscard]] static std::unique_ptr<mock_task> make_task(const std::shared_ptr<shared_state>& with,
                                                            mock_launch mine) {
    with->order.number(mine);
    auto job = with->jobs.add([among = &with->among, mine = std::move(mine)] {
      perform_launch(mine, among->context(), among->largest_through_one());
    });
    return std::make_unique<launch_task>(with, std::move(job));
  }

  mock_driver& driver_; ///< Kept alive by where().
  const std::shared_ptr<shared_state> shared_;
  gloo_rendezvous rendezvous_; ///< Empty before init() of a communicator made by split().
  side_exchange split_off_{};  ///< The parent of a communicator made by split().
  int color_ = 0;
  std::atomic<life> life_{life::fresh};
  std::mutex splits_guard_; ///< Protects the members below.
  std::vector<std::weak_ptr<shared_state>> splits_;
  std::uint64_t side_exchanges_ = 0; ///< Number of splits and registrations so far; the same on all ranks.
};

/// Returns whether Gloo has a feature, and the reason.
feature_finding find_in_gloo(feature what) {
  switch (what) {
    case feature::fp8_reductions: return {what, availability::yes, "troupe's own arithmetic on the host"};
    case feature::buffer_registration:
      return {what, availability::yes, "sockets read and write any host memory: there is nothing to register"};
    case feature::split: return {what, availability::yes, "the ranks of each part connect again"};
    case feature::shrink:
    case feature::revoke:
      return {what, availability::no, "Gloo's connections fail together: forming a new world costs as little"};
    case feature::suspend:
      return {what, availability::no, "Gloo's communicators hold no device memory: there is nothing to release"};
    case feature::multicast:
    case feature::symmetric_windows:
    case feature::copy_engine:
    case feature::device_communicators:
    case feature::gpu_direct_rdma:
    case feature::collnet: break;
  }
  return {what, availability::no, "Gloo works in host memory and over TCP: use NCCL, which needs GPUs"};
}

class gloo_backend final : public backend {
public:
  explicit gloo_backend(gloo_options options) : network_{std::make_shared<gloo_network>(std::move(options))} {}

  [[nodiscard]] std::string_view name() const noexcept override { return "gloo"; }
  [[nodiscard]] std::string version() const override {
    return "Gloo " + std::to_string(GLOO_VERSION_MAJOR) + "." + std::to_string(GLOO_VERSION_MINOR) + "." +
           std::to_string(GLOO_VERSION_PATCH) + " over TCP at " + network_->address();
  }

  [[nodiscard]] capabilities examine(std::span<const std::shared_ptr<device>>) override {
    capabilities found{.backend = std::string{name()}, .version = version(), .features = {}, .exclusions = {}};
    for (const feature one : all_features) {
      found.features.push_back(find_in_gloo(one));
      const feature_finding& what = found.features.back();
      if (what.available != availability::no) continue;
      for (exclusion& each : consequences_of(one, what.why)) found.exclusions.push_back(std::move(each));
    }
    return found;
  }

  [[nodiscard]] unique_id make_unique_id() override { return to_unique_id(network_->stores().open()); }

  [[nodiscard]] std::shared_ptr<communicator> create(const unique_id& id, rank self, int world_size,
                                                     std::shared_ptr<device> where) override {
    if (world_size < 1 || self.value() < 0 || self.value() >= world_size)
      throw exception{errc::invalid_argument, "rank " + to_string(self) + " is not in a world of " +
                                                  std::to_string(world_size) + " (ranks count from 0)"};
    auto* const driver = where ? dynamic_cast<mock_driver*>(&where->api()) : nullptr;
    if (driver == nullptr)
      throw exception{errc::invalid_argument, "Gloo's communicators need a device of the mock driver, not of " +
                                                  (where ? std::string{where->api().name()} : "none")};
    return std::make_shared<gloo_communicator>(network_, to_endpoint(id), self, world_size, std::move(where), *driver);
  }

private:
  const std::shared_ptr<gloo_network> network_;
};

} // namespace

bool has_gloo() noexcept {
  return true;
}

std::shared_ptr<backend> make_gloo_backend(gloo_options options) {
  const gloo_memory memory = options.memory;
  auto made = std::make_shared<gloo_backend>(std::move(options));
  if (memory == gloo_memory::device) return make_host_staged_backend(std::move(made));
  return made;
}

} // namespace troupe
