#include <troupe/collectives/operation/captured_plan.hpp>

#include <troupe/collectives/operation/extents.hpp>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

namespace troupe {

namespace {

std::uint64_t next_number() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

/// Compares without holding the plan: its destructor must not run under the directory's lock.
bool is_same(const std::weak_ptr<captured_plan>& one, const std::shared_ptr<captured_plan>& other) noexcept {
  return !one.owner_before(other) && !other.owner_before(one);
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
  std::erase_if(
      plans_, [](const auto& one) { return std::ranges::all_of(one.second, &std::weak_ptr<captured_plan>::expired); });
  plans_[plan->options().name].push_back(plan);
}

void plan_directory::replace_by(const std::shared_ptr<captured_plan>& plan) {
  const std::lock_guard lock{mutex_};
  const auto found = plans_.find(plan->options().name);
  if (found == plans_.end()) return;
  auto& all = found->second;
  const auto place = std::ranges::find_if(all, [&](const auto& one) { return is_same(one, plan); });
  if (place != all.end()) all.erase(all.begin(), place);
}

void plan_directory::remove(const std::shared_ptr<captured_plan>& plan) {
  const std::lock_guard lock{mutex_};
  const auto found = plans_.find(plan->options().name);
  if (found == plans_.end()) return;
  std::erase_if(found->second, [&](const auto& one) { return is_same(one, plan); });
  if (found->second.empty()) plans_.erase(found);
}

std::shared_ptr<captured_plan> plan_directory::find(const std::string& name) const {
  const std::lock_guard lock{mutex_};
  const auto found = plans_.find(name);
  return found != plans_.end() ? found->second.back().lock() : nullptr;
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
  if (drop_graphs_) drop_graphs_(number_);
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
    why.effect = effect::rejected; // the replay, whatever became of the capture
    why.ticket.reset();
    why.undefined = nullptr;
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

void captured_plan::begin(world_stamp at, std::function<void(std::uint64_t)> drop_graphs) {
  const std::lock_guard lock{mutex_};
  stamp_ = at;
  drop_graphs_.swap(drop_graphs); // the earlier one is destroyed without the lock
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

} // namespace troupe
