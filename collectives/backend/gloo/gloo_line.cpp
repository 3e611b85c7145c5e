#include <troupe/collectives/backend/gloo/gloo_line.hpp>
#include <troupe/device/topology/thread_binding.hpp>

#include <algorithm>
#include <csignal>
#include <utility>

namespace troupe {

class gloo_line::job {
public:
  explicit job(std::function<void()> what) : work{std::move(what)} {}

  std::function<void()> work;
  bool awaited = false; ///< Its stream has reached it.
  bool done = false;
};

gloo_line::gloo_line(std::function<void()> cut, std::shared_ptr<mock_waker> engine)
  : cut_{std::move(cut)}, engine_{std::move(engine)} {}

gloo_line::~gloo_line() {
  stop();
}

void gloo_line::start() {
  const std::lock_guard joining{joining_};
  const std::lock_guard lock{guard_};
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

std::shared_ptr<gloo_line::job> gloo_line::add(std::function<void()> work) {
  auto made = std::make_shared<job>(std::move(work));
  const std::lock_guard lock{guard_};
  jobs_.push_back(made);
  return made;
}

progress gloo_line::meet(job& one) {
  const std::lock_guard lock{guard_};
  if (one.done || stopped_) return progress::reached; // after stop(): completion is not success
  if (!one.awaited) {
    one.awaited = true;
    changed_.notify_all();
  }
  return progress::pending;
}

void gloo_line::drop(job& one) noexcept {
  {
    const std::lock_guard lock{guard_};
    if (one.done || stopped_) return;
  }
  // Its peers would wait for it indefinitely, and so would all later jobs.
  if (fail({.code = errc::device_failed, .text = "a launch was dropped by its device"})) cut_();
  std::unique_lock lock{guard_};
  changed_.wait(lock, [&] { return running_.get() != &one; });
}

void gloo_line::run(std::function<void()> work) {
  const auto mine = add(std::move(work));
  std::unique_lock lock{guard_};
  mine->awaited = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return mine->done || failure_ || stopped_; });
  if (mine->done) return;
  if (failure_) throw exception{*failure_};
  throw exception{errc::communicator_failed, "the communicator was aborted"};
}

void gloo_line::stop() noexcept {
  bool cuts = false;
  {
    const std::lock_guard lock{guard_};
    stopping_ = true;
    cuts = running_ != nullptr;
  }
  changed_.notify_all();
  if (cuts) cut_();
  {
    const std::lock_guard joining{joining_};
    if (thread_.joinable()) thread_.join();
    const std::lock_guard lock{guard_};
    stopped_ = true;
    jobs_.clear();
  }
  changed_.notify_all();
  engine_->wake();
}

void gloo_line::check() const {
  const std::lock_guard lock{guard_};
  if (failure_) throw exception{*failure_};
}

/// Waits for the next job that may run. Returns null if no job will run any more.
std::shared_ptr<gloo_line::job> gloo_line::next() {
  std::unique_lock lock{guard_};
  const auto ready = [&] { return !jobs_.empty() && jobs_.front()->awaited; };
  changed_.wait(lock, [&] { return stopping_ || failure_ || ready(); });
  if (stopping_ || failure_) return nullptr;
  running_ = std::move(jobs_.front());
  jobs_.pop_front();
  return running_;
}

void gloo_line::serve() {
  while (const auto one = next()) {
    error failure;
    try {
      one->work();
    } catch (const exception& thrown) {
      failure = thrown.why();
    } catch (const std::exception& thrown) { // from Gloo
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

void gloo_line::end(job& one, error failure) noexcept {
  const bool sound = !failure;
  if (!sound && fail(std::move(failure))) cut_(); // lets the peers that wait for this rank fail too
  {
    const std::lock_guard lock{guard_};
    running_.reset();
    one.done = sound;
    one.work = nullptr;
  }
  changed_.notify_all();
  engine_->wake();
}

/// Records a failure. Returns whether it is the first one, which is the cause of the others.
bool gloo_line::fail(error why) noexcept {
  {
    const std::lock_guard lock{guard_};
    if (failure_ || stopping_) return false;
    failure_ = std::move(why);
  }
  changed_.notify_all();
  return true;
}

} // namespace troupe
