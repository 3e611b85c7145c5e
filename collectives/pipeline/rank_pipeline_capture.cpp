// Captured plans on one rank: capture and graphs on the launcher's thread. (docs/design/0020-captured-plans.md)
#include <troupe/collectives/pipeline/pipeline_call.hpp>
#include <troupe/collectives/pipeline/plans/captured_plan.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>

#include <new>
#include <utility>

namespace troupe {

/// Work that has a place among the launches.
class rank_pipeline::sequenced_work final : public pipeline_job {
public:
  explicit sequenced_work(std::function<void(rank_pipeline&)> work) noexcept : work_{std::move(work)} {}
  // the pipeline has ended; code that waits for the work checks that
  void refuse_launch(const error&) noexcept override {}

private:
  void launch(rank_pipeline& by) noexcept override {
    by.begin_launch(by.services_.time->now());
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
  if (!peers_->can_be_captured())
    throw exception{errc::unsupported, "what goes by way of host memory cannot be captured: ask for it by requests"};
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
  } catch (const std::bad_alloc&) { // then erase it here
  }
  graphs_->erase(plan);
}

error rank_pipeline::launch_replay(const replay& what) {
  const auto found = graphs_->find(number_of(what));
  if (!found)
    return {.code = errc::invalid_argument,
            .text = "plan " + std::to_string(number_of(what)) +
                    " has no graph any more: it could not be captured again, so capture another",
            .rank = self()};
  found->launch(*stream_);
  return {};
}

} // namespace troupe
