#include <troupe/collectives/pipeline/pipeline_call.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/completion/poller/latch.hpp>

#include <utility>

namespace troupe {

namespace {

/// How long close() waits for the poller to see what the device has finished.
constexpr nanoseconds time_to_answer{std::chrono::milliseconds{100}};

} // namespace

std::shared_ptr<rank_pipeline> rank_pipeline::create(pipeline_services services, std::shared_ptr<communicator> peers,
                                                     std::weak_ptr<launcher> hand, epoch formed_in,
                                                     std::function<void(error)> on_fault) {
  auto made = std::make_shared<rank_pipeline>(std::move(services), std::move(peers), std::move(hand), formed_in,
                                              std::move(on_fault));
  const pipeline_services& shared = made->services_;
  // The poller must not keep a pipeline alive, so its hooks hold weak pointers.
  track_hooks hooks{.probe =
                        [weak = made->weak_from_this()] {
                          const auto alive = weak.lock();
                          return alive ? alive->probe() : error{};
                        },
                    .on_fault =
                        [weak = made->weak_from_this()](error why) {
                          if (const auto alive = weak.lock()) alive->report(std::move(why));
                        },
                    .on_late =
                        [weak = made->weak_from_this()](error why) {
                          if (const auto alive = weak.lock(); alive && alive->late_) alive->late_(std::move(why));
                        },
                    .holds = made->progress_};
  made->track_ =
      std::make_shared<track>(made->self(), make_completion_source(shared.strategy, made->where(), shared.slots),
                              made->mark_, shared.limits, std::move(hooks));
  return made;
}

rank_pipeline::rank_pipeline(pipeline_services services, std::shared_ptr<communicator> peers,
                             std::weak_ptr<launcher> hand, epoch formed_in, std::function<void(error)> on_fault)
  : services_{std::move(services)},
    peers_{std::move(peers)},
    launcher_{std::move(hand)},
    epoch_{formed_in},
    mark_{std::make_shared<fault_mark>()},
    on_fault_{std::move(on_fault)} {
  if (!services_.staging) services_.staging = std::make_shared<staging_stock>();
}

rank_pipeline::~rank_pipeline() {
  if (!track_) return; // create() found no completion slot
  // Answers requests that the poller has not failed yet, because an abort may have been faster than its check. If the
  // abort failed or there was none, no other code ends them.
  static_cast<void>(mark_->set(
      {.code = errc::abandoned, .text = "the rank was let go of before the request had an outcome", .rank = self()}));
  track_->release_quarantine();
  services_.poller->let_go(*track_);
}

void rank_pipeline::belongs_to(std::uint64_t world) {
  world_ = world;
  if (services_.hangs) track_->shares_device(services_.hangs, services_.hangs->join({world, epoch_}, where()->id()));
  if (!services_.recorder) return;
  progress_->line = services_.recorder->line_of({world, self(), world_size(), where()->id()});
  if (progress_->line) progress_->line->follow(progress_);
}

void rank_pipeline::init() {
  prepare_device();
  try {
    peers_->init();
  } catch (const exception& failure) {
    throw exception{judged(failure.why())};
  }
  begin();
}

void rank_pipeline::init_formed() {
  prepare_device();
  begin();
}

void rank_pipeline::prepare_device() {
  where()->api().enter_thread(where()->id());
  {
    auto made = std::make_shared<stream>(where());
    auto staging = std::make_shared<host_staging>(where(), services_.staging);
    const std::lock_guard lock{guard_};
    stream_ = std::move(made);
    staging_ = std::move(staging);
    events_ = std::make_shared<event_stock>(where());
  }
  track_->source().prepare(where());
}

void rank_pipeline::begin() {
  services_.poller->attach(track_);
  if (const auto hand = launcher_.lock()) hand->watch(weak_from_this());
}

void rank_pipeline::settle() {
  where()->api().enter_thread(where()->id());
  const auto line = ask_launcher([this] { return stream_; });
  if (line) line->ref().synchronize();
  if (failed()) throw exception{mark_->why()};
}

bool rank_pipeline::post(std::function<void()> work) {
  const auto hand = launcher_.lock();
  if (hand) hand->post(std::move(work));
  return hand != nullptr;
}

bool rank_pipeline::fail(error why) {
  const bool first = mark_->set(std::move(why));
  services_.poller->notify();
  return first;
}

pipeline_progress rank_pipeline::progress() const {
  const auto launching = launching_since_.load(std::memory_order_acquire);
  pipeline_progress seen = progress_->read(track_->running_since());
  if (launching != 0) seen.launching_since = time_point{nanoseconds{launching}};
  return seen;
}

bool rank_pipeline::drain(nanoseconds at_most) {
  return track_->wait_idle(at_most);
}

void rank_pipeline::abort() {
  fail(error{.code = errc::communicator_failed, .text = "the communicator was aborted", .rank = self()});
  where()->api().enter_thread(where()->id());
  graphs_->close(); // the communicator cannot end before them
  peers_->abort();
  // No buffer may be released while the device can still access it. A failed device accesses nothing any more.
  try {
    if (const auto last = take_stream()) last->ref().synchronize();
    track_->source().drained();
  } catch (const exception&) { // the fault that led here was reported
  }
  end_staging();
  release_buffers();
}

void rank_pipeline::close() {
  where()->api().enter_thread(where()->id());
  try {
    if (const auto last = take_stream()) last->ref().synchronize();
  } catch (...) {
    fail(current_error());
    graphs_->close();
    peers_->abort();
    end_staging();
    release_buffers();
    throw;
  }
  end_staging();
  track_->source().drained();
  // All launched requests are done by now and get their answers. Only requests that came too late to be launched are
  // rejected.
  static_cast<void>(drain(time_to_answer));
  fail(error{.code = errc::stopping, .text = "the rank's communicator has been closed", .rank = self()});
  release_buffers();
  graphs_->close();
  peers_->destroy();
}

std::shared_ptr<stream> rank_pipeline::take_stream() {
  return ask_launcher([this] { return std::exchange(stream_, nullptr); });
}

std::shared_ptr<stream> rank_pipeline::ask_launcher(std::function<std::shared_ptr<stream>()> question) {
  struct reply {
    latch given;
    std::shared_ptr<stream> line;
  };
  const auto answer = std::make_shared<reply>();
  const auto ask = [self = shared_from_this(), question = std::move(question), answer] {
    {
      const std::lock_guard lock{self->guard_};
      answer->line = question();
    }
    answer->given.open();
  };
  if (!post(ask)) ask();
  answer->given.wait();
  return std::move(answer->line);
}

void rank_pipeline::end_staging() {
  std::shared_ptr<host_staging> ended;
  {
    const std::lock_guard lock{guard_};
    ended = std::exchange(staging_, nullptr);
  }
  if (!ended) return;
  ended->synchronize();
  ended->close();
}

void rank_pipeline::release_buffers() {
  {
    const std::lock_guard lock{submit_guard_};
    waiting_.clear(); // the track answers them
  }
  track_->release_quarantine();
  services_.poller->notify();
}

void rank_pipeline::check() noexcept {
  if (failed()) return;
  try {
    peers_->check();
  } catch (...) {
    const std::lock_guard lock{guard_};
    found_ = current_error();
  }
}

error rank_pipeline::probe() {
  std::shared_ptr<stream> watched;
  {
    const std::lock_guard lock{guard_};
    watched = stream_;
  }
  try {
    if (watched) static_cast<void>(watched->ref().idle());
  } catch (...) {
    return current_error();
  }
  const std::lock_guard lock{guard_};
  return found_;
}

error rank_pipeline::judged(error why) {
  if (why.code != errc::device_failed) return why;
  error now = probe();
  if (now.code != errc::process_poisoned) return why;
  now.effect = why.effect;
  now.rank = self();
  return now;
}

void rank_pipeline::report(error why) {
  why = judged(std::move(why));
  // If the mark was set before, its setter knows of the fault. A failure caused by an abort is not reported.
  if (!fail(why)) return;
  std::function<void(error)> hook;
  {
    const std::lock_guard lock{guard_};
    hook = std::exchange(on_fault_, nullptr);
  }
  if (hook) hook(std::move(why));
}

} // namespace troupe
