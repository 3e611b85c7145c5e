#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/pipeline/plans/capture_session.hpp>
#include <troupe/collectives/pipeline/plans/pipeline_capture.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/device/graph.hpp>
#include <troupe/device/process_mark.hpp>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace troupe {

namespace {

/// Period of the check for faults of the world.
constexpr auto between_looks = std::chrono::milliseconds{5};

/// Rethrows the exception of the client's function as a troupe exception that names the rank.
[[noreturn]] void rethrow_of_client(rank self) {
  error why = current_error();
  try {
    throw;
  } catch (const exception&) { // thrown by a call of troupe
  } catch (const std::exception& other) {
    why = {.code = errc::cancelled,
           .text = "the client's function threw during the capture: " + std::string{other.what()}};
  } catch (...) {
    why = {.code = errc::cancelled, .text = "the client's function threw an unknown exception during the capture"};
  }
  if (!why.rank) why.rank = self;
  throw exception{std::move(why)};
}

} // namespace

void begin_capture(captured_plan& plan, world_stamp at, const std::vector<std::shared_ptr<rank_pipeline>>& ranks) {
  plan.begin(at, [made = process_mark{},
                  weak = std::vector<std::weak_ptr<rank_pipeline>>{ranks.begin(), ranks.end()}](std::uint64_t number) {
    if (made.is_inherited()) return;
    for (const auto& one : weak)
      if (const auto alive = one.lock()) alive->drop_graph(number);
  });
}

capture_session::capture_session(std::shared_ptr<captured_plan> plan, std::vector<std::shared_ptr<rank_pipeline>> ranks,
                                 world_stamp stamp, time_point deadline, std::shared_ptr<capture_agreement> peers)
  : plan_{std::move(plan)}, ranks_{std::move(ranks)}, deadline_{deadline}, peers_{std::move(peers)} {
  begin_capture(*plan_, stamp, ranks_);
}

void capture_session::take_part(rank_pipeline& one) noexcept {
  if (!enter(one.self())) return;
  captured_plan::content mine;
  try {
    if (error why = one.fault()) throw exception{std::move(why)};
    mine = run(one);
  } catch (...) {
    one.graphs().erase(plan_->number());
    error why = current_error();
    if (!why.rank) why.rank = one.self();
    peers_->fail(std::move(why)); // if another rank failed first, its reason is kept
  }
  leave(one.self(), std::move(mine));
}

/// Returns false if the capture has failed already; the rank does not take part then.
bool capture_session::enter(rank self) {
  const std::lock_guard lock{mutex_};
  if (peers_->failure()) return false;
  inside_.push_back(self);
  if (began_ == time_point::max()) began_ = steady_now();
  return true;
}

void capture_session::leave(rank self, captured_plan::content mine) {
  std::unique_lock lock{mutex_};
  std::ranges::move(mine.operations, std::back_inserter(content_.operations));
  std::ranges::move(mine.kept, std::back_inserter(content_.kept));
  if (left_ + 1 == ranks_.size() && !peers_->failure()) {
    captured_plan::content all = std::exchange(content_, {});
    lock.unlock(); // memory of the plan's earlier content may be released now
    plan_->succeed(std::move(all));
    lock.lock();
  }
  std::erase(inside_, self);
  ++left_;
  ended_ = steady_now();
  changed_.notify_all();
}

std::ptrdiff_t capture_session::place_of(const rank_pipeline& one) const {
  const auto is_same = [&](const std::shared_ptr<rank_pipeline>& each) { return each.get() == &one; };
  return std::ranges::find_if(ranks_, is_same) - ranks_.begin();
}

captured_plan::content capture_session::run(rank_pipeline& one) {
  const auto& where = one.where();
  const auto& streams = plan_->options().streams;
  std::optional<stream> own;
  if (streams.empty()) own.emplace(where);
  const stream_ref into = own ? own->ref() : stream_ref{*where, streams.at(static_cast<std::size_t>(place_of(one)))};
  stream_capture capturing{where, into};
  pipeline_capture given{one, into, *peers_};
  try {
    plan_->function()(given);
  } catch (...) {
    where->api().enter_thread(where->id());
    rethrow_of_client(one.self());
  }
  where->api().enter_thread(where->id()); // the client may have made another device current
  auto made = std::make_shared<const graph>(capturing.end());
  peers_->end(one.self());
  if (!one.graphs().add(plan_->number(), std::move(made))) throw exception{one.fault()};
  return std::move(given.content());
}

error capture_session::interruption() const {
  for (const auto& one : ranks_)
    if (error why = one->fault()) return why;
  return {};
}

void capture_session::wait() {
  std::unique_lock lock{mutex_};
  for (;;) {
    error why = peers_->failure();
    if (left_ == ranks_.size() && !why) {
      lock.unlock();
      for (const auto& one : ranks_)
        if (error ended = one->await_lease(); ended && !lapse_) lapse_ = with_unknown_outcome(std::move(ended));
      if (lapse_) lapse_.undefined = std::make_shared<const undefined_buffers>(); // a capture writes no memory
      return;
    }
    if (why && inside_.empty()) {
      plan_->fail(why);
      throw exception{std::move(why)};
    }
    if (!why) {
      if (steady_now() >= deadline_)
        peers_->expire();
      else if (error fault = interruption())
        peers_->fail(std::move(fault));
    }
    changed_.sleep(lock, steady_now() + between_looks);
  }
}

nanoseconds capture_session::took() const {
  const std::lock_guard lock{mutex_};
  return ended_ > began_ ? ended_ - began_ : nanoseconds{0};
}

std::vector<rank> capture_session::give_up() {
  peers_->expire();
  peers_->fail({.code = errc::deadline_exceeded, .text = "a rank has not returned from the end of the capture"});
  plan_->fail(peers_->failure()); // the first reason
  const std::lock_guard lock{mutex_};
  return inside_;
}

} // namespace troupe
