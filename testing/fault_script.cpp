#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/testing/fault_script.hpp>

#include <algorithm>
#include <iterator>
#include <variant>

namespace troupe::testing {

namespace {

/// Records the memory of a single operation, or of the first part of a group.
void note_memory(launch_record& into, const operation& what) {
  std::visit(
      [&]<class Operation>(const Operation& one) {
        if constexpr (requires { one.send, one.recv; }) {
          into.send = one.send.memory.data();
          into.recv = one.recv.memory.data();
        } else if constexpr (std::is_same_v<Operation, send>) {
          into.send = one.memory.memory.data();
        } else if constexpr (std::is_same_v<Operation, recv>) {
          into.recv = one.memory.memory.data();
        } else if constexpr (std::is_same_v<Operation, group>) {
          if (!one.parts.empty()) note_memory(into, one.parts.front());
        }
      },
      what);
}

std::size_t count_of(const operation& what) {
  return std::visit(
      []<class Operation>(const Operation& one) -> std::size_t {
        if constexpr (requires { one.count; })
          return one.count;
        else if constexpr (std::is_same_v<Operation, group>)
          return one.parts.size();
        else
          return 0;
      },
      what);
}

} // namespace

std::string describe(const launch_record& one) {
  std::string text = one.text;
  if (!one.by)
    text += "; for a plan";
  else if (one.by->of_world)
    text += "; of the world (request " + to_string(one.by->request) + ")";
  else
    text += "; in lane " + one.by->in.name() + " (request " + std::to_string(one.by->position) + ")";
  if (one.by && one.by->client != 0) text += ", by client " + std::to_string(one.by->client);
  return text + "; epoch " + to_string(one.epoch) + ", " + std::string{to_string(one.fate)};
}

launch_record record_of(const operation& what) {
  launch_record made;
  made.operation = name_of(what);
  made.count = count_of(what);
  made.text = describe(what);
  note_memory(made, what);
  return made;
}

std::vector<std::string_view> names_of(const std::vector<launch_record>& all) {
  std::vector<std::string_view> names;
  names.reserve(all.size());
  for (const launch_record& one : all) names.push_back(one.operation);
  return names;
}

namespace {

constexpr const char* scripted = "an injected fault: ";

void check_loss(errc code) {
  if (code != errc::device_failed && code != errc::process_poisoned)
    throw exception{errc::invalid_argument,
                    "a lost device fails with device_failed or, for a sticky error, with process_poisoned, not with " +
                        std::string{to_string(code)}};
}

error scripted_error(errc code, rank target, const std::string& what) {
  return {.code = code, .text = scripted + what, .rank = target};
}

} // namespace

fault_script::fault_script(launch_recording recording)
  : recording_{recording}, changed_{std::make_unique<condition>()} {}

fault_script::~fault_script() = default;

fault_script::rank_lines fault_script::on(rank target) {
  if (target < rank{0})
    throw exception{errc::invalid_argument, "there is no rank " + to_string(target) + ": ranks are counted from 0"};
  return {*this, target};
}

std::future<time_point> fault_script::add(line one, fault_action what, errc code, nanoseconds span) {
  if ((what == fault_action::fail || what == fault_action::fail_later) && code == errc::none)
    throw exception{errc::invalid_argument, "a fault needs an error code other than errc::none"};
  if (what == fault_action::lose_device) check_loss(code);
  if (span < nanoseconds{0})
    throw exception{errc::invalid_argument,
                    "a delay of " + std::to_string(span.count()) + " ns is negative: give 0 or more"};
  one.what = what;
  one.code = code;
  one.span = span;
  one.time = std::make_shared<std::promise<time_point>>();
  auto time = one.time->get_future();
  const std::lock_guard lock{mutex_};
  lines_.push_back(std::move(one));
  return time;
}

void fault_script::add_device_fault(rank target, std::function<void(mock_driver&, device_id)> what) {
  const std::lock_guard lock{mutex_};
  if (devices_ != nullptr)
    what(*devices_, device_id{target.value()});
  else
    device_faults_.emplace_back(target, std::move(what));
}

void fault_script::attach(mock_driver* devices) {
  const std::lock_guard lock{mutex_};
  devices_ = devices;
  if (devices_ == nullptr) return;
  for (const auto& [target, what] : std::exchange(device_faults_, {})) what(*devices_, device_id{target.value()});
}

std::vector<launch_record> fault_script::launches(rank target) const {
  const std::lock_guard lock{mutex_};
  const auto found = launches_.find(target);
  return found == launches_.end() ? std::vector<launch_record>{} : found->second;
}

std::vector<std::string> fault_script::waiting() const {
  const std::lock_guard lock{mutex_};
  std::vector<std::string> texts;
  for (const line& one : lines_)
    if (!one.happened) texts.push_back(text_of(one));
  for (const auto& [target, what] : device_faults_)
    texts.push_back("rank " + to_string(target) + ": a fault of its device or memory, before there is a world");
  return texts;
}

std::vector<ended_abort> fault_script::take_ended_aborts() {
  const std::lock_guard lock{mutex_};
  return std::exchange(ended_, {});
}

std::string fault_script::text_of(const line& one) {
  std::string text = "rank " + to_string(one.target) + (one.number ? ", " : ", next ");
  switch (one.when) {
    case trigger::operation: text += one.operation.empty() ? "operation" : one.operation; break;
    case trigger::forming: text += "forming"; break;
    case trigger::registering: text += "registration"; break;
    case trigger::check: text += "check"; break;
    case trigger::abort: text += one.number ? "abort of forming" : "abort"; break;
  }
  if (one.number) text += " " + std::to_string(*one.number);
  if (one.formation) text += " of epoch " + std::to_string(*one.formation + 1);
  switch (one.what) {
    case fault_action::fail: return text + ": fails with " + std::string{to_string(one.code)};
    case fault_action::fail_later: return text + ": fails later with " + std::string{to_string(one.code)};
    case fault_action::hang: return text + ": hangs";
    case fault_action::delay: return text + ": takes " + std::to_string(one.span.count()) + " ns longer";
    case fault_action::lose_device: return text + ": its device fails with " + std::string{to_string(one.code)};
  }
  return text;
}

void fault_script::release() {
  const std::lock_guard lock{mutex_};
  lines_.clear();
  device_faults_.clear();
  ++releases_;
  changed_->notify_all();
}

bool fault_script::is_any(const std::string& name, operations all) {
  return name.empty() || std::ranges::any_of(all, [&](const operation* one) { return name_of(*one) == name; });
}

std::vector<fault_script::line> fault_script::take(trigger when, const fault_place& who, std::uint64_t number,
                                                   operations all) {
  const std::uint64_t end = number + std::max<std::size_t>(all.size(), 1);
  std::vector<line> now;
  for (line& one : lines_) {
    if (one.happened || one.when != when || one.target != who.rank) continue;
    if (one.number && (*one.number < number || *one.number >= end)) continue;
    if (one.formation && *one.formation != who.formation) continue;
    if (!is_any(one.operation, all)) continue;
    one.happened = true;
    one.time->set_value(steady_now());
    now.push_back(one);
  }
  return now;
}

void fault_script::wait(std::unique_lock<std::mutex>& lock, const std::vector<line>& now) {
  nanoseconds longer{0};
  for (const line& one : now) longer += one.span;
  if (longer == nanoseconds{0}) return;
  const std::uint64_t before = releases_;
  changed_->wait_for(lock, longer, [&] { return releases_ != before; });
}

void fault_script::before_init(const fault_place& who) {
  std::unique_lock lock{mutex_};
  const auto now = take(trigger::forming, who, who.formation);
  wait(lock, now);
  for (const line& one : now) {
    if (one.what == fault_action::hang) {
      const std::uint64_t before = releases_;
      changed_->wait(lock, [&] { return releases_ != before || progress_[place_of(who)].aborted; });
      throw exception{scripted_error(errc::communicator_failed, who.rank, text_of(one) + " until it was ended")};
    }
    if (one.what == fault_action::fail) throw exception{scripted_error(one.code, who.rank, text_of(one))};
  }
}

void fault_script::before_register(const fault_place& who, const registered_region&) {
  std::unique_lock lock{mutex_};
  const auto now = take(trigger::registering, who, progress_[place_of(who)].registrations++);
  wait(lock, now);
  for (const line& one : now)
    if (one.what == fault_action::fail) throw exception{scripted_error(one.code, who.rank, text_of(one))};
}

void fault_script::about_to_launch(const launch_notice& next) noexcept {
  const std::lock_guard lock{mutex_};
  auto& now = imminent_[next.where];
  now.clear();
  for (const launched_request& one : next.all)
    now.push_back({one.what,
                   {.request = one.name,
                    .of_world = one.from.of_world,
                    .in = one.from.lane,
                    .position = one.from.position,
                    .client = one.from.client,
                    .rank = next.self,
                    .epoch = next.formed_in}});
}

std::optional<launch_asker> fault_script::asker_of(device_id where, const operation* what) const {
  const auto found = imminent_.find(where);
  if (found == imminent_.end() || found->second.empty()) return std::nullopt;
  for (const imminent_launch& one : found->second)
    if (one.what == what) return one.by;
  return found->second.front().by; // a part of the request: staged memory is launched in chunks
}

bool fault_script::before_launch(const fault_place& who, std::span<const operation* const> all) {
  std::unique_lock lock{mutex_};
  progress& mine = progress_[place_of(who)];
  const std::uint64_t first = std::exchange(mine.operations, mine.operations + all.size());
  const std::uint64_t call = mine.calls++;
  auto& records = launches_[who.rank];
  const std::size_t begin = records.size();
  for (std::size_t i = 0; recording_ == launch_recording::on && i < all.size(); ++i) {
    launch_record one = record_of(*all[i]);
    one.rank = who.rank;
    one.epoch = epoch{who.formation + 1};
    one.number = first + i;
    one.call = call;
    one.at = steady_now();
    one.by = asker_of(who.device, all[i]);
    records.push_back(std::move(one));
  }
  const std::size_t recorded = records.size() - begin;
  const auto fated = [&](launch_fate fate) {
    for (std::size_t i = begin; i < begin + recorded; ++i) launches_[who.rank][i].fate = fate;
  };
  const auto is_withheld = [&] {
    return std::ranges::any_of(mine.withheld, [&](const std::string& name) { return is_any(name, all); });
  };
  if (is_withheld()) {
    fated(launch_fate::withheld);
    return false;
  }
  const auto now = take(trigger::operation, who, first, all);
  for (const line& one : now)
    if (one.what == fault_action::hang) mine.withheld.push_back(one.operation);
  wait(lock, now);
  if (is_withheld()) {
    fated(launch_fate::withheld);
    return false;
  }
  for (const line& one : now) {
    if (one.what == fault_action::fail) {
      fated(launch_fate::refused);
      throw exception{scripted_error(one.code, who.rank, text_of(one))};
    }
    if (one.what == fault_action::fail_later) mine.found_later = scripted_error(one.code, who.rank, text_of(one));
    if (one.what == fault_action::lose_device && devices_ != nullptr)
      devices_->fail_next(who.device, scripted_error(one.code, who.rank, text_of(one)));
  }
  return true;
}

void fault_script::before_check(const fault_place& who) {
  const std::lock_guard lock{mutex_};
  for (const line& one : take(trigger::check, who, 0))
    throw exception{scripted_error(one.code, who.rank, text_of(one))};
  const auto found = progress_.find(place_of(who));
  if (found == progress_.end() || !found->second.found_later) return;
  throw exception{*std::exchange(found->second.found_later, std::nullopt)};
}

void fault_script::before_abort(const fault_place& who) {
  std::unique_lock lock{mutex_};
  progress_[place_of(who)].aborted = true;
  changed_->notify_all();
  wait(lock, take(trigger::abort, who, who.formation));
}

void fault_script::after_abort(const fault_place& who) {
  const std::lock_guard lock{mutex_};
  ended_.push_back({who, steady_now()});
}

fault_script::rank_lines fault_script::rank_lines::in(epoch one) const {
  if (one < epoch{1})
    throw exception{errc::invalid_argument, "there is no epoch " + to_string(one) + ": epochs are counted from 1"};
  rank_lines made = *this;
  made.formation_ = one.value() - 1;
  return made;
}

fault_script::operation_line fault_script::rank_lines::operation(std::uint64_t number) const {
  return {of_, {.target = target_, .number = number, .formation = formation_}};
}

fault_script::forming_line fault_script::rank_lines::forming(std::uint64_t number) const {
  return {of_, {.target = target_, .number = number}};
}

fault_script::registering_line fault_script::rank_lines::registering(std::uint64_t number) const {
  return {of_, {.target = target_, .number = number, .formation = formation_}};
}

fault_script::abort_line fault_script::rank_lines::aborting(std::uint64_t number) const {
  return {of_, {.target = target_, .number = number}};
}

fault_script::operation_line fault_script::rank_lines::next_operation(std::string_view name) const {
  return {of_, {.target = target_, .operation = std::string{name}, .formation = formation_}};
}

fault_script::forming_line fault_script::rank_lines::next_forming() const {
  return {of_, {.target = target_}};
}

fault_script::check_line fault_script::rank_lines::next_check() const {
  return {of_, {.target = target_}};
}

fault_script::abort_line fault_script::rank_lines::next_abort() const {
  return {of_, {.target = target_}};
}

void fault_script::rank_lines::out_of_memory_after(std::size_t size_bytes) const {
  of_.add_device_fault(target_, [size_bytes](mock_driver& api, device_id id) { api.exhaust_after(id, size_bytes); });
}

void fault_script::rank_lines::lose_device(errc code) const {
  check_loss(code);
  const error why = scripted_error(code, target_, "the device is lost");
  of_.add_device_fault(target_, [why](mock_driver& api, device_id id) { api.fail_next(id, why); });
}

} // namespace troupe::testing
