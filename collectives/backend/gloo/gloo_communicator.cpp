#include <troupe/collectives/backend/gloo/gloo_communicator.hpp>

#include <troupe/collectives/backend/gloo/gloo_collective.hpp>
#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/topology/thread_binding.hpp>

#include <gloo/barrier.h>
#include <gloo/broadcast.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <utility>

namespace troupe {

class gloo_job_queue::job {
public:
  explicit job(std::function<void()> what) : work{std::move(what)} {}

  std::function<void()> work;
  bool awaited = false; ///< The job's stream has reached it.
  bool done = false;
};

gloo_job_queue::gloo_job_queue(std::function<void()> cut, std::shared_ptr<mock_waker> engine)
  : cut_{std::move(cut)}, engine_{std::move(engine)} {}

gloo_job_queue::~gloo_job_queue() {
  stop();
}

void gloo_job_queue::start() {
  const std::lock_guard joining{joining_};
  const std::lock_guard lock{mutex_};
  if (stopping_) throw exception{errc::communicator_failed, "the communicator was aborted"};
  thread_ = worker{[this] {
    name_this_thread("troupe/gloo");
    // Gloo writes to sockets whose peer may have ended. That must be an error of the call; it must not end the process.
    sigset_t broken_pipe;
    ::sigemptyset(&broken_pipe);
    ::sigaddset(&broken_pipe, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &broken_pipe, nullptr);
    serve();
  }};
}

std::shared_ptr<gloo_job_queue::job> gloo_job_queue::add(std::function<void()> work) {
  auto made = std::make_shared<job>(std::move(work));
  const std::lock_guard lock{mutex_};
  jobs_.push_back(made);
  return made;
}

progress gloo_job_queue::meet(job& one) {
  const std::lock_guard lock{mutex_};
  if (one.done || stopped_) return progress::reached; // after stop() completion does not mean success
  if (!one.awaited) {
    one.awaited = true;
    changed_.notify_all();
  }
  return progress::pending;
}

void gloo_job_queue::drop(job& one) noexcept {
  {
    const std::lock_guard lock{mutex_};
    if (one.done || stopped_) return;
  }
  // Its peers would wait for it indefinitely, and so would all later jobs.
  if (fail({.code = errc::device_failed, .text = "a launch was dropped by its device"})) cut_();
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return running_.get() != &one; });
}

void gloo_job_queue::run(std::function<void()> work) {
  const auto mine = add(std::move(work));
  std::unique_lock lock{mutex_};
  mine->awaited = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return mine->done || failure_ || stopped_; });
  if (mine->done) return;
  if (failure_) throw exception{*failure_};
  throw exception{errc::communicator_failed, "the communicator was aborted"};
}

void gloo_job_queue::stop() noexcept {
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

void gloo_job_queue::check() const {
  const std::lock_guard lock{mutex_};
  if (failure_) throw exception{*failure_};
}

/// Waits for the next job that may run. Returns null if no job will run any more.
std::shared_ptr<gloo_job_queue::job> gloo_job_queue::next() {
  std::unique_lock lock{mutex_};
  const auto ready = [&] { return !jobs_.empty() && jobs_.front()->awaited; };
  changed_.wait(lock, [&] { return stopping_ || failure_ || ready(); });
  if (stopping_ || failure_) return nullptr;
  running_ = std::move(jobs_.front());
  jobs_.pop_front();
  return running_;
}

void gloo_job_queue::serve() {
  while (const auto one = next()) {
    error failure;
    try {
      one->work();
    } catch (const exception& thrown) {
      failure = thrown.why();
    } catch (const std::exception& thrown) { // thrown by Gloo
      failure = {.code = errc::communicator_failed,
                 .text = "a peer has ended, or the network failed: form a new world",
                 .call = "gloo",
                 .native_text = thrown.what()};
    } catch (...) {
      failure = current_error();
    }
    end(*one, std::move(failure));
  }
}

void gloo_job_queue::end(job& one, error failure) noexcept {
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
bool gloo_job_queue::fail(error why) noexcept {
  {
    const std::lock_guard lock{mutex_};
    if (failure_ || stopping_) return false;
    failure_ = std::move(why);
  }
  changed_.notify_all();
  return true;
}

namespace {

/// Tag of an exchange that is not a launch. It collides with the tag of a launch no more often than two launches' tags
/// do.
std::uint32_t rendezvous_tag(std::uint64_t ordinal) noexcept {
  return 0xA5000000U + static_cast<std::uint32_t>(ordinal);
}

} // namespace

/// One rank's launch, as a task of its stream.
class gloo_communicator::launch_task final : public mock_task {
public:
  launch_task(std::shared_ptr<shared_state> with, std::shared_ptr<gloo_job_queue::job> job) noexcept
    : with_{std::move(with)}, job_{std::move(job)} {}
  // A task that ends early was dropped because its device failed. Its memory must not be touched any more.
  ~launch_task() override { with_->jobs.drop(*job_); }

  progress step() override { return with_->jobs.meet(*job_); }

private:
  std::shared_ptr<shared_state> with_;
  std::shared_ptr<gloo_job_queue::job> job_;
};

gloo_communicator::shared_state::shared_state(std::shared_ptr<gloo_network> network, rank me, int size,
                                              std::shared_ptr<mock_waker> engine)
  : self{me}, world_size{size}, among{std::move(network), me, size}, jobs{[this] { among.cut(); }, std::move(engine)} {}

gloo_communicator::gloo_communicator(std::shared_ptr<shared_state> with, std::shared_ptr<device> where,
                                     mock_driver& driver)
  : communicator{with->self, with->world_size, std::move(where)}, driver_{driver}, shared_{std::move(with)} {}

gloo_communicator::gloo_communicator(std::shared_ptr<gloo_network> network, const gloo_endpoint& endpoint, rank self,
                                     int world_size, std::shared_ptr<device> where, mock_driver& driver)
  : gloo_communicator{std::make_shared<shared_state>(std::move(network), self, world_size, driver.waker()),
                      std::move(where), driver} {
  rendezvous_ = {.endpoint = endpoint, .participants = static_cast<std::uint32_t>(world_size), .is_whole = true};
}

gloo_communicator::~gloo_communicator() {
  if (life_ == life::formed)
    report_leak({.code = errc::internal, .text = "a communicator was neither destroyed nor aborted", .rank = self()});
  shared_->jobs.stop();
}

void gloo_communicator::init() {
  driver_.open(where()->id()); // fails if the device has failed
  if (split_off_.parent) rendezvous_ = arrange(std::exchange(split_off_, {}), color_);
  shared_->jobs.start();
  shared_->jobs.run([this] { shared_->among.form(rendezvous_); });
  auto expected = life::fresh;
  if (!life_.compare_exchange_strong(expected, life::formed)) require_formed(); // abort() ran meanwhile
}

void gloo_communicator::launch_together(std::span<const operation* const> all, stream_ref stream) {
  require_formed();
  const mock_launch mine = make_launch(all, self(), world_size());
  driver_.enqueue(where()->id(), stream.native(), mock_task_factory{[with = shared_, mine] {
                    return make_task(with, mine); // each launch of a graph gets numbers of its own
                  }});
}

std::unique_ptr<mock_task> gloo_communicator::make_task(const std::shared_ptr<shared_state>& with, mock_launch mine) {
  with->order.number(mine);
  auto job = with->jobs.add([among = &with->among, mine = std::move(mine)] { perform_launch(mine, among->context()); });
  return std::make_unique<launch_task>(with, std::move(job));
}

void gloo_communicator::check() {
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

void gloo_communicator::abort() {
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

void gloo_communicator::destroy() {
  if (life_.exchange(life::ended) == life::ended) return;
  shared_->jobs.stop();
  shared_->among.leave();
}

std::shared_ptr<communicator> gloo_communicator::split(const split_spec& as) {
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

void gloo_communicator::split_none() {
  constexpr int no_color = -1;
  const gloo_rendezvous at = arrange(next_side_exchange(), no_color);
  shared_->jobs.run([&] { shared_->among.pass(at); });
}

std::shared_ptr<registered_region> gloo_communicator::allocate_region(std::size_t size_bytes) {
  require_formed();
  return make_pooled_region(where(), size_bytes);
}

void gloo_communicator::register_region(registered_region&) {
  const side_exchange here = next_side_exchange();
  shared_->jobs.run([&] {
    gloo::BarrierOptions all{shared_->among.context()};
    all.setTag(rendezvous_tag(here.ordinal));
    gloo::barrier(all);
  });
}

gloo_communicator::side_exchange gloo_communicator::next_side_exchange() {
  require_formed();
  const std::lock_guard lock{splits_guard_};
  return {.parent = shared_, .ordinal = side_exchanges_++};
}

/// Makes rank 0 open a formation and broadcasts its address to all ranks.
gloo_rendezvous gloo_communicator::arrange(const side_exchange& one, int color) {
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

void gloo_communicator::require_formed() const {
  switch (life_.load()) {
    case life::formed: return;
    case life::fresh: throw exception{errc::invalid_argument, "launch() or split() before init() has returned"};
    case life::ended:
      throw exception{error{
          .code = errc::communicator_failed, .text = "the communicator was aborted or destroyed", .rank = self()}};
  }
}

} // namespace troupe
