#include <troupe/collectives/extents.hpp>
#include <troupe/collectives/rank_pipeline.hpp>

#include <algorithm>
#include <future>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// How long close() lets the poller see what the device has finished.
constexpr nanoseconds time_to_answer{std::chrono::milliseconds{100}};

/// The ready events an operation waits for.
std::vector<const event*> ready_events(const operation& what) {
  std::vector<const event*> found;
  visit_operands(what, [&](const operand& one, std::string_view) {
    if (one.ready) found.push_back(one.ready.get());
  });
  return found;
}

} // namespace

/// An accepted request: holds descriptors, buffers and events until the outcome (BUF-1).
class rank_pipeline::call final : public in_flight {
public:
  call(ticket name, epoch formed_in, time_point deadline, answer reply, operation what)
    : in_flight{name, formed_in, deadline, std::move(reply)},
      what_{std::move(what)},
      ready_{ready_events(what_)},
      is_staged_{staging_of(what_) != staging::none} {}

  [[nodiscard]] const operation& what() const noexcept { return what_; }
  [[nodiscard]] const std::vector<const event*>& ready() const noexcept { return ready_; }
  [[nodiscard]] bool is_staged() const noexcept { return is_staged_; }
  [[nodiscard]] staging_hold& staged() noexcept { return staged_; }

  [[nodiscard]] bool inputs_ready() const override {
    return std::ranges::all_of(ready_, [](const event* one) { return one->reached(); });
  }

private:
  operation what_;
  std::vector<const event*> ready_; ///< Held by what_.
  bool is_staged_;
  staging_hold staged_;
};

std::shared_ptr<rank_pipeline> rank_pipeline::create(pipeline_services services, std::shared_ptr<communicator> peers,
                                                     std::weak_ptr<launcher> hand, epoch formed_in,
                                                     std::function<void(error)> on_fault) {
  auto made = std::make_shared<rank_pipeline>(std::move(services), std::move(peers), std::move(hand), formed_in,
                                              std::move(on_fault));
  const pipeline_services& shared = made->services_;
  // The poller must not keep a pipeline alive, so its hooks know it weakly.
  track_hooks hooks{.probe =
                        [weak = made->weak_from_this()] {
                          const auto alive = weak.lock();
                          return alive ? alive->probe() : error{};
                        },
                    .on_fault =
                        [weak = made->weak_from_this()](error why) {
                          if (const auto alive = weak.lock()) alive->report(std::move(why));
                        }};
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
  if (track_) services_.poller->detach(*track_); // none where create() found no completion slot
}

void rank_pipeline::init() {
  prepare();
  peers_->init();
  begin();
}

void rank_pipeline::init_formed() {
  prepare();
  begin();
}

void rank_pipeline::prepare() {
  where()->api().enter_thread(where()->id());
  {
    auto made = std::make_shared<stream>(where());
    auto staging = std::make_shared<host_staging>(where(), services_.staging);
    const std::lock_guard lock{guard_};
    stream_ = std::move(made);
    staging_ = std::move(staging);
  }
  track_->source().prepare(where());
}

void rank_pipeline::begin() {
  services_.poller->attach(track_);
  if (const auto hand = launcher_.lock()) hand->watch(weak_from_this());
}

void rank_pipeline::submit(ticket name, operation what, nanoseconds deadline, answer reply) {
  const time_point now = services_.time->now();
  auto accepted = std::make_shared<call>(name, epoch_, later(now, deadline), std::move(reply), std::move(what));
  accepted->accepted_at(now);
  {
    const std::lock_guard lock{submit_guard_};
    track_->push(accepted);
    if (held_)
      waiting_.push_back(std::move(accepted));
    else
      enqueue(accepted);
  }
  services_.poller->notify();
}

void rank_pipeline::enqueue(const std::shared_ptr<call>& accepted) {
  if (!post([self = shared_from_this(), accepted] { self->launch(*accepted); }))
    accepted->refuse(error{.code = errc::stopping, .text = "the runtime has ended", .rank = self()});
}

void rank_pipeline::hold() {
  const std::lock_guard lock{submit_guard_};
  held_ = true;
}

void rank_pipeline::settle() {
  where()->api().enter_thread(where()->id());
  const auto launched = std::make_shared<std::promise<std::shared_ptr<stream>>>();
  const auto look = [self = shared_from_this(), launched] {
    const std::lock_guard lock{self->guard_};
    launched->set_value(self->stream_);
  };
  if (!post(look)) look();
  if (const auto line = launched->get_future().get()) line->ref().synchronize();
  if (failed()) throw exception{mark_->why()};
}

void rank_pipeline::resume() {
  {
    const std::lock_guard lock{submit_guard_};
    held_ = false;
    for (const auto& one : waiting_) enqueue(one);
    waiting_.clear();
  }
  services_.poller->notify();
}

bool rank_pipeline::post(launcher::job work) {
  const auto hand = launcher_.lock();
  if (hand) hand->post(std::move(work));
  return hand != nullptr;
}

void rank_pipeline::launch(call& one) {
  if (mark_->failed() || !stream_ || !one.begin_launch(services_.time->now())) return;
  try {
    for (const event* ready : one.ready()) stream_->ref().wait(*ready);
    if (one.is_staged())
      staging_->launch(one.what(), *peers_, *stream_, one.staged());
    else if (const auto* move = std::get_if<copy>(&one.what()))
      stream_->ref().copy(move->to.memory.data(), move->from.memory.data(), move->from.memory.size_bytes());
    else
      peers_->launch(one.what(), *stream_);
    track_->source().arm(*stream_, ++sequence_);
    one.end_launch(sequence_, services_.time->now());
  } catch (...) {
    // Peers may have launched theirs, so this rank can no longer keep step: the communicator has failed.
    // Where an abort is what made the call fail, the reason for the abort is the one to tell.
    error why = failed() ? mark_->why() : current_error();
    if (!why.rank) why.rank = self();
    one.refuse(with_unknown_outcome(why));
    report(std::move(why));
  }
}

bool rank_pipeline::fail(error why) {
  const bool first = mark_->set(std::move(why));
  services_.poller->notify();
  return first;
}

bool rank_pipeline::drain(nanoseconds at_most) {
  return track_->wait_idle(at_most);
}

void rank_pipeline::abort() {
  fail(error{.code = errc::communicator_failed, .text = "the communicator was aborted", .rank = self()});
  where()->api().enter_thread(where()->id());
  peers_->abort();
  // Nothing may be released while the device can still touch it; a device in error touches nothing any more.
  try {
    if (const auto last = take_stream()) last->ref().synchronize();
    track_->source().drained();
  } catch (const exception&) { // The fault that led here has been reported.
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
    peers_->abort();
    end_staging();
    release_buffers();
    throw;
  }
  end_staging();
  track_->source().drained();
  // Whatever was launched is done by now and gets its answer; only what came too late to be launched is rejected.
  static_cast<void>(drain(time_to_answer));
  fail(error{.code = errc::stopping, .text = "the rank's communicator has been closed", .rank = self()});
  release_buffers();
  peers_->destroy();
}

std::shared_ptr<stream> rank_pipeline::take_stream() {
  const auto taken = std::make_shared<std::promise<std::shared_ptr<stream>>>();
  const auto take = [self = shared_from_this(), taken] {
    const std::lock_guard lock{self->guard_};
    taken->set_value(std::exchange(self->stream_, nullptr));
  };
  if (!post(take)) take();
  return taken->get_future().get();
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
    waiting_.clear(); // the track has the answers to give
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

void rank_pipeline::report(error why) {
  // Whoever set the mark before knows already; what an abort makes fail is no news.
  if (!fail(why)) return;
  std::function<void(error)> hook;
  {
    const std::lock_guard lock{guard_};
    hook = std::exchange(on_fault_, nullptr);
  }
  if (hook) hook(std::move(why));
}

} // namespace troupe
