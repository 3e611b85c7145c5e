// The way in: from a request to its launch on the launcher's thread.
#include <troupe/collectives/pipeline_call.hpp>
#include <troupe/collectives/rank_pipeline.hpp>
#include <troupe/collectives/sequencing/fusion_plan.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

std::shared_ptr<pipeline_call> rank_pipeline::accept(submission one, time_point now) {
  const request_origin from =
      one.from ? *one.from : request_origin{.position = unnamed_.fetch_add(1, std::memory_order_relaxed)};
  auto accepted = std::make_shared<pipeline_call>(one.name, epoch_, later(now, one.deadline), std::move(one.reply),
                                                  std::move(one.what), from, progress_);
  accepted->accepted_at(now);
  return accepted;
}

void rank_pipeline::submit(submission one) {
  auto accepted = accept(std::move(one), services_.time->now());
  unlaunched_.fetch_add(1, std::memory_order_seq_cst);
  {
    const std::lock_guard lock{submit_guard_};
    track_->push(accepted);
    progress_->submitted.set(accepted->sketch());
    if (held_)
      waiting_.push_back(std::make_shared<const calls>(1, std::move(accepted)));
    else
      enqueue(accepted);
  }
  services_.poller->notify();
}

void rank_pipeline::submit_together(std::vector<submission> all) {
  if (all.empty()) return;
  if (const auto odd = std::ranges::find_if_not(all, [](const submission& one) { return may_be_fused(one.what); });
      odd != all.end() && all.size() > 1) {
    const error why{.code = errc::internal,
                    .text = "a " + describe(odd->what) +
                            " was to be launched together with others: copies, barriers and requests on host memory "
                            "are launched by themselves",
                    .rank = self()};
    for (submission& one : all) one.reply.deliver(why);
    throw exception{why};
  }
  if (all.size() == 1) return submit(std::move(all.front()));
  const time_point now = services_.time->now();
  auto made = std::make_shared<calls>();
  made->reserve(all.size());
  for (submission& one : all) made->push_back(accept(std::move(one), now));
  // By the first the track judges whether the launch hangs.
  for (const auto& one : *made)
    if (one != made->front()) made->front()->wait_also_for(*one);
  unlaunched_.fetch_add(1, std::memory_order_seq_cst);
  {
    const std::lock_guard lock{submit_guard_};
    track_->push_all(*made);
    progress_->submitted.set(made->back()->sketch());
    if (held_)
      waiting_.push_back(std::move(made));
    else
      enqueue(made);
  }
  services_.poller->notify();
}

void rank_pipeline::enqueue(const std::shared_ptr<pipeline_call>& accepted) {
  const bool posted = post([self = shared_from_this(), accepted] {
    self->launch(*accepted);
    self->end_launch();
  });
  if (!posted) accepted->refuse(error{.code = errc::stopping, .text = "the runtime has ended", .rank = self()});
}

void rank_pipeline::enqueue(const std::shared_ptr<const calls>& several) {
  if (several->size() == 1) return enqueue(several->front());
  const bool posted = post([self = shared_from_this(), several] {
    self->launch(*several);
    self->end_launch();
  });
  if (posted) return;
  for (const auto& one : *several)
    one->refuse(error{.code = errc::stopping, .text = "the runtime has ended", .rank = self()});
}

void rank_pipeline::end_launch() {
  unlaunched_.fetch_sub(1, std::memory_order_seq_cst);
  if (launched_) launched_();
}

void rank_pipeline::hold() {
  const std::lock_guard lock{submit_guard_};
  held_ = true;
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

void rank_pipeline::launch(pipeline_call& one) {
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
    progress_->launched.set(one.sketch());
    one.end_launch(sequence_, services_.time->now());
  } catch (...) {
    error why = launch_failure();
    one.refuse(with_unknown_outcome(why));
    report(std::move(why));
  }
}

void rank_pipeline::launch(const calls& several) {
  if (mark_->failed() || !stream_) return;
  const time_point began = services_.time->now();
  const auto gone = std::ranges::find_if_not(several, [&](const auto& one) { return one->begin_launch(began); });
  if (gone != several.end()) {
    // One is withdrawn only because the communicator has failed, and has been answered as certainly not run: then the
    // others must not run either, since the batch would not be the one that peers launch (ORD-1).
    error why = mark_->why();
    why.effect = effect::rejected;
    for (auto one = several.begin(); one != gone; ++one) (*one)->refuse(why);
    return;
  }
  try {
    for (const event* ready : several.front()->ready()) stream_->ref().wait(*ready);
    together_.clear();
    for (const auto& one : several) together_.push_back(&one->what());
    peers_->launch_together(together_, *stream_);
    track_->source().arm(*stream_, ++sequence_);
    progress_->launched.set(several.back()->sketch());
    const time_point ended = services_.time->now();
    for (const auto& one : several) one->end_launch(sequence_, ended);
  } catch (...) {
    error why = launch_failure();
    for (const auto& one : several) one->refuse(with_unknown_outcome(why));
    report(std::move(why));
  }
}

error rank_pipeline::launch_failure() const {
  // Peers may have launched theirs, so this rank can no longer keep step: the communicator has failed.
  // Where an abort is what made the call fail, the reason for the abort is the one to tell.
  error why = failed() ? mark_->why() : current_error();
  if (!why.rank) why.rank = self();
  return why;
}

} // namespace troupe
