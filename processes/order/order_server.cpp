#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/operation/agreement.hpp>
#include <troupe/collectives/order/codec/report_codec.hpp>
#include <troupe/completion/sources/recycling.hpp>
#include <troupe/processes/order/order_server.hpp>
#include <troupe/processes/order/peer_requests.hpp>

#include <algorithm>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <variant>

namespace troupe {

/// The records that a host's object passes on between one of its ranks and the controller.
struct order_server::passing {
  explicit passing(int world_size) : in{world_size} {}

  request_writer out{};
  decision_reader in;
  std::uint64_t sent = 0;           ///< Number of batches sent to the controller.
  std::uint64_t received = 0;       ///< Number of batches received from the controller.
  std::uint64_t asked = 0;          ///< Number of requests that were passed on. The controller counts only these.
  std::uint64_t sent_successes = 0; ///< Number of successes in the whole world that the controller knows.
  bool is_urgent = false;           ///< A record in `out` can lead to a decision.
  /// Translates the controller's number of a request to the rank's. Contains the requests that are not decided.
  std::unordered_map<std::uint64_t, std::uint64_t> undecided{};
};

struct order_server::connection {
  connection(rank one, epoch of) : self{one}, out{of} {}

  rank self;
  request_reader in{};
  decision_writer out;
  std::uint64_t received = 0;                    ///< Number of batches received.
  std::uint64_t asked = 0;                       ///< Number of requests received, in all worlds.
  std::vector<member*> worlds{};                 ///< The rank's memberships, in the order of the worlds' numbers.
  std::size_t max_operations = 0, max_bytes = 0; ///< Limits of a launch; 0: the rank sends no facts.
  int host = 0;                                  ///< The host whose service also decides for this rank; 0: none.
  std::unique_ptr<passing> upward{};             ///< Set only in a host's object.
};

/// The connection of a process without a rank.
struct order_server::attached_process {
  explicit attached_process(epoch of) : out{of} {}

  request_reader in{request_reader::only_messages{}};
  decision_writer out;
  std::uint64_t received = 0; ///< Number of batches received.
};

/// A rank of one world.
struct order_server::member {
  connection* by = nullptr; ///< In a host's object, null for a rank of another host.
  world* of = nullptr;
  rank self{}; ///< In that world.
  std::shared_ptr<success_count> successes = std::make_shared<success_count>();
  std::optional<operation_mark> launched{}, finished{}; ///< According to the rank's latest report.
  bool has_left = false;
  std::uint64_t launch = 0; ///< The last launch in which it has a request.
  // Used only in a host's object, for worlds that the controller decides.
  std::uint64_t turns = 0;                                   ///< Number of turns that the rank has requested.
  std::map<std::uint64_t, std::vector<rank_group>> splits{}; ///< The groups of each split, by the number of its turn.
};

/// The whole world, or one that was split off.
struct order_server::world {
  std::uint64_t number = 0;
  bool is_decided_here = true;
  std::uint32_t ordered = 0; ///< Its number in the sequencer, if it is decided here.
  std::string key{};         ///< The key of its resume log; empty for the whole world.
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
  /// Returns the position, which is sent to the rank, if the client did not give it.
  [[nodiscard]] std::optional<std::uint64_t> position_to_send() const noexcept {
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

/// Maximum number of operations in a launch, even if a rank names a larger limit.
constexpr std::uint64_t most_operations_in_launch = 65'536;
/// The first number of a world that a host's object opens. The controller's numbers are smaller.
constexpr std::uint64_t first_number_of_hosts = std::uint64_t{1} << 40U;

/// An empty message says that its sender has left the world.
decision_record message_of(std::uint64_t world, process_address from, std::string bytes = {}) {
  return {.kind = decision_record::form::message, .world = world, .from = from, .message = std::move(bytes)};
}

} // namespace

order_server::order_server(sequencer_limits limits) : limits_{limits} {}
order_server::~order_server() = default;

void order_server::begin(epoch of, int world_size) {
  if (ranks_.size() != static_cast<std::size_t>(world_size)) logs_.clear();
  for (const auto& [who, answered] : retiring_) log_.drop(lane_of(who));
  retiring_.clear();
  visitors_.clear();
  order_ = std::make_unique<sequencer>(limits_);
  epoch_ = of;
  closed_ = held_ = false;
  composed_ = nullptr;
  spent_.clear();
  worlds_.clear();
  attached_.clear();
  ranks_.clear();
  ranks_.resize(static_cast<std::size_t>(world_size));
}

order_server::lane_positions order_server::held_positions(std::span<const std::optional<rank>> before) const {
  lane_positions all;
  for (std::size_t r = 0; held_ && r < before.size(); ++r)
    if (before[r]) all.emplace_back(static_cast<int>(r), order_->positions(whole().ordered, *before[r]));
  return all;
}

void order_server::open(epoch of, int world_size, std::span<const std::optional<rank>> before) {
  const lane_positions positions = held_positions(before);
  begin(of, world_size);
  is_host_ = false;
  next_number_ = 1;
  std::vector<connection*> all;
  for (int r = 0; r < world_size; ++r) {
    auto& one = ranks_[static_cast<std::size_t>(r)];
    one = std::make_unique<connection>(rank{r}, of);
    all.push_back(one.get());
  }
  begin_log(open_world(0, {}, {}, all), log_);
  for (const auto& [self, lanes] : positions) order_->continue_at(whole().ordered, self, lanes);
  if (world_size == 1) log_.stop(); // a rank that is alone orders its requests by itself
}

void order_server::delegate(std::span<const rank> ranks) {
  int host = 1;
  for (const auto& one : ranks_) host = std::max(host, one->host + 1);
  for (const rank one : ranks)
    if (connection* const found = find_rank(one)) found->host = host;
  drop_logs(ranks, false); // the host's service keeps them from now on
  if (!std::ranges::all_of(ranks_, [&](const auto& one) { return one->host == host; })) return;
  log_.stop();
  order_->close_world(whole().ordered, {.code = errc::internal, .text = "another service decides"}, effects_);
  whole().is_decided_here = false;
}

void order_server::open_host(epoch of, int world_size, std::span<const rank> present, epoch previous,
                             const sequencer_limits& limits, const told_commits& known,
                             const order_continuation& continued) {
  const auto exists = [&](rank one) { return one.value() >= 0 && one.value() < world_size; };
  if (present.empty() || !std::ranges::all_of(present, exists))
    throw exception{errc::invalid_argument,
                    "the order service of a host was given no rank, or a rank that does not exist"};
  const bool continues = is_host_ && previous == epoch_;
  if (!continues) {
    logs_.clear();
    log_.forget();
  }
  lane_positions positions;
  if (continues && !continued.empty()) {
    for (std::size_t r = 0; r < continued.successes.size(); ++r)
      note_successes(rank{static_cast<int>(r)}, continued.successes[r]);
    positions = held_positions(continued.before);
  }
  limits_ = limits;
  begin(of, world_size);
  drop_logs(present, true); // the controller decides for these
  is_host_ = true;
  next_number_ = first_number_of_hosts;
  std::vector<connection*> all(ranks_.size());
  for (const rank one : present) {
    auto& made = ranks_[static_cast<std::size_t>(one.value())];
    made = std::make_unique<connection>(one, of);
    made->upward = std::make_unique<passing>(world_size);
    made->out.passes_on();
    all[static_cast<std::size_t>(one.value())] = made.get();
  }
  world& opened = open_world(0, {}, {}, all);
  if (!opened.is_decided_here) return log_.forget(); // the controller keeps it
  log_.learn(known);
  begin_log(opened, log_);
  for (const auto& [self, lanes] : positions) order_->continue_at(opened.ordered, self, lanes);
}

void order_server::drop_logs(std::span<const rank> ranks, bool of_others) {
  std::erase_if(logs_, [&](const auto& one) {
    const bool has_all = std::ranges::all_of(one.second.members,
                                             [&](rank each) { return std::ranges::find(ranks, each) != ranks.end(); });
    return has_all != of_others;
  });
}

order_server::world& order_server::open_world(std::uint64_t number, std::string key, std::string name,
                                              const std::vector<connection*>& ranks) {
  const auto size = static_cast<int>(ranks.size());
  world& made = *worlds_.emplace_back(std::make_unique<world>());
  made.number = number;
  made.key = std::move(key);
  made.name = std::move(name);
  made.members.resize(ranks.size());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    member& one = made.members[r];
    one.by = ranks[r];
    one.of = &made;
    one.self = rank{static_cast<int>(r)};
    if (one.by == nullptr) continue;
    auto& all = one.by->worlds;
    all.insert(std::ranges::upper_bound(all, number, {}, [](const member* each) { return each->of->number; }), &one);
  }
  const auto is_elsewhere = [&](const connection* one) {
    return is_host_ ? one == nullptr : one->host == 0 || one->host != ranks.front()->host;
  };
  made.is_decided_here = std::ranges::any_of(ranks, is_elsewhere) != is_host_;
  if (!made.is_decided_here) return made;
  made.ordered = order_->open_world(size);
  made.turns.open(size, limits_.lead);
  return made;
}

void order_server::begin_log(world& of, resume_log& log) {
  std::vector<std::shared_ptr<const success_count>> successes;
  for (const member& one : of.members) successes.push_back(one.successes);
  of.log = &log;
  log.begin(epoch_, std::move(successes));
}

order_server::world& order_server::open_group(const world& parent, const rank_group& group, std::uint64_t number,
                                              const told_commits& known, std::size_t share) {
  std::vector<connection*> ranks;
  std::string key = parent.key + '/' + group.name + ':';
  for (const rank one : group.members) {
    ranks.push_back(parent.members[static_cast<std::size_t>(one.value())].by);
    key += to_string(one) + ',';
  }
  // Equal groups are distinguished by the order of their splits, which is the same in each epoch.
  std::string unused = key + '0';
  const auto is_used = [&](const auto& one) { return !one->is_closed && one->key == unused; };
  for (int k = 1; std::ranges::any_of(worlds_, is_used); ++k) unused = key + std::to_string(k);
  world& made = open_world(number, unused, group.name, ranks);
  if (!made.is_decided_here) return made;
  world_log& kept = logs_[unused];
  kept.members.clear();
  for (const connection* one : ranks) kept.members.push_back(one->self);
  // A rank that is alone orders its requests by itself, as in open(). What its process knows is all there is to know.
  const bool is_alone = ranks.size() == 1;
  told_commits told = known;
  if (is_alone && told.of != epoch{}) told.of = epoch_;
  kept.log.learn(told);
  begin_log(made, kept.log);
  if (share > 1) kept.log.bound_points(share);
  if (is_alone) kept.log.stop();
  return made;
}

void order_server::close(const error& why) {
  if (!order_ || std::exchange(closed_, true)) return;
  for (const auto& one : ranks_)
    if (one) one->out.add({.kind = decision_record::form::ending, .why = why});
  for (const auto& one : worlds_)
    if (one->is_decided_here) order_->close_world(one->ordered, why, effects_);
  settle();
  // A rank that waits for a turn before it stops would wait forever.
  for (const auto& one : worlds_) {
    if (!one->is_decided_here) continue;
    one->turns.close(why, turn_answers_);
    write_turns(*one);
  }
}

bool order_server::hold() {
  if (!order_ || closed_ || !whole().is_decided_here || !order_->can_hand_over(whole().ordered)) return false;
  for (const auto& one : ranks_) one->out.acknowledge(); // nothing that comes later is, not even what reports successes
  return held_ = true;
}

void order_server::mark_held() {
  for (const auto& one : ranks_) one->out.mark();
}

void order_server::note_successes(rank from, std::uint64_t count) {
  connection* const found = find_rank(from);
  if (found == nullptr || !held_) return;
  success_count& known = *found->worlds.front()->successes;
  if (count > known.value() && count <= log_.released_to(from)) known.set(count);
}

void order_server::leave(member& from, const error& why) {
  world& of = *from.of;
  if (std::exchange(from.has_left, true)) return;
  error told = why;
  const std::string where = of.number == 0 ? "the world" : "the sub-world '" + of.name + "'";
  told.text = "rank " + to_string(from.self) + " has left " + where + ": " + why.text;
  told.rank = from.self;
  order_->leave(of.ordered, from.self, told, effects_);
  settle();
  of.turns.close(told, turn_answers_);
  write_turns(of);
  from.by->out.add({.kind = decision_record::form::closed, .world = of.number});
  const decision_record notice = message_of(of.number, process_address{from.self.value()});
  for (const member& one : of.members)
    if (!one.has_left) one.by->out.add(notice);
  if (of.number == 0) {
    for (auto& [at, one] : attached_) one.out.add(notice);
    std::erase_if(retiring_, [this](const auto& one) { return retire(one.first, one.second); });
  }
  composed_ = nullptr;
  if (of.number == 0 || !std::ranges::all_of(of.members, &member::has_left)) return;
  of.is_closed = true;
  logs_.erase(of.key);
  of.log = nullptr;
}

order_server::member* order_server::find_member(std::uint64_t number, const connection& by) const {
  const auto found = std::ranges::lower_bound(by.worlds, number, {}, [](const member* one) { return one->of->number; });
  return found != by.worlds.end() && (*found)->of->number == number ? *found : nullptr;
}

order_server::connection* order_server::find_rank(rank one) const noexcept {
  const auto index = static_cast<std::size_t>(one.value());
  return one.value() >= 0 && index < ranks_.size() ? ranks_[index].get() : nullptr;
}

error order_server::receive(rank from, std::string_view batch, time_point now) {
  error failure; // the only object that is returned, so that nothing is moved
  const auto name = [from] { return "a batch of rank " + to_string(from); };
  connection* const found = find_rank(from);
  if (found == nullptr) {
    failure = {.code = errc::internal,
               .text = name() + " has arrived at a world of " + std::to_string(ranks_.size()) + " ranks" +
                       (is_host_ ? ", not all of which are on this host" : ""),
               .rank = from};
    return failure;
  }
  connection& by = *found;
  const member& self = *by.worlds.front();
  const bool is_checked = self.of->is_decided_here; // else by the controller
  wire_reader in{batch};
  const batch_header header = batch_header::read(in);
  if (in.ok() && header.epoch < epoch_) return failure;
  if (header.epoch > epoch_) in.refuse("it is of an epoch that has not begun");
  if (held_) { // the report of the rank's successes may have overtaken it
    if (in.ok()) note_successes(from, header.succeeded);
    failure = in.failure(name());
    return failure;
  }
  if (header.number != by.received + 1) in.refuse("batches before it are missing, or it is a duplicate");
  if ((is_checked && header.succeeded > log_.released_to(from)) || header.succeeded < self.successes->value())
    in.refuse("it counts successes of requests that were not released");
  if (in.ok()) {
    by.received = header.number;
    if (by.host == 0) by.out.has_seen(header.number, batch.size()); // else its service acknowledges its batches
    self.successes->set(header.succeeded);
  }
  while (!failure && by.in.next(in, record_)) take(by, record_, now, failure);
  settle();
  if (!in.ok() && !failure) failure = in.failure(name());
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
  if (one.kind == request_record::form::limits) {
    by.max_operations = static_cast<std::size_t>(std::min<std::uint64_t>(one.count, most_operations_in_launch));
    by.max_bytes = static_cast<std::size_t>(one.bytes);
    if (by.upward) by.upward->out.add(one);
    return;
  }
  if (one.kind == request_record::form::message) return pass_message(from, one, failure);
  if (!of.is_decided_here) return pass_on(from, one, failure);
  switch (one.kind) {
    case request_record::form::ask:
      if (one.facts.bytes > 0 && (one.facts.overlaps > by.asked || by.max_operations == 0))
        failure = {.code = errc::internal,
                   .text = "rank " + to_string(by.self) + " has sent impossible facts of a request"};
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
      if (!failure) of.turns.ask(from.self, std::move(one.turn), now, turn_answers_);
      write_turns(of);
      break;
    case request_record::form::capture_launch:
    case request_record::form::capture_end:
    case request_record::form::capture_failure:
      failure = of.turns.take(from.self, one, turn_answers_);
      write_turns(of);
      break;
    case request_record::form::progress:
      from.launched = std::move(one.launched);
      from.finished = std::move(one.finished);
      break;
    case request_record::form::limits: // handled above
    case request_record::form::message:
    case request_record::form::name: // never returned by the reader
    case request_record::form::select:
    case request_record::form::objection: break;
    case request_record::form::succeeded:
      if (of.is_closed) break;
      if (one.count > of.log->released_to(from.self) || one.count < from.successes->value())
        failure = {.code = errc::internal,
                   .text = "rank " + to_string(by.self) + " counts successes of requests that were not released"};
      else
        from.successes->set(one.count);
      break;
    case request_record::form::close: leave(from, one.why);
  }
}

void order_server::pass_on(member& from, request_record& one, error& failure) {
  connection& by = *from.by;
  if (!by.upward) {
    failure = {.code = errc::internal,
               .text = "rank " + to_string(by.self) + " has sent the controller a request for world " +
                       std::to_string(from.of->number) + ", for which the order service of its host decides"};
    return;
  }
  passing& up = *by.upward;
  up.out.select(from.of->number);
  if (one.kind == request_record::form::ask) {
    const std::uint64_t number = ++by.asked;
    if (one.facts.overlaps > 0) one.facts.overlaps = up.asked; // its number for the controller, or a later one
    const bool is_copy = std::holds_alternative<copy>(one.what->what);
    error why = one.why;
    if (!why)
      why = up.out.ask(one.what->what, one.where, one.client, one.position, one.deadline, one.facts,
                       is_copy ? std::optional<std::uint64_t>{one.what->sketch.count} : std::nullopt,
                       one.objection.get());
    if (why) {
      why.rank = from.self;
      return by.out.refuse(number, why, nullptr);
    }
    up.undecided.emplace(++up.asked, number);
    up.is_urgent = true;
    return;
  }
  if (one.kind == request_record::form::cancel && one.why) return;
  if (one.kind == request_record::form::turn) {
    ++from.turns;
    if (!one.turn.split.empty()) {
      failure = check_groups(one.turn.split, static_cast<int>(from.of->members.size()));
      if (failure) failure.code = errc::internal; // its process has checked them
      from.splits.emplace(from.turns, one.turn.split);
    }
  }
  if (one.kind == request_record::form::capture_launch)
    one.outline = outline_of_launch(pointers_to(one.launch), one.divisible, one.places);
  up.out.add(one);
  const bool can_wait = one.kind == request_record::form::progress || one.kind == request_record::form::succeeded;
  up.is_urgent = up.is_urgent || !can_wait;
}

void order_server::write_message(connection& to, const decision_record& message) {
  if (to.out.add(message)) composed_ = nullptr; // requests launched together must be in one batch
}

void order_server::pass_message(const member& from, request_record& one, error& failure) {
  const world& of = *from.of;
  const int to = one.to.value();
  if (to >= static_cast<int>(of.members.size()) || (to < 0 && of.number != 0)) {
    failure = {.code = errc::internal,
               .text = "rank " + to_string(from.by->self) + " has sent a message to process " + std::to_string(to) +
                       ", which is not in its world"};
    return;
  }
  if (to < 0 && one.message.empty()) take_farewell(from, one.to);
  if (to >= 0 && of.members[static_cast<std::size_t>(to)].has_left) {
    write_message(*from.by, message_of(of.number, one.to));
  } else if (to >= 0 && of.members[static_cast<std::size_t>(to)].by != nullptr) {
    write_message(*of.members[static_cast<std::size_t>(to)].by,
                  message_of(of.number, process_address{from.self.value()}, std::move(one.message)));
  } else if (from.by->upward) { // the controller passes it on
    passing& up = *from.by->upward;
    up.out.select(of.number);
    up.out.add(one);
    up.is_urgent = true;
  } else if (const auto found = attached_.find(one.to); found != attached_.end()) { // else the process is detached
    found->second.out.add(message_of(0, process_address{from.self.value()}, std::move(one.message)));
  }
}

void order_server::attach(process_address where) {
  if (where.value() < 0 && order_) attached_.try_emplace(where, epoch_);
}

void order_server::detach(process_address where) {
  if (!order_) return;
  const bool was_attached = attached_.erase(where) > 0;
  log_.drop(lane_of(where));
  if (!was_attached || closed_) return; // else the ranks forget it with the epoch
  for (const member& one : whole().members)
    if (!one.has_left) write_message(*one.by, message_of(0, where));
  const std::vector<char> answered(whole().members.size());
  if (!retire(where, answered)) retiring_.emplace(where, answered);
}

void order_server::take_farewell(const member& from, process_address who) {
  // A host's object learns of a detached process only by this.
  if (from.by->upward && whole().is_decided_here) retiring_.try_emplace(who, whole().members.size());
  const auto found = retiring_.find(who);
  if (found == retiring_.end()) return;
  found->second[static_cast<std::size_t>(from.self.value())] = 1;
  if (retire(who, found->second)) retiring_.erase(found);
}

bool order_server::retire(process_address who, const std::vector<char>& answered) {
  const auto has_ended = [&](const member& one) {
    return one.has_left || answered[static_cast<std::size_t>(one.self.value())] != 0;
  };
  if (!std::ranges::all_of(whole().members, has_ended)) return false;
  if (!whole().is_decided_here) return true;
  order_->retire(whole().ordered, lane_of(who),
                 {.code = errc::abandoned, .text = "the process that made the request has ended"}, effects_);
  settle();
  log_.drop(lane_of(who));
  return true;
}

std::vector<process_address> order_server::retiring() const {
  std::vector<process_address> all;
  for (const auto& one : retiring_) all.push_back(one.first);
  all.insert(all.end(), visitors_.begin(), visitors_.end());
  return all;
}

void order_server::expect_farewells(std::span<const process_address> from) {
  if (!order_) return;
  for (const process_address one : from)
    if (one.value() < 0) retiring_.try_emplace(one, whole().members.size());
}

error order_server::receive(process_address from, std::string_view batch) {
  const auto found = attached_.find(from);
  if (found == attached_.end()) return {};
  if (held_) return {};
  attached_process& by = found->second;
  wire_reader in{batch};
  const batch_header told = batch_header::read(in);
  if (in.ok() && told.epoch < epoch_) return {};
  if (told.epoch > epoch_ || told.number != by.received + 1) in.refuse("it is not the next batch of this epoch");
  if (in.ok()) by.out.has_seen(by.received = told.number, batch.size());
  request_record one;
  const auto size = static_cast<int>(ranks_.size());
  while (by.in.next(in, one)) {
    // The reader returns only messages in the whole world.
    if (one.to.value() < 0 || one.to.value() >= size || one.message.empty()) {
      in.refuse("it has an empty message, or one to a rank that does not exist");
      break;
    }
    const member& to = whole().members[static_cast<std::size_t>(one.to.value())];
    if (to.has_left) {
      by.out.add(message_of(0, one.to));
      continue;
    }
    if (!closed_) write_message(*to.by, message_of(0, from, std::move(one.message)));
  }
  return in.failure("a batch of process " + std::to_string(from.value()));
}

void order_server::begin_with_controller() {
  for (const auto& one : ranks_) {
    if (!one || !one->upward) continue;
    one->upward = std::make_unique<passing>(static_cast<int>(ranks_.size()));
    one->out.has_passed_on(0); // it counts its batches anew
  }
  if (closed_) return; // the ranks forget them with the epoch
  for (const auto& [who, answered] : retiring_)
    for (const member& one : whole().members)
      if (answered[static_cast<std::size_t>(one.self.value())] != 0)
        one.by->upward->out.add({.kind = request_record::form::message, .to = who});
  for (const process_address who : visitors_) {
    for (const member& one : whole().members)
      if (!one.has_left) write_message(*one.by, message_of(0, who));
    retiring_.try_emplace(who, whole().members.size());
  }
  visitors_.clear();
}

error order_server::receive_from_controller(const host_frame& decided) {
  if (decided.closed) close(decided.closed);
  composed_ = nullptr; // later releases come after these decisions
  for (const auto& [to, bytes] : decided.batches) {
    const std::string name = "a batch of decisions for rank " + to_string(to);
    connection* const found = find_rank(to);
    if (found == nullptr || !found->upward)
      return {.code = errc::internal, .text = name + " has arrived at a host that does not have this rank", .rank = to};
    passing& up = *found->upward;
    wire_reader in{bytes};
    const batch_header header = batch_header::read(in);
    if (in.ok() && header.epoch < epoch_) continue;
    if (header.epoch > epoch_) in.refuse("it is of an epoch that has not begun");
    if (header.number != up.received + 1) in.refuse("batches before it are missing, or it is a duplicate");
    decision_record one;
    while (up.in.next(in, one)) follow(*found, one);
    if (error why = in.failure(name)) {
      why.rank = to;
      return why;
    }
    found->out.has_passed_on(up.received = header.number);
  }
  return {};
}

void order_server::follow(connection& to, decision_record& one) {
  const auto number = [&] {
    const auto node = to.upward->undecided.extract(one.number);
    return node.empty() ? 0 : node.mapped(); // its process reports that no request has this number
  };
  switch (one.kind) {
    case decision_record::form::release:
      value_.clear();
      if (one.value) agreed_field(value_, *one.value);
      to.out.release(number(), one.position, one.joins, value_.view());
      break;
    case decision_record::form::refusal: to.out.refuse(number(), one.why, one.absence); break;
    case decision_record::form::capture:
    case decision_record::form::ending: to.out.add(one); break;
    case decision_record::form::closed:
      if (member* const left = find_member(one.world, to)) left->has_left = true;
      to.out.add(one);
      break;
    case decision_record::form::message:
      note_visitor(one);
      write_message(to, one);
      break;
    case decision_record::form::turn: {
      member* const from = find_member(one.world, to);
      const auto split = from == nullptr ? decltype(from->splits)::node_type{} : from->splits.extract(one.number);
      const std::size_t share = split.empty() ? 1 : value_share(split.mapped(), from->of->members.size());
      for (opened_world& opened : one.opened) {
        if (split.empty() || opened.group >= split.mapped().size()) break;
        const auto known = std::ranges::find(worlds_, opened.number, [](const auto& each) { return each->number; });
        const world& made = known != worlds_.end() ? **known
                                                   : open_group(*from->of, split.mapped()[opened.group], opened.number,
                                                                opened.told, share);
        if (made.is_decided_here) opened.resume = made.log->points();
      }
      to.out.add(one);
      break;
    }
  }
}

void order_server::note_visitor(const decision_record& message) {
  if (message.from.value() >= 0 || !whole().is_decided_here) return;
  if (!message.message.empty())
    visitors_.insert(message.from);
  else if (visitors_.erase(message.from) > 0) // the first rank that is told
    retiring_.try_emplace(message.from, whole().members.size());
}

void order_server::take_for_controller(host_frame& into, bool all) {
  for (const auto& one : ranks_) {
    if (!one) continue;
    passing& up = *one->upward;
    const member& self = *one->worlds.front();
    const std::uint64_t succeeded = self.of->is_decided_here ? 0 : self.successes->value();
    const bool has_news = !up.out.empty() || succeeded != up.sent_successes;
    if (!up.is_urgent && !(all && has_news)) continue;
    up.is_urgent = false;
    up.sent_successes = succeeded;
    into.batches.push_back(
        {one->self, up.out.take({.epoch = epoch_, .number = ++up.sent, .seen = up.received, .succeeded = succeeded})});
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
                               .deadline = later(now, asked.deadline),
                               .objection = std::move(asked.objection)};
  order_->ask(std::make_unique<request>(terms, from, number, asked.facts, std::move(asked.what)), effects_);
}

void order_server::write_turns(const world& of) {
  if (turn_answers_.empty()) return;
  composed_ = nullptr; // later releases come after a turn
  // If one of them answers a split, all answer the same one. Opening worlds invalidates no reference.
  const turn_answer& first = turn_answers_.front();
  std::vector<const world*> groups;
  const std::size_t share = first.split ? value_share(*first.split, of.members.size()) : 1;
  for (std::size_t i = 0; first.split && i < first.split->size(); ++i)
    groups.push_back(&open_group(of, (*first.split)[i], next_number_++, (*first.told)[i], share));
  for (turn_answer& one : turn_answers_) {
    const member& to = of.members[static_cast<std::size_t>(one.to.value())];
    const bool is_turn = one.kind == turn_answer::form::turn;
    decision_record told{.kind = is_turn ? decision_record::form::turn : decision_record::form::capture,
                         .world = of.number,
                         .number = one.number,
                         .why = std::move(one.why),
                         .agreed = one.agreed};
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const auto& members = (*first.split)[i].members;
      if (std::ranges::find(members, one.to) == members.end()) continue;
      const world& made = *groups[i];
      if (made.log != nullptr)
        told.opened.push_back({.number = made.number, .group = i, .resume = made.log->points()});
      else
        told.opened.push_back({.number = made.number, .group = i, .told = (*first.told)[i]});
    }
    to.by->out.add(told);
  }
  turn_answers_.clear();
}

error order_server::places_objection(std::span<const std::unique_ptr<sequenced>> released) {
  const auto& first = static_cast<const request&>(*released.front());
  for (const auto& one : released) {
    const auto& other = static_cast<const request&>(*one);
    if (other.facts().places == first.facts().places) continue;
    return different_places(describe(first), first.terms().rank, other.terms().rank);
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

std::shared_ptr<agreed_value> order_server::decide(std::span<const std::unique_ptr<sequenced>> released, error& why) {
  if (!std::holds_alternative<agree>(released.front()->what())) return nullptr;
  std::vector<const agree*> all;
  all.reserve(released.size());
  for (const auto& one : released) all.push_back(&std::get<agree>(one->what()));
  auto result = agreed_value_of(all);
  if (auto* const value = std::get_if<agreed_value>(&result)) return std::make_shared<agreed_value>(std::move(*value));
  why = std::move(std::get<error>(result));
  return nullptr;
}

void order_server::settle() {
  if (effects_.empty()) return;
  std::size_t next = 0;
  for (const std::size_t end : effects_.ends) {
    const auto& first = static_cast<const request&>(*effects_.released[next]);
    participants_.clear();
    error objection = places_objection(std::span{effects_.released}.subspan(next, end - next));
    std::shared_ptr<agreed_value> agreed;
    if (!objection) agreed = decide(std::span{effects_.released}.subspan(next, end - next), objection);
    if (objection) {
      for (; next < end; ++next) effects_.refused.push_back({std::move(effects_.released[next]), objection});
      continue;
    }
    const bool joins = joins_previous(*first.from().of, std::span{effects_.released}.subspan(next, end - next));
    if (!joins) ++launch_;
    for (std::size_t i = next; i < end; ++i) participants_.push_back(effects_.released[i]->terms().rank);
    const request_origin from{.lane = first.terms().lane, .position = first.terms().position.value_or(0)};
    if (agreed) agreed->epoch = epoch_;
    first.from().of->log->released(epoch_, first.terms().lane, participants_, commit_of(first.what()),
                                   {launch_, operation_sketch{first.what(), from}}, agreed);
    value_.clear();
    if (agreed) agreed_field(value_, *agreed); // the log has set its position
    for (; next < end; ++next) {
      const auto& released = static_cast<const request&>(*effects_.released[next]);
      const bool joins_here = std::exchange(released.from().launch, launch_) == launch_ && joins;
      released.from().by->out.release(released.number(), released.position_to_send(), joins_here, value_.view());
    }
  }
  for (auto& one : effects_.refused) {
    const auto& refused = static_cast<const request&>(*one.what);
    refused.from().by->out.refuse(refused.number(), one.why, completed(one.absence, *refused.from().of));
  }
  // A refusal may fill a batch, and requests launched together must be in one batch.
  if (!effects_.refused.empty()) composed_ = nullptr;
  for (const auto& one : effects_.straggling) {
    const auto found = std::ranges::find(worlds_, std::optional{one->world}, [](const auto& of) {
      return of->is_decided_here ? std::optional{of->ordered} : std::nullopt;
    });
    straggling_.push_back(completed(one, **found));
  }
  spent_.clear();
  std::swap(effects_, spent_);
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
  if (!order_ || held_) return;
  order_->expire(now, effects_);
  settle();
  for (const auto& one : worlds_) {
    one->turns.expire(now, turn_answers_);
    write_turns(*one);
  }
}

time_point order_server::next_due() const noexcept {
  if (!order_ || held_) return time_point::max();
  time_point due = order_->next_due();
  for (const auto& one : worlds_) due = std::min(due, one->turns.next_due());
  return due;
}

bool order_server::has_outgoing() const noexcept {
  return std::ranges::any_of(ranks_, [](const auto& one) { return one && !one->out.empty(); }) ||
         std::ranges::any_of(attached_, [](const auto& one) { return !one.second.out.empty(); });
}

bool order_server::take_outgoing(rank to, std::string& into) {
  composed_ = nullptr; // later releases are not in this batch
  connection* const found = find_rank(to);
  return found != nullptr && found->out.take(into);
}

bool order_server::take_outgoing(process_address to, std::string& into) {
  const auto found = attached_.find(to);
  return found != attached_.end() && found->second.out.take(into);
}

std::size_t order_server::waiting_bytes(process_address to) const {
  const auto found = attached_.find(to);
  return found != attached_.end() ? found->second.out.waiting_bytes() : 0;
}

std::uint64_t order_server::batches_for(rank to) const noexcept {
  const connection* const found = find_rank(to);
  return found != nullptr ? found->out.batches() : 0;
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
    for (open_operation& one : of->log->first_open()) {
      one.sub_world = of->name;
      for (auto& each : one.ranks) {
        const member& at = of->members[static_cast<std::size_t>(each.rank.value())];
        // A rank has launched its first open operation if it has launched anything since the last one that it finished.
        // For a later operation this may be wrong, but judge_hang() then blames the first one.
        each.has_launched = each.has_finished || (at.launched && at.launched != at.finished);
        each.rank = at.by->self;
      }
      all.push_back(std::move(one));
    }
  }
  return all;
}

std::size_t order_server::waiting() const noexcept {
  return order_ ? order_->waiting() : 0;
}

} // namespace troupe
