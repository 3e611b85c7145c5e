// The request path, first half: from a request to the launcher's queue.
#include <troupe/collectives/order/fusion_plan.hpp>
#include <troupe/collectives/pipeline/pipeline_call.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/completion/sources/recycling.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

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

std::shared_ptr<pipeline_call> rank_pipeline::prepare(submission one, time_point now) {
  const request_origin from =
      one.from ? *one.from
               : request_origin{.position = unnamed_.fetch_add(1, std::memory_order_relaxed), .client = one.client};
  auto listener = one.reply.listener();
  auto prepared = std::allocate_shared<pipeline_call>(recycling_allocator<pipeline_call>{}, one.name, epoch_,
                                                      later(now, one.deadline), std::move(one.reply),
                                                      std::move(one.what), from, *progress_, *peers_);
  prepared->accepted_at(one.queued.value_or(now));
  prepared->tell(std::move(listener));
  prepared->asked_at(one.site);
  if (!from.of_world) prepared->note_asked(); // recorded now, because it may wait for its peers
  return prepared;
}

void rank_pipeline::submit(submission one) {
  submit(prepare(std::move(one), services_.time->now()));
}

void rank_pipeline::submit(std::shared_ptr<pipeline_call> prepared) {
  track_->expect();
  if (progress_->line) prepared->note_matched(services_.time->now());
  {
    const std::lock_guard lock{submit_guard_};
    progress_->submitted.set(prepared->sketch());
    enqueue(prepared); // first, because the request waits for the launcher
    track_->push(std::move(prepared));
  }
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
                    .text = "a " + describe((*odd)->what()) +
                            " was to be launched together with others: copies, barriers and requests on host memory "
                            "are launched by themselves",
                    .rank = self()};
    for (const auto& one : all) one->fail(why);
    throw exception{why};
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
  services_.poller->notify();
}

std::uint64_t rank_pipeline::collectives_in(const pipeline_calls& several) noexcept {
  std::uint64_t count = 0;
  for (const auto& one : several) count += one->sketch().collectives();
  return count;
}

void rank_pipeline::enqueue(std::shared_ptr<pipeline_job> work) {
  submitted_.store(submitted_.load(std::memory_order_relaxed) + 1);
  if (held_)
    waiting_.push_back(std::move(work));
  else
    send(std::move(work));
}

void rank_pipeline::send(std::shared_ptr<pipeline_job> work) {
  const auto hand = launcher_.lock();
  if (!hand) return work->refuse_launch(error{.code = errc::stopping, .text = "the runtime has ended", .rank = self()});
  work->by_ = shared_from_this();
  hand->post(std::move(work));
}

void rank_pipeline::hold() {
  const std::lock_guard lock{submit_guard_};
  held_ = true;
}

void rank_pipeline::resume() {
  {
    const std::lock_guard lock{submit_guard_};
    held_ = false;
    for (auto& one : waiting_) send(std::move(one));
    waiting_.clear();
  }
  services_.poller->notify();
}

} // namespace troupe
