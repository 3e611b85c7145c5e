#include <troupe/collectives/order/distributed/order_server.hpp>
#include <troupe/completion/sources/recycling.hpp>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

namespace troupe {

struct order_server::connection {
  connection(rank one, epoch of) : self{one}, out{of} {}

  rank self;
  request_reader in{};
  decision_writer out;
  std::uint64_t received = 0;                    ///< Number of batches received.
  std::uint64_t asked = 0;                       ///< Number of requests received, in all worlds.
  std::vector<member*> worlds{};                 ///< As a member of each, in the order of their numbers.
  std::size_t max_operations = 0, max_bytes = 0; ///< Of a launch; 0: the rank sends no facts.
};

/// A rank of one world.
struct order_server::member {
  connection* by = nullptr;
  world* of = nullptr;
  rank self{}; ///< In that world.
  std::shared_ptr<success_count> successes = std::make_shared<success_count>();
  std::optional<operation_mark> launched{}, finished{}; ///< As the rank told last.
  bool has_left = false;
  std::uint64_t launch = 0; ///< The last launch in which it has a request.
};

/// The whole world, or one that was split off.
struct order_server::world {
  std::uint64_t number = 0;  ///< Index in worlds_.
  std::uint32_t ordered = 0; ///< Its number in the sequencer.
  std::string key{};         ///< Of its resume log; empty for the whole world.
  std::string name{};        ///< Empty for the whole world.
  std::vector<member> members{};
  turn_table turns{};
  resume_log* log = nullptr;
  bool is_closed = false;
};

/// A rank's request, as far as the controller knows it.
class order_server::request final : public sequenced, public recycled {
public:
  request(const sequencing_terms& terms, member& from, std::uint64_t number, const request_facts& facts,
          std::shared_ptr<const operation_outline> what)
    : sequenced{terms},
      from_{from},
      number_{number},
      facts_{facts},
      names_position_{terms.position.has_value()},
      what_{std::move(what)} {}

  [[nodiscard]] const operation& what() const noexcept override { return what_->what; }
  [[nodiscard]] compact_signature sketch() const noexcept override { return what_->sketch; }
  [[nodiscard]] member& from() const noexcept { return from_; }
  [[nodiscard]] const request_facts& facts() const noexcept { return facts_; }
  [[nodiscard]] std::uint64_t number() const noexcept { return number_; }
  /// Returns the position if the client did not give it.
  [[nodiscard]] std::optional<std::uint64_t> position_to_tell() const noexcept {
    return names_position_ ? std::nullopt : terms().position;
  }

private:
  member& from_;
  std::uint64_t number_;
  request_facts facts_;
  bool names_position_;
  std::shared_ptr<const operation_outline> what_;
};

namespace {

/// Limit for the operations of a launch, whatever a rank says.
constexpr std::uint64_t most_operations_in_launch = 65'536;

} // namespace

order_server::order_server(sequencer_limits limits) : limits_{limits} {}
order_server::~order_server() = default;

void order_server::open(epoch of, int world_size) {
  if (ranks_.size() == 1) log_.forget(); // a rank that is alone orders its requests by itself
  if (ranks_.size() != static_cast<std::size_t>(world_size)) logs_.clear();
  order_ = std::make_unique<sequencer>(limits_);
  epoch_ = of;
  closed_ = false;
  composed_ = nullptr;
  worlds_.clear();
  ranks_.clear();
  std::vector<connection*> all;
  for (int r = 0; r < world_size; ++r)
    all.push_back(ranks_.emplace_back(std::make_unique<connection>(rank{r}, of)).get());
  open_world({}, {}, all, log_);
}

order_server::world& order_server::open_world(std::string key, std::string name, const std::vector<connection*>& ranks,
                                              resume_log& log) {
  const auto size = static_cast<int>(ranks.size());
  world& made = *worlds_.emplace_back(std::make_unique<world>());
  made.number = worlds_.size() - 1;
  made.ordered = order_->open_world(size);
  made.key = std::move(key);
  made.name = std::move(name);
  made.turns.open(size, limits_.lead);
  made.log = &log;
  made.members.resize(ranks.size());
  std::vector<std::shared_ptr<const success_count>> successes;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    member& one = made.members[r];
    one.by = ranks[r];
    one.of = &made;
    one.self = rank{static_cast<int>(r)};
    one.by->worlds.push_back(&one);
    successes.push_back(one.successes);
  }
  log.begin(epoch_, std::move(successes));
  return made;
}

std::uint64_t order_server::open_groups(const world& parent, std::span<const rank_group> groups) {
  const std::uint64_t first = worlds_.size();
  for (const rank_group& group : groups) {
    std::vector<connection*> ranks;
    std::string key = parent.key + '/' + group.name + ':';
    for (const rank one : group.members) {
      ranks.push_back(parent.members[static_cast<std::size_t>(one.value())].by);
      key += to_string(one) + ',';
    }
    // Equal groups are told apart by the order of their splits, which is the same in each epoch.
    std::string unused = key + '0';
    const auto is_used = [&](const auto& one) { return !one->is_closed && one->key == unused; };
    for (int k = 1; std::ranges::any_of(worlds_, is_used); ++k) unused = key + std::to_string(k);
    resume_log& log = logs_[unused];
    open_world(std::move(unused), group.name, ranks, log);
  }
  return first;
}

void order_server::close(error why) {
  if (!order_ || std::exchange(closed_, true)) return;
  for (const auto& one : worlds_) order_->close_world(one->ordered, why, effects_);
  settle();
}

void order_server::leave(member& from, const error& why) {
  world& of = *from.of;
  if (std::exchange(from.has_left, true)) return;
  error told = why;
  told.text = "rank " + to_string(from.self) + " has left the sub-world '" + of.name + "': " + why.text;
  told.rank = from.self;
  order_->leave(of.ordered, from.self, told, effects_);
  settle();
  of.turns.close(told, turn_answers_);
  tell_turns(of);
  from.by->out.closed(of.number);
  composed_ = nullptr;
  if (!std::ranges::all_of(of.members, &member::has_left)) return;
  of.is_closed = true;
  logs_.erase(of.key);
  of.log = nullptr;
}

order_server::member* order_server::find_member(std::uint64_t number, const connection& by) const {
  if (number == 0) return by.worlds.front();
  const auto found = std::ranges::lower_bound(by.worlds, number, {}, [](const member* one) { return one->of->number; });
  return found != by.worlds.end() && (*found)->of->number == number ? *found : nullptr;
}

error order_server::receive(rank from, std::string_view batch, time_point now) {
  const std::string name = "a batch of rank " + to_string(from);
  if (from.value() < 0 || static_cast<std::size_t>(from.value()) >= ranks_.size())
    return {.code = errc::internal,
            .text = name + " has arrived at a world of " + std::to_string(ranks_.size()) + " ranks",
            .rank = from};
  connection& by = *ranks_[static_cast<std::size_t>(from.value())];
  const member& self = *by.worlds.front();
  wire_reader in{batch};
  const batch_header header = batch_header::read(in);
  if (in.ok() && header.epoch < epoch_) return {};
  if (in.ok() && header.epoch > epoch_) in.refuse("it is of an epoch that has not begun");
  if (in.ok() && header.number != by.received + 1) in.refuse("batches before it are missing, or it is a duplicate");
  if (in.ok() && (header.succeeded > log_.released_to(from) || header.succeeded < self.successes->value()))
    in.refuse("it counts successes of requests that were not released");
  if (in.ok()) {
    by.out.has_seen(by.received = header.number);
    self.successes->set(header.succeeded);
  }
  request_record one;
  error failure;
  while (!failure && by.in.next(in, one)) take(by, one, now, failure);
  settle();
  if (!failure) failure = in.failure(name);
  if (failure) failure.rank = from;
  return failure;
}

void order_server::take(connection& by, request_record& one, time_point now, error& failure) {
  member* const found = find_member(one.world, by);
  if (found == nullptr) {
    failure = {.code = errc::internal,
               .text = "rank " + to_string(by.self) + " has sent a request for world " + std::to_string(one.world) +
                       ", which does not exist or is not its own"};
    return;
  }
  member& from = *found;
  world& of = *from.of;
  switch (one.kind) {
    case request_record::form::ask:
      if (one.facts.bytes > 0 && (one.facts.overlaps > by.asked || by.max_operations == 0))
        failure = {.code = errc::internal,
                   .text = "rank " + to_string(by.self) + " has sent facts of a request that cannot be"};
      else
        ask(from, one, now);
      break;
    case request_record::form::cancel:
      if (!one.why) static_cast<void>(order_->cancel(of.ordered, from.self, one.where, *one.position, effects_));
      break;
    case request_record::form::withdraw: order_->withdraw(of.ordered, from.self, one.client, one.why, effects_); break;
    case request_record::form::turn:
      settle(); // operations that were released earlier go first
      if (!one.turn.split.empty()) failure = check_groups(one.turn.split, static_cast<int>(of.members.size()));
      if (failure) failure.code = errc::internal; // its process has checked them
      if (!failure && !closed_) of.turns.ask(from.self, std::move(one.turn), now, turn_answers_);
      tell_turns(of);
      break;
    case request_record::form::capture_launch:
    case request_record::form::capture_end:
    case request_record::form::capture_failure:
      failure = of.turns.take(from.self, one, turn_answers_);
      tell_turns(of);
      break;
    case request_record::form::progress:
      from.launched = std::move(one.launched);
      from.finished = std::move(one.finished);
      break;
    case request_record::form::limits:
      by.max_operations = static_cast<std::size_t>(std::min<std::uint64_t>(one.count, most_operations_in_launch));
      by.max_bytes = static_cast<std::size_t>(one.bytes);
      break;
    case request_record::form::succeeded:
      if (of.is_closed) break;
      if (one.count > of.log->released_to(from.self) || one.count < from.successes->value())
        failure = {.code = errc::internal,
                   .text = "rank " + to_string(by.self) + " counts successes of requests that were not released"};
      else
        from.successes->set(one.count);
      break;
    case request_record::form::close: leave(from, one.why); break;
  }
}

void order_server::ask(member& from, request_record& asked, time_point now) {
  const std::uint64_t number = ++from.by->asked;
  if (asked.why) {
    asked.why.rank = from.self;
    return from.by->out.refuse(number, asked.why, nullptr);
  }
  const sequencing_terms terms{.world = from.of->ordered,
                               .rank = from.self,
                               .lane = asked.where,
                               .client = asked.client,
                               .position = asked.position,
                               .asked = now,
                               .deadline = later(now, asked.deadline)};
  order_->ask(std::make_unique<request>(terms, from, number, asked.facts, std::move(asked.what)), effects_);
}

void order_server::tell_turns(const world& of) {
  if (!turn_answers_.empty()) composed_ = nullptr; // what is released later comes behind a turn
  // The answers to one turn are adjacent. Opening worlds invalidates no reference.
  const std::vector<rank_group>* split = nullptr;
  std::uint64_t first = 0;
  std::vector<opened_world> opened;
  for (const turn_answer& one : turn_answers_) {
    const member& to = of.members[static_cast<std::size_t>(one.to.value())];
    if (one.kind == turn_answer::form::capture) {
      to.by->out.capture(of.number, one.number, one.agreed, one.why);
      continue;
    }
    if (one.split && one.split.get() != split) first = open_groups(of, *one.split);
    split = one.split.get();
    opened.clear();
    for (std::size_t i = 0; split != nullptr && i < split->size(); ++i)
      if (std::ranges::find((*split)[i].members, one.to) != (*split)[i].members.end())
        opened.push_back({.number = first + i, .group = i, .resume = worlds_[first + i]->log->points()});
    to.by->out.turn(of.number, one.number, one.why, opened);
  }
  turn_answers_.clear();
}

error order_server::places_objection(std::span<const std::unique_ptr<sequenced>> released) {
  const auto& first = static_cast<const request&>(*released.front());
  for (const auto& one : released) {
    const auto& other = static_cast<const request&>(*one);
    if (other.facts().places == first.facts().places) continue;
    return {.code = errc::mismatch,
            .text = "the ranks disagree about registered memory in " + describe(first) + ": ranks " +
                    to_string(first.terms().rank) + " and " + to_string(other.terms().rank) +
                    " use different places of it, or one uses none: give every rank its buffer of the same allocation"};
  }
  return {};
}

bool order_server::joins_previous(const world& of, std::span<const std::unique_ptr<sequenced>> released) {
  const auto part = [&](std::size_t i) -> const request& { return static_cast<const request&>(*released[i]); };
  if (part(0).facts().bytes == 0) { // it is launched alone
    composed_ = nullptr;
    return false;
  }
  if (std::exchange(composed_, &of) != &of) {
    const connection& any = *part(0).from().by; // the limits are the same at all ranks
    composer_.begin(static_cast<int>(of.members.size()), any.max_operations, any.max_bytes);
  }
  parts_.clear();
  for (std::size_t i = 0; i < released.size(); ++i)
    parts_.push_back({static_cast<std::size_t>(part(i).terms().rank.value()), part(i).number(), part(i).facts()});
  return composer_.add(parts_);
}

void order_server::settle() {
  std::size_t next = 0;
  for (const std::size_t end : effects_.ends) {
    const auto& first = static_cast<const request&>(*effects_.released[next]);
    participants_.clear();
    if (const error objection = places_objection(std::span{effects_.released}.subspan(next, end - next))) {
      for (; next < end; ++next) effects_.refused.push_back({std::move(effects_.released[next]), objection});
      continue;
    }
    const bool joins = joins_previous(*first.from().of, std::span{effects_.released}.subspan(next, end - next));
    if (!joins) ++launch_;
    for (; next < end; ++next) {
      const auto& released = static_cast<const request&>(*effects_.released[next]);
      participants_.push_back(released.terms().rank);
      const bool joins_here = std::exchange(released.from().launch, launch_) == launch_;
      released.from().by->out.release(released.number(), released.position_to_tell(), joins_here);
    }
    const request_origin from{.lane = first.terms().lane, .position = first.terms().position.value_or(0)};
    first.from().of->log->released(epoch_, first.terms().lane, participants_, commit_of(first.what()),
                                   {launch_, operation_sketch{first.what(), from}});
  }
  for (auto& one : effects_.refused) {
    const auto& refused = static_cast<const request&>(*one.what);
    refused.from().by->out.refuse(refused.number(), one.why, completed(one.absence, *refused.from().of));
  }
  // A refusal may fill a batch, and what is launched together must be in one.
  if (!effects_.refused.empty()) composed_ = nullptr;
  for (const auto& one : effects_.straggling) {
    const auto found = std::ranges::find(worlds_, one->world, [](const auto& of) { return of->ordered; });
    straggling_.push_back(completed(one, **found));
  }
  effects_.clear();
}

std::shared_ptr<absence_report> order_server::completed(const std::shared_ptr<absence_report>& report,
                                                        const world& of) {
  if (!report || report == incomplete_) return report ? completed_ : nullptr;
  incomplete_ = report;
  completed_ = std::make_shared<absence_report>(*report); // a copy, because a listener may be reading an earlier one
  completed_->sub_world = of.name;
  for (auto& one : completed_->ranks) {
    const member& from = of.members[static_cast<std::size_t>(one.rank.value())];
    one.last_launched = from.launched;
    one.last_finished = from.finished;
  }
  return completed_;
}

void order_server::expire(time_point now) {
  if (!order_) return;
  order_->expire(now, effects_);
  settle();
  for (const auto& one : worlds_) {
    one->turns.expire(now, turn_answers_);
    tell_turns(*one);
  }
}

time_point order_server::next_due() const noexcept {
  if (!order_) return time_point::max();
  time_point due = order_->next_due();
  for (const auto& one : worlds_) due = std::min(due, one->turns.next_due());
  return due;
}

std::string order_server::take_outgoing(rank to) {
  const auto index = static_cast<std::size_t>(to.value());
  composed_ = nullptr; // what is released later is not in this batch
  return to.value() >= 0 && index < ranks_.size() ? ranks_[index]->out.take() : std::string{};
}

std::uint64_t order_server::batches_for(rank to) const noexcept {
  const auto index = static_cast<std::size_t>(to.value());
  return to.value() >= 0 && index < ranks_.size() ? ranks_[index]->out.batches() : 0;
}

std::vector<std::shared_ptr<const absence_report>> order_server::take_straggling() {
  return std::exchange(straggling_, {});
}

std::shared_ptr<const resume_points> order_server::points() const {
  return log_.points();
}

std::vector<open_operation> order_server::open_operations() const {
  std::vector<open_operation> all;
  for (const auto& of : worlds_) {
    if (of->log == nullptr) continue;
    for (auto& one : of->log->first_open()) {
      open_operation& made = all.emplace_back(
          open_operation{.number = one.number, .sub_world = of->name, .what = std::move(one.what), .ranks = {}});
      for (const auto& [who, has_finished] : one.participants) {
        const member& at = of->members[static_cast<std::size_t>(who.value())];
        // A rank has launched its first open operation if it has launched anything since the last one that it finished.
        // If this is not its first one, that one is judged.
        const bool has_launched = has_finished || (at.launched && at.launched != at.finished);
        made.ranks.push_back({.rank = at.by->self, .has_launched = has_launched, .has_finished = has_finished});
      }
    }
  }
  return all;
}

std::size_t order_server::waiting() const noexcept {
  return order_ ? order_->waiting() : 0;
}

} // namespace troupe
