#include <troupe/collectives/operation/extents.hpp>
#include <troupe/collectives/pipeline/plans/captured_plan.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>

#include <algorithm>
#include <atomic>
#include <string>

namespace troupe {

namespace {

std::uint64_t next_number() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

} // namespace

std::uint64_t number_of(const replay& what) noexcept {
  return what.of ? what.of->number() : 0;
}

captured_plan::captured_plan(capture_function what, plan_options options)
  : number_{next_number()}, function_{std::move(what)}, options_{std::move(options)} {}

captured_plan::captured_plan(std::uint64_t number) : number_{number} {}

captured_plan::~captured_plan() {
  for (const auto& weak : ranks_)
    if (const auto alive = weak.lock()) alive->drop_graph(number_);
}

world_stamp captured_plan::stamp() const {
  const std::lock_guard lock{guard_};
  return stamp_;
}

error captured_plan::objection_to_replay(const world_stamp& at) const {
  const std::string name = "plan " + std::to_string(number_);
  const std::lock_guard lock{guard_};
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
    for (const home& one : content_->homes)
      if (one.where->current_epoch() != one.made_in)
        return {.code = errc::stale_buffer,
                .text = name + " uses memory from before device " + to_string(one.where->id()) +
                        " lost it: allocate it again, and capture a plan with that"};
  return {};
}

std::shared_ptr<const void> captured_plan::hold() const {
  const std::lock_guard lock{guard_};
  return content_;
}

std::vector<buffer> captured_plan::written_on(device_id where) const {
  std::shared_ptr<const held_content> held;
  {
    const std::lock_guard lock{guard_};
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
  const std::lock_guard lock{guard_};
  stamp_ = at;
  ranks_.assign(ranks.begin(), ranks.end());
  failure_ = {};
}

void captured_plan::succeed(content captured) {
  auto made = std::make_shared<held_content>();
  const auto note = [&](const buffer& memory) {
    const device* const where = memory.where();
    if (where == nullptr || memory.on_host()) return;
    if (std::ranges::find(made->homes, where, &home::where) == made->homes.end())
      made->homes.push_back({where, where->current_epoch()});
  };
  for (const operation& one : captured.operations)
    visit_operands(one, [&](const operand& each, std::string_view) { note(each.memory); });
  for (const buffer& one : captured.kept) note(one);
  made->all = std::move(captured);
  std::shared_ptr<const held_content> ready = std::move(made);
  const std::lock_guard lock{guard_};
  content_.swap(ready); // the old content is destroyed after the unlock, or with its last replay
}

void captured_plan::fail(error why) {
  const std::lock_guard lock{guard_};
  failure_ = std::move(why);
}

} // namespace troupe
