#include <troupe/collectives/pipeline/rank_pipeline.hpp>

#include <troupe/collectives/backend/launch_parts.hpp>
#include <troupe/collectives/backend/one_shot/kernel_order.hpp>
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/pipeline/fusion_composer.hpp>
#include <troupe/collectives/pipeline/pipeline_call.hpp>
#include <troupe/completion/poller/latch.hpp>
#include <troupe/completion/sources/recycling.hpp>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

namespace troupe {

namespace {

/// Longest time that close() waits for the poller to answer finished requests.
constexpr nanoseconds time_to_answer{std::chrono::milliseconds{100}};

} // namespace

std::shared_ptr<rank_pipeline> rank_pipeline::create(pipeline_services services, std::shared_ptr<communicator> peers,
                                                     std::weak_ptr<launcher> launch_thread, epoch formed_in,
                                                     std::function<void(error)> on_fault) {
  auto made = std::make_shared<rank_pipeline>(std::move(services), std::move(peers), std::move(launch_thread),
                                              formed_in, std::move(on_fault));
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
                          if (const auto alive = weak.lock(); alive && alive->hooks_.late)
                            alive->hooks_.late(std::move(why));
                        },
                    .holds = made->progress_};
  made->track_ = std::make_shared<track>(made->self(),
                                         make_completion_source(shared.strategy, made->where(), shared.slots,
                                                                [bell = shared.poller->bell()] { bell->ring(); }),
                                         made->mark_, shared.limits, std::move(hooks));
  made->track_->serves_under(shared.lease, formed_in);
  return made;
}

rank_pipeline::rank_pipeline(pipeline_services services, std::shared_ptr<communicator> peers,
                             std::weak_ptr<launcher> launch_thread, epoch formed_in,
                             std::function<void(error)> on_fault)
  : services_{std::move(services)},
    peers_{std::move(peers)},
    launcher_{std::move(launch_thread)},
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
      {.code = errc::abandoned, .text = "the rank was released before the request had an outcome", .rank = self()}));
  late_answers_.fail(mark_->why());
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
  const auto line = prepare_device();
  try {
    peers_->init();
    if (failed()) throw exception{mark_->why()}; // an abort, which may have taken the stream, did not end that call
    peers_->warm_up(line->ref());
  } catch (const exception& failure) {
    throw exception{judged(failure.why())};
  }
  begin();
}

void rank_pipeline::init_formed() {
  const auto line = prepare_device();
  try {
    peers_->prepare_kernels(line->ref());
  } catch (const exception& failure) {
    throw exception{judged(failure.why())};
  }
  begin();
}

std::shared_ptr<stream> rank_pipeline::prepare_device() {
  where()->api().enter_thread(where()->id());
  const std::shared_ptr<stream> made{new stream{where()}, [](const stream* gone) {
                                       kernel_order::forget(*gone);
                                       delete gone;
                                     }};
  {
    auto staging = std::make_shared<host_staging>(where(), services_.staging);
    auto events = std::make_shared<event_pool>(where());
    const std::lock_guard lock{mutex_};
    if (failed()) throw exception{mark_->why()}; // an abort may have been here, and takes nothing that comes later
    stream_ = made;
    staging_ = std::move(staging);
    events_ = std::move(events);
  }
  track_->source().prepare(where());
  return made;
}

void rank_pipeline::begin() {
  services_.poller->attach(track_);
  if (const auto launch_thread = launcher_.lock()) launch_thread->watch(weak_from_this());
}

void rank_pipeline::settle() {
  where()->api().enter_thread(where()->id());
  const auto line = ask_launcher([this] { return stream_; });
  if (line) line->ref().synchronize();
  if (failed()) throw exception{mark_->why()};
}

bool rank_pipeline::post(std::function<void()> work) {
  const auto launch_thread = launcher_.lock();
  if (launch_thread) launch_thread->post(std::move(work));
  return launch_thread != nullptr;
}

bool rank_pipeline::fail(error why) {
  const bool first = mark_->set(std::move(why));
  if (first) peers_->interrupt();
  services_.poller->notify();
  late_answers_.fail(mark_->why());
  return first;
}

pipeline_progress rank_pipeline::progress() const {
  const auto launching = backlog_.launching_since();
  pipeline_progress seen = progress_->read(track_->running_since());
  if (launching) seen.launching_since = launching;
  return seen;
}

bool rank_pipeline::drain(nanoseconds at_most) {
  return track_->wait_idle(at_most);
}

void rank_pipeline::abort() {
  fail(error{.code = errc::communicator_failed, .text = "the communicator was aborted", .rank = self()});
  try {
    where()->api().enter_thread(where()->id());
  } catch (const exception&) { // the device has failed; everything below must end nevertheless
  }
  graphs_->close(); // the communicator must not end before its graphs
  peers_->abort();
  // No buffer may be released while the device can still access it. A failed device accesses nothing any more.
  bool has_ended = false; // else another thread may be waiting for the stream
  try {
    const auto last = take_stream();
    has_ended = last != nullptr;
    if (last) last->ref().synchronize();
    track_->source().drained();
  } catch (const exception&) { // the fault that led here was reported
  }
  if (has_ended) peers_->drained();
  end_staging();
  release_buffers();
}

void rank_pipeline::close() {
  bool has_ended = false; // its work, or its device
  try {
    where()->api().enter_thread(where()->id());
    const auto last = take_stream();
    has_ended = last != nullptr;
    if (last) last->ref().synchronize();
  } catch (...) {
    fail(current_error());
    graphs_->close();
    peers_->abort();
    if (has_ended) peers_->drained();
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
  if (has_ended) peers_->drained();
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
      const std::lock_guard lock{self->mutex_};
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
    const std::lock_guard lock{mutex_};
    ended = std::exchange(staging_, nullptr);
  }
  if (!ended) return;
  ended->synchronize();
  ended->close();
}

void rank_pipeline::release_buffers() {
  {
    decltype(held_) released; // destroyed without the lock; the track answers the requests
    const std::lock_guard lock{submit_guard_};
    released.swap(held_);
  }
  track_->release_quarantine();
  services_.poller->notify();
}

void rank_pipeline::check() noexcept {
  if (failed()) return;
  try {
    peers_->check();
  } catch (...) {
    const std::lock_guard lock{mutex_};
    found_ = current_error();
  }
}

error rank_pipeline::probe() {
  std::shared_ptr<stream> watched;
  {
    const std::lock_guard lock{mutex_};
    watched = stream_;
  }
  try {
    if (watched) static_cast<void>(watched->ref().idle());
  } catch (...) {
    return current_error();
  }
  const std::lock_guard lock{mutex_};
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
    const std::lock_guard lock{mutex_};
    hook = std::exchange(on_fault_, nullptr);
  }
  if (hook) hook(std::move(why));
}

/// Several requests that one call launches.
class rank_pipeline::fused_calls final : public pipeline_job {
public:
  explicit fused_calls(pipeline_calls several) noexcept : several_{std::move(several)} {}

  [[nodiscard]] const pipeline_calls& all() const noexcept { return several_; }
  void refuse_launch(const error& why) noexcept override {
    for (const auto& one : several_) one->refuse(why);
  }

private:
  void launch(rank_pipeline& by) noexcept override { by.launch(several_); }

  pipeline_calls several_;
};

std::shared_ptr<pipeline_call> rank_pipeline::prepare(submission&& one, time_point now) {
  track_->prefetch();
  const request_origin from =
      one.from ? *one.from
               : request_origin{.position = unnamed_.fetch_add(1, std::memory_order_relaxed), .client = one.client};
  auto listener = one.reply.listener();
  auto prepared = std::allocate_shared<pipeline_call>(recycling_allocator<pipeline_call>{}, one.name, epoch_,
                                                      later(now, one.deadline), std::move(one.reply),
                                                      std::move(one.what), from, *progress_, *peers_);
  prepared->accepted_at(now);
  prepared->tell(std::move(listener));
  prepared->asked_at(one.site);
  if (!from.of_world) prepared->note_asked(); // recorded now, because the request may wait for its peers
  return prepared;
}

template <class Calls>
std::uint64_t rank_pipeline::collectives_in(const Calls& several) noexcept {
  std::uint64_t count = 0;
  for (const auto& one : several) count += one->sketch().collectives();
  return count;
}

void rank_pipeline::submit(submission one) {
  submit(prepare(std::move(one), services_.time->now()));
}

void rank_pipeline::submit(std::shared_ptr<pipeline_call> prepared) {
  track_->expect();
  if (progress_->line) prepared->note_matched(services_.time->now());
  const time_point deadline = prepared->deadline();
  {
    const std::lock_guard lock{submit_guard_};
    progress_->submitted.set(prepared->sketch());
    enqueue(prepared); // first, because the request waits for the launcher
    track_->push(std::move(prepared));
  }
  tell_poller(deadline);
}

void rank_pipeline::tell_poller(time_point deadline) {
  if (rings() && !mark_->failed()) // after a fault nothing is launched, so nothing rings
    services_.poller->notify_before(track_->due(deadline, services_.time->now()));
  else
    services_.poller->notify();
}

void rank_pipeline::submit_together(std::vector<submission> all) {
  const time_point now = services_.time->now();
  pipeline_calls prepared;
  prepared.reserve(all.size());
  for (submission& one : all) prepared.push_back(prepare(std::move(one), now));
  submit_together(std::move(prepared));
}

void rank_pipeline::submit_together(pipeline_calls all) {
  if (all.empty()) return;
  if (all.size() == 1) return submit(std::move(all.front()));
  if (const auto odd = std::ranges::find_if_not(all, [](const auto& one) { return may_be_fused(one->what()); });
      odd != all.end()) {
    const error why{.code = errc::internal,
                    .text = describe((*odd)->what()) +
                            " cannot be launched together with others: copies, barriers and requests on host memory "
                            "are launched by themselves",
                    .rank = self()};
    for (const auto& one : all) one->fail(why);
    return report(why); // peers launch the batch; and callers are noexcept
  }
  // The track judges by the first request whether the launch hangs.
  for (const auto& one : all)
    if (one != all.front()) all.front()->wait_also_for(*one);
  const auto work = std::allocate_shared<fused_calls>(recycling_allocator<fused_calls>{}, std::move(all));
  track_->expect(work->all().size());
  if (progress_->line)
    for (const time_point now = services_.time->now(); const auto& one : work->all()) one->note_matched(now);
  {
    const std::lock_guard lock{submit_guard_};
    progress_->submitted.set(work->all().back()->sketch(), collectives_in(work->all()));
    enqueue(work);
    for (const auto& one : work->all()) track_->push(one);
  }
  tell_poller(std::ranges::min(work->all(), {}, [](const auto& one) { return one->deadline(); })->deadline());
}

void rank_pipeline::enqueue(std::shared_ptr<pipeline_job> work) {
  if (held_.empty())
    send(std::move(work));
  else
    held_.back().push_back(std::move(work));
}

void rank_pipeline::send(std::shared_ptr<pipeline_job> work) {
  const auto launch_thread = launcher_.lock();
  if (!launch_thread)
    return work->refuse_launch(error{.code = errc::stopping, .text = "the runtime has ended", .rank = self()});
  backlog_.note_sent();
  work->by_ = shared_from_this();
  launch_thread->post(std::move(work));
}

void rank_pipeline::hold() {
  const std::lock_guard lock{submit_guard_};
  held_.emplace_back();
}

void rank_pipeline::resume() {
  {
    decltype(held_)::value_type waiting; // destroyed without the lock: the launcher may be done with some of them
    const std::lock_guard lock{submit_guard_};
    if (held_.empty()) return;
    waiting = std::move(held_.front());
    held_.pop_front();
    for (const auto& one : waiting) send(one);
  }
  services_.poller->notify();
}

namespace {

/// Launches that share one completion mark. A mark after work in flight costs the launcher half as much as a launch
/// (docs/design/0024-shared-completion-marks.md).
constexpr std::size_t most_unmarked = 8;

} // namespace

/// Calls launch_ended() at the end of its scope, also after a failure.
class rank_pipeline::observed_launch {
public:
  explicit observed_launch(const std::shared_ptr<launch_observer>& observer) noexcept : observer_{observer.get()} {}
  observed_launch(const observed_launch&) = delete;
  observed_launch& operator=(const observed_launch&) = delete;
  ~observed_launch() {
    if (observer_ != nullptr) observer_->launch_ended();
  }

private:
  launch_observer* observer_;
};

std::shared_ptr<launcher_tail> pipeline_job::run() noexcept {
  auto by = std::exchange(by_, nullptr);
  launch(*by);
  by->end_launch();
  return by->is_unmarked() ? std::move(by) : nullptr;
}

bool pipeline_call::continues(const launcher_tail& left) const noexcept {
  return by() == &left && all_have_asked_ && is_short_ && ready_.empty();
}

void pipeline_call::launch(rank_pipeline& by) noexcept {
  by.launch(*this);
}

void rank_pipeline::end_launch() {
  backlog_.end();
  if (hooks_.after_launch) hooks_.after_launch();
}

bool rank_pipeline::may_launch() {
  if (!services_.lease) return true;
  const auto standing = services_.lease->await(epoch_);
  if (standing == serving_lease::standing::lapsed) report(services_.lease->why());
  // Without a lease, requests stay queued: they are rejected when the communicator fails, which is imminent.
  return standing == serving_lease::standing::held && !mark_->failed();
}

bool rank_pipeline::may_answer() const noexcept {
  return !services_.lease ||
         (late_answers_.all_given() && services_.lease->check(epoch_) == serving_lease::standing::held);
}

error rank_pipeline::await_lease() const {
  return !services_.lease || services_.lease->await(epoch_) == serving_lease::standing::held ? error{}
                                                                                             : services_.lease->why();
}

void rank_pipeline::answer_late(late_answers::answer answer) {
  late_answers_.add(std::move(answer));
  if (failed()) return late_answers_.fail(mark_->why());
  sequence([](rank_pipeline& by) {
    if (by.failed() || !by.may_launch()) return; // fail() has answered, or will
    by.late_answers_.give_next();
  });
}

void rank_pipeline::ring_for_launch(std::optional<launch_place> at) const noexcept {
  if (!rings()) return;
  // With this fence, either the host function rings after the stage was written, or its count is visible here.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!at || track_->source().reached(at->mark)) services_.poller->bell()->ring();
}

template <class Calls, class Enqueue>
void rank_pipeline::launch_calls(const Calls& several, bool may_be_late, const Enqueue& enqueue) {
  if (mark_->failed() || !stream_ || !may_launch()) return;
  const time_point began = services_.time->now();
  const auto gone = std::ranges::find_if_not(several, [&](const auto& one) { return one->begin_launch(began); });
  if (gone != several.end()) {
    if (gone == several.begin()) return;
    // begin_launch() fails only if the communicator has failed and the request was answered as rejected. The other
    // requests must not run either, because peers launch the whole batch (ORD-1).
    error why = mark_->why();
    why.effect = effect::rejected;
    for (auto one = several.begin(); one != gone; ++one) (*one)->refuse(why);
    return ring_for_launch(std::nullopt);
  }
  backlog_.begin(began);
  try {
    if (services_.observer) {
      observed_.clear();
      for (const auto& one : several) observed_.push_back({one->name(), one->from(), &one->what()});
      services_.observer->about_to_launch({self(), epoch_, where()->id(), observed_});
    }
    const observed_launch told{services_.observer};
    for (const event* ready : several.front()->ready()) stream_->ref().wait(*ready);
    const auto before = peers_->launched();
    const enqueued result = enqueue(track_->source().word_for(counts_.marks + 1));
    if (result == enqueued::refused) return ring_for_launch(std::nullopt);
    const auto is_heard = [](const auto& one) { return one->listener() != nullptr; };
    shared_event behind; // one event for all, because all are done when the last is
    if (std::ranges::any_of(several, is_heard)) behind = events_->record(*stream_);
    const launch_place at = mark_launch(result, may_be_late);
    progress_->launched.set(several.back()->sketch(), collectives_in(several));
    if (behind)
      for (const auto& one : several)
        if (is_heard(one)) notify_listener(*one, behind, at.launch);
    const time_point ended = services_.time->now();
    if (progress_->line) {
      progress_->line->tally().count_launch(several.size());
      progress_->line->tally().count_ways(before, peers_->launched());
    }
    for (const auto& one : several) {
      one->end_launch(at, ended);
      one->note_launched(at, several.size(), ended);
    }
    ring_for_launch(at);
  } catch (...) {
    const error why = launch_failure();
    report(why); // first: the world's state must not be `ready` when a client is told
    for (const auto& one : several) one->refuse(with_unknown_outcome(why));
    ring_for_launch(std::nullopt);
  }
}

void rank_pipeline::launch(pipeline_call& one) {
  launch_calls(std::array{&one}, one.is_short(), [&](completion_word at_end) {
    if (const auto* again = std::get_if<replay>(&one.what())) {
      if (error why = launch_replay(*again)) {
        one.refuse(std::move(why));
        return enqueued::refused;
      }
    } else if (one.is_staged())
      staging_->launch(one.what(), *peers_, *stream_, one.staged());
    else if (const auto* own = std::get_if<call>(&one.what()))
      launch_call(*own, *stream_);
    else if (const auto* move = std::get_if<copy>(&one.what()))
      stream_->ref().copy(move->to.memory.data(), move->from.memory.data(), move->from.memory.size_bytes());
    else if (launch_with_copies(*peers_, one.what(), *stream_, at_end))
      return enqueued::with_word;
    return enqueued::without_word;
  });
}

void rank_pipeline::launch(const pipeline_calls& several) {
  launch_calls(several, false, [&](completion_word at_end) {
    together_.clear();
    for (const auto& one : several) together_.push_back(&one->what());
    return peers_->launch_together(together_, *stream_, at_end) ? enqueued::with_word : enqueued::without_word;
  });
}

void rank_pipeline::launch_call(const call& what, stream_ref into) const {
  std::vector<buffer> memory;
  memory.reserve(what.arguments.size());
  for (const operand& one : what.arguments) memory.push_back(one.memory);
  (*what.function)({.self = self(),
                    .world_size = world_size(),
                    .epoch = epoch_,
                    .stream = into,
                    .memory = memory,
                    .values = what.values});
}

void rank_pipeline::notify_listener(const pipeline_call& one, shared_event behind,
                                    std::uint64_t launch) const noexcept {
  // Called before the request counts as launched, because the poller could deliver the outcome first.
  one.listener()->enqueued({self(), one.name(), epoch_, std::move(behind), launch});
}

launch_place rank_pipeline::mark_launch(enqueued result, bool may_be_late) {
  ++counts_.launches;
  if (result == enqueued::with_word) {
    note_mark();
    return {counts_.launches, counts_.marks};
  }
  if (may_be_late && counts_.unmarked + 1 < most_unmarked) {
    ++counts_.unmarked;
    return {counts_.launches, counts_.marks + 1};
  }
  arm_mark();
  return {counts_.launches, counts_.marks};
}

void rank_pipeline::end() noexcept {
  try {
    if (stream_ && !mark_->failed()) arm_mark();
  } catch (...) {
    report(launch_failure());
  }
}

void rank_pipeline::arm_mark() {
  track_->source().arm(*stream_, counts_.marks + 1);
  note_mark();
}

void rank_pipeline::note_mark() noexcept {
  ++counts_.marks;
  counts_.unmarked = 0;
}

error rank_pipeline::launch_failure() const {
  // Peers may have launched the operation, so later launches of this rank would not match theirs: the communicator has
  // failed. If an abort made the call fail, the reason for the abort is returned.
  error why = failed() ? mark_->why() : current_error();
  if (!why.rank) why.rank = self();
  return why;
}

/// Work that runs at its position in the order of launches.
class rank_pipeline::sequenced_work final : public pipeline_job {
public:
  explicit sequenced_work(std::function<void(rank_pipeline&)> work) noexcept : work_{std::move(work)} {}
  // Called if the pipeline has ended. Code that waits for the work checks that itself.
  void refuse_launch(const error&) noexcept override {}

private:
  void launch(rank_pipeline& by) noexcept override {
    by.backlog_.begin(by.services_.time->now());
    work_(by);
  }

  std::function<void(rank_pipeline&)> work_;
};

void rank_pipeline::sequence(std::function<void(rank_pipeline&)> work) {
  auto job = std::make_shared<sequenced_work>(std::move(work));
  const std::lock_guard lock{submit_guard_};
  enqueue(std::move(job));
}

void rank_pipeline::launch_captured(std::span<const operation* const> all, stream_ref into) {
  if (error why = fault()) throw exception{std::move(why)};
  if (const auto objection = peers_->capture_objection(); !objection.empty())
    throw exception{errc::unsupported, std::string{objection}};
  if (services_.observer) services_.observer->about_to_launch({self(), epoch_, where()->id(), {}});
  try {
    if (all.size() == 1)
      peers_->launch(*all.front(), into);
    else
      peers_->launch_together(all, into);
  } catch (...) {
    // Peers may be further ahead in the communicator than this rank, as after any failed launch.
    error why = launch_failure();
    report(why);
    throw exception{std::move(why)};
  }
}

void rank_pipeline::drop_graph(std::uint64_t plan) noexcept {
  try {
    if (post([graphs = graphs_, plan] { graphs->erase(plan); })) return;
  } catch (const std::bad_alloc&) { // out of memory for the job: erases the graph on this thread
  }
  graphs_->erase(plan);
}

error rank_pipeline::launch_replay(const replay& what) {
  const std::uint64_t number = what.of ? what.of->number() : 0;
  const auto found = graphs_->find(number);
  if (!found)
    return {.code = errc::invalid_argument,
            .text = "plan " + std::to_string(number) +
                    " has no graph, because it could not be captured again: capture a new plan",
            .rank = self()};
  const auto order = kernel_order::find_of(*where());
  if (order) order->before_library(*stream_);
  found->launch(*stream_);
  if (order) order->note_replay(*stream_);
  return {};
}

} // namespace troupe
