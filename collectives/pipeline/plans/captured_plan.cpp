#include <troupe/collectives/pipeline/plans/captured_plan.hpp>

#include <troupe/collectives/operation/extents.hpp>
#include <troupe/collectives/operation/validation.hpp>
#include <troupe/collectives/order/fusion_plan.hpp>
#include <troupe/collectives/pipeline/launch_parts.hpp>
#include <troupe/collectives/pipeline/plans/capture_agreement.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/collectives/pipeline/staging/staging_plan.hpp>

#include <algorithm>
#include <atomic>
#include <limits>
#include <string>
#include <utility>

namespace troupe {

namespace {

std::uint64_t next_number() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

} // namespace

std::uint64_t number_of(const replay& what) noexcept {
  return what.of ? what.of->common_number() : 0;
}

captured_plan::captured_plan(capture_function what, plan_options options)
  : number_{next_number()}, function_{std::move(what)}, options_{std::move(options)} {}

captured_plan::captured_plan(std::uint64_t number) : number_{number} {}
captured_plan::captured_plan(std::string name) : number_{0}, options_{.name = std::move(name)} {}

void plan_directory::add(const std::shared_ptr<captured_plan>& plan) {
  const std::lock_guard lock{mutex_};
  std::erase_if(plans_, [](const auto& one) { return one.second.expired(); });
  plans_.insert_or_assign(plan->options().name, plan);
}

std::shared_ptr<captured_plan> plan_directory::find(const std::string& name) const {
  const std::lock_guard lock{mutex_};
  const auto found = plans_.find(name);
  return found != plans_.end() ? found->second.lock() : nullptr;
}

void captured_plan::is_known_by_name(std::uint64_t attempt) noexcept {
  const std::string& name = options_.name;
  std::uint64_t number = 0;
  if (name.starts_with(unnamed_plan)) {
    for (const char digit : name.substr(unnamed_plan.size()))
      number = number * 10 + static_cast<std::uint64_t>(digit - '0');
  } else {
    number = 14'695'981'039'346'656'037U; // FNV-1a: every process must get the same
    for (const char one : name) number = (number ^ static_cast<unsigned char>(one)) * 1'099'511'628'211U;
    number = ((number ^ attempt) * 1'099'511'628'211U) | std::uint64_t{1} << 63U; // differs from all unnamed plans
  }
  common_number_.store(number, std::memory_order_relaxed);
}

captured_plan::~captured_plan() {
  for (const auto& weak : ranks_)
    if (const auto alive = weak.lock()) alive->drop_graph(number_);
}

world_stamp captured_plan::stamp() const {
  const std::lock_guard lock{mutex_};
  return stamp_;
}

error captured_plan::objection_to_replay(const world_stamp& at) const {
  const std::string name = "plan " + std::to_string(number_);
  const std::lock_guard lock{mutex_};
  if (stamp_.world != at.world)
    return {.code = errc::invalid_argument,
            .text = name + " was captured for another world: capture one for this world"};
  if (stamp_.epoch != at.epoch)
    return {.code = errc::stale_epoch,
            .text = name + " is for epoch " + to_string(stamp_.epoch) + ", the world is in epoch " +
                    to_string(at.epoch) + ": capture it again",
            .epoch = at.epoch};
  if (failure_) {
    error why = failure_;
    why.text = name + " could not be captured again for epoch " + to_string(stamp_.epoch) + ": " + why.text;
    return why;
  }
  if (content_)
    for (const used_device& one : content_->devices)
      if (one.where->current_epoch() != one.made_in)
        return {.code = errc::stale_buffer,
                .text = name + " uses memory that device " + to_string(one.where->id()) +
                        " has lost: allocate it again, and capture a new plan"};
  return {};
}

std::shared_ptr<const void> captured_plan::hold() const {
  const std::lock_guard lock{mutex_};
  return content_;
}

std::vector<buffer> captured_plan::written_on(device_id where) const {
  std::shared_ptr<const held_content> held;
  {
    const std::lock_guard lock{mutex_};
    held = content_;
  }
  std::vector<buffer> all;
  if (!held) return all;
  const auto note = [&](const buffer& one) {
    if (one && (one.on_host() || one.where()->id() == where)) all.push_back(one);
  };
  for (const operation& one : held->all.operations)
    visit_operands(one, [&](const operand& each, std::string_view role) {
      if (role == "recv" || role == "destination") note(each.memory);
    });
  for (const buffer& one : held->all.kept) note(one);
  return all;
}

void captured_plan::begin(world_stamp at, std::span<const std::shared_ptr<rank_pipeline>> ranks) {
  const std::lock_guard lock{mutex_};
  stamp_ = at;
  ranks_.assign(ranks.begin(), ranks.end());
  failure_ = {};
}

void captured_plan::succeed(content captured) {
  auto made = std::make_shared<held_content>();
  const auto note = [&](const buffer& memory) {
    const device* const where = memory.where();
    if (where == nullptr || memory.on_host()) return;
    if (std::ranges::find(made->devices, where, &used_device::where) == made->devices.end())
      made->devices.push_back({where, where->current_epoch()});
  };
  for (const operation& one : captured.operations)
    visit_operands(one, [&](const operand& each, std::string_view) { note(each.memory); });
  for (const buffer& one : captured.kept) note(one);
  made->all = std::move(captured);
  std::shared_ptr<const held_content> ready = std::move(made);
  const std::lock_guard lock{mutex_};
  content_.swap(ready); // the old content is destroyed after the unlock, or with its last replay
}

void captured_plan::fail(error why) {
  const std::lock_guard lock{mutex_};
  failure_ = std::move(why);
}

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

rank_capture::rank_capture(rank_pipeline& one, stream_ref into, capture_agreement& peers)
  : pipeline_{one}, into_{into}, peers_{peers} {}

rank rank_capture::self() const noexcept {
  return pipeline_.self();
}

int rank_capture::world_size() const noexcept {
  return pipeline_.world_size();
}

const std::shared_ptr<device>& rank_capture::where() const noexcept {
  return pipeline_.where();
}

void rank_capture::check(const operation& what) const {
  error why = objection_to(what, world_size());
  if (!why) why = validate(what, pipeline_.context());
  if (!why) return;
  why.rank = self();
  throw exception{std::move(why)};
}

/// Throws unless one fused batch can hold all parts, and both halves of each transfer to the rank itself are in it.
void rank_capture::check_side_by_side(std::span<const operation> parts) const {
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
void rank_capture::check_halves(std::span<const operation> parts) const {
  error why = check_transfers_to_self(parts, self());
  if (!why) return;
  why.rank = self();
  throw exception{std::move(why)};
}

void rank_capture::launch(operation what) {
  check(what);
  check_halves({&what, 1});
  enqueue({&what, 1});
  content_.operations.push_back(std::move(what));
}

void rank_capture::launch_together(std::vector<operation> parts) {
  for (const operation& one : parts) check(one);
  check_side_by_side(parts);
  if (!parts.empty()) enqueue(parts);
  std::ranges::move(parts, std::back_inserter(content_.operations));
}

std::size_t rank_capture::launch_front(std::span<const operation> steps) {
  for (const operation& one : steps) {
    check(one);
    check_halves({&one, 1});
  }
  const std::size_t launched = enqueue(steps, steps.size() > 1 || is_single_collective(steps.front()));
  content_.operations.insert(content_.operations.end(), steps.begin(),
                             steps.begin() + static_cast<std::ptrdiff_t>(launched));
  return launched;
}

std::size_t rank_capture::enqueue(std::span<const operation> parts, bool divisible) {
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
