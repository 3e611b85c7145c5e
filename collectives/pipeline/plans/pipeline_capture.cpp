#include <troupe/collectives/backend/launch_parts.hpp>
#include <troupe/collectives/operation/extents.hpp>
#include <troupe/collectives/operation/staging_plan.hpp>
#include <troupe/collectives/operation/validation.hpp>
#include <troupe/collectives/pipeline/fusion_composer.hpp>
#include <troupe/collectives/pipeline/plans/capture_agreement.hpp>
#include <troupe/collectives/pipeline/plans/pipeline_capture.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

namespace troupe {

namespace {

error refuse(const operation& what, std::string why) {
  return error{.code = errc::invalid_argument, .text = describe(what) + " cannot be captured: " + std::move(why)};
}

bool waits_for_events(const operation& what) {
  bool any = false;
  visit_operands(what, [&](const operand& one, std::string_view) { any = any || one.ready != nullptr; });
  return any;
}

/// Returns whether an operation uses pre_mul_sum, which a world of one rank computes in a host function that can run
/// only once.
bool is_scaled(const operation& what) {
  if (const auto* several = std::get_if<group>(&what)) return std::ranges::any_of(several->parts, is_scaled);
  return std::visit(
      [](const auto& one) {
        if constexpr (requires { one.op; }) return one.op == reduction::pre_mul_sum;
        return false;
      },
      what);
}

error objection_to(const operation& what, int world_size) {
  if (std::holds_alternative<replay>(what)) return refuse(what, "replay the other plan by a separate request");
  if (std::holds_alternative<agree>(what)) return refuse(what, "it is decided by the order, not in a stream");
  if (staging_of(what) != staging::none)
    return refuse(what, "it is on host memory, and staged by other threads: copy to device memory in the plan, or use "
                        "pinned memory for a copy");
  if (waits_for_events(what))
    return refuse(what, "it waits for a ready event: put the work that it waits for into the stream before it");
  if (world_size == 1 && is_scaled(what))
    return refuse(what, "in a world of one rank pre_mul_sum is done by a host function: scale by a kernel of your own");
  return {};
}

} // namespace

pipeline_capture::pipeline_capture(rank_pipeline& one, stream_ref into, capture_agreement& peers)
  : pipeline_{one}, into_{into}, peers_{peers} {}

rank pipeline_capture::self() const noexcept {
  return pipeline_.self();
}

int pipeline_capture::world_size() const noexcept {
  return pipeline_.world_size();
}

const std::shared_ptr<device>& pipeline_capture::where() const noexcept {
  return pipeline_.where();
}

void pipeline_capture::check(const operation& what) const {
  error why = objection_to(what, world_size());
  if (!why) why = validate(what, pipeline_.context());
  if (!why) return;
  why.rank = self();
  throw exception{std::move(why)};
}

/// Throws unless one fused batch can hold all parts, and both halves of each transfer to the rank itself are in it.
void pipeline_capture::check_side_by_side(std::span<const operation> parts) const {
  check_halves(parts);
  std::vector<fusion_part> each;
  std::vector<std::size_t> ends;
  for (const operation& one : parts) {
    if (!may_be_fused(one)) {
      error why = refuse(one, "it cannot be launched together with others: launch it by itself");
      why.rank = self();
      throw exception{std::move(why)};
    }
    each.push_back({self(), &one});
    ends.push_back(each.size());
  }
  constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();
  operand_composer composer{world_size(),
                            {.max_operations = unlimited, .max_bytes = unlimited, .max_operation_bytes = unlimited}};
  std::vector<std::size_t> batches;
  composer.plan(each, ends, batches);
  if (batches.size() < 2) return;
  throw exception{error{.code = errc::invalid_argument,
                        .text = "part " + std::to_string(batches.front()) + " (" + describe(parts[batches.front()]) +
                                ") overlaps another part's memory, and one of them writes there: parts launched "
                                "together have no order, so launch them one after the other",
                        .rank = self(),
                        .part = batches.front()}};
}

/// Throws if half a transfer to the rank itself would be launched without the other.
void pipeline_capture::check_halves(std::span<const operation> parts) const {
  error why = check_transfers_to_self(parts, self());
  if (!why) return;
  why.rank = self();
  throw exception{std::move(why)};
}

void pipeline_capture::launch(operation what) {
  check(what);
  check_halves({&what, 1});
  enqueue({&what, 1});
  content_.operations.push_back(std::move(what));
}

void pipeline_capture::launch_together(std::vector<operation> parts) {
  for (const operation& one : parts) check(one);
  check_side_by_side(parts);
  if (!parts.empty()) enqueue(parts);
  std::ranges::move(parts, std::back_inserter(content_.operations));
}

std::size_t pipeline_capture::launch_front(std::span<const operation> steps) {
  for (const operation& one : steps) {
    check(one);
    check_halves({&one, 1});
  }
  const std::size_t launched = enqueue(steps, steps.size() > 1 || is_single_collective(steps.front()));
  content_.operations.insert(content_.operations.end(), steps.begin(),
                             steps.begin() + static_cast<std::ptrdiff_t>(launched));
  return launched;
}

std::size_t pipeline_capture::enqueue(std::span<const operation> parts, bool divisible) {
  // Checked before the wait for the peers: after it, this rank must enqueue, because its peers do.
  if (into_.where().api().status_of_capture(into_.where().id(), into_.native()) != capture_status::active)
    throw exception{error{.code = errc::invalid_argument,
                          .text = "the stream is no longer being captured: a call on it cannot be captured, for "
                                  "example a wait for it or a query of it",
                          .rank = self()}};
  if (const auto* own = std::get_if<call>(&parts.front())) {
    pipeline_.launch_call(*own, into_);
    return 1;
  }
  if (const auto* move = std::get_if<copy>(&parts.front())) {
    into_.copy(move->to.memory.data(), move->from.memory.data(), move->from.memory.size_bytes());
    return 1;
  }
  std::vector<operation> without_copies; // filled only for groups that contain copies
  without_copies.reserve(parts.size());
  std::vector<const operation*> all;
  for (const operation& part : parts) {
    const operation* one = &part;
    if (auto rest = launch_copies_of(part, into_)) one = &without_copies.emplace_back(std::move(*rest));
    if (const auto* several = std::get_if<group>(one); several == nullptr || !several->parts.empty())
      all.push_back(one);
  }
  if (all.empty()) return parts.size();
  const std::size_t agreed = peers_.offer(self(), all, divisible);
  if (!divisible) {
    pipeline_.launch_captured(all, into_);
    return parts.size();
  }
  pipeline_.launch_captured(std::span{all}.first(agreed), into_);
  return agreed;
}

} // namespace troupe
