#include <troupe/collectives/rank_pipeline.hpp>

#include <array>
#include <utility>

namespace troupe {

namespace {

/// The ready events an operation waits for; null where it waits for nothing.
std::array<const event*, 2> ready_events(const operation& what) {
  if (const auto* reduce = std::get_if<all_reduce>(&what)) return {reduce->send.ready.get(), reduce->recv.ready.get()};
  if (const auto* move = std::get_if<copy>(&what)) return {move->from.ready.get(), move->to.ready.get()};
  return {};
}

} // namespace

/// An accepted request: holds descriptors, buffers and events until the outcome (BUF-1).
class rank_pipeline::call final : public in_flight {
public:
  call(ticket name, epoch formed_in, time_point deadline, answer reply, operation what) noexcept
    : in_flight{name, formed_in, deadline, std::move(reply)}, what_{std::move(what)} {}

  [[nodiscard]] const operation& what() const noexcept { return what_; }

  [[nodiscard]] bool inputs_ready() const override {
    for (const event* one : ready_events(what_))
      if (one != nullptr && !one->reached()) return false;
    return true;
  }

private:
  operation what_;
};

std::shared_ptr<rank_pipeline> rank_pipeline::create(pipeline_services services, std::shared_ptr<communicator> peers,
                                                     std::shared_ptr<launcher> hand, epoch formed_in,
                                                     std::function<void(error)> on_fault) {
  auto made = std::make_shared<rank_pipeline>(std::move(services), std::move(peers), std::move(hand), formed_in,
                                              std::move(on_fault));
  const pipeline_services& shared = made->services_;
  // The poller must not keep a pipeline alive, so its hooks know it weakly.
  track_hooks hooks{
      .probe = [weak = made->weak_from_this()] { const auto alive = weak.lock(); return alive ? alive->probe() : error{}; },
      .on_fault = [weak = made->weak_from_this()](error why) {
        if (const auto alive = weak.lock()) alive->report(std::move(why));
      }};
  made->track_ = std::make_shared<track>(made->self(),
                                         make_completion_source(shared.strategy, made->where(), shared.slots),
                                         made->mark_, shared.limits, std::move(hooks));
  return made;
}

rank_pipeline::rank_pipeline(pipeline_services services, std::shared_ptr<communicator> peers,
                             std::shared_ptr<launcher> hand, epoch formed_in, std::function<void(error)> on_fault)
  : services_{std::move(services)}, peers_{std::move(peers)}, launcher_{std::move(hand)}, epoch_{formed_in},
    mark_{std::make_shared<fault_mark>()}, on_fault_{std::move(on_fault)} {}

rank_pipeline::~rank_pipeline() {
  services_.poller->detach(*track_);
}

void rank_pipeline::init() {
  where()->api().enter_thread(where()->id());
  stream_ = std::make_shared<stream>(where());
  peers_->init();
  services_.poller->attach(track_);
  launcher_->watch(weak_from_this());
}

void rank_pipeline::submit(ticket name, operation what, nanoseconds deadline, answer reply) {
  const time_point now = services_.time->now();
  auto accepted = std::make_shared<call>(name, epoch_, now + deadline, std::move(reply), std::move(what));
  accepted->accepted_at(now);
  track_->push(accepted);
  launcher_->post([self = shared_from_this(), accepted = std::move(accepted)] { self->launch(*accepted); });
  services_.poller->notify();
}

void rank_pipeline::launch(call& one) {
  if (mark_->failed() || !one.begin_launch(services_.time->now())) return;
  try {
    for (const event* ready : ready_events(one.what()))
      if (ready != nullptr) stream_->ref().wait(*ready);
    if (const auto* move = std::get_if<copy>(&one.what()))
      stream_->ref().copy(move->to.memory.data(), move->from.memory.data(), move->from.memory.size_bytes());
    else
      peers_->launch(one.what(), *stream_);
    track_->source().arm(*stream_, ++sequence_);
    one.end_launch(sequence_, services_.time->now());
  } catch (...) {
    // Peers may have launched theirs, so this rank can no longer keep step: the communicator has failed.
    error why = current_error();
    why.rank = self();
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
  where()->api().enter_thread(where()->id());
  peers_->abort();
  // Nothing may be released while the device can still touch it; a device in error touches nothing any more.
  try {
    if (stream_) stream_->ref().synchronize();
  } catch (const exception&) { // The fault that led here has been reported.
  }
  let_stream_go();
  track_->release_quarantine();
  services_.poller->notify();
}

void rank_pipeline::close() {
  where()->api().enter_thread(where()->id());
  stream_->ref().synchronize();
  track_->source().drained();
  let_stream_go();
  peers_->destroy();
}

void rank_pipeline::let_stream_go() {
  launcher_->post([self = shared_from_this()] {
    const std::lock_guard lock{self->guard_};
    self->stream_ = nullptr;
  });
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
  std::function<void(error)> hook;
  {
    const std::lock_guard lock{guard_};
    hook = std::exchange(on_fault_, nullptr);
  }
  if (hook) hook(std::move(why));
}

} // namespace troupe
