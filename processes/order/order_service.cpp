#include <troupe/completion/poller/wake_signal.hpp>
#include <troupe/processes/order/order_service.hpp>

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

namespace troupe {

static_assert(longest_ring_message_bytes >= longest_batch_bytes);

std::unique_lock<std::mutex> order_service::enter() const {
  // A mutex is not fair: without this count, the thread in run() could lock it again and again while it spins.
  callers_.fetch_add(1);
  std::unique_lock lock{mutex_};
  callers_.fetch_sub(1);
  return lock;
}

std::shared_ptr<shared_doorbell> order_service::bell() {
  const auto lock = enter();
  if (!bell_)
    bell_ = std::make_shared<shared_doorbell>(shared_doorbell::create({.purpose = ring_purpose::service_bell}));
  return bell_;
}

void order_service::begin(epoch of, std::vector<place> ranks) {
  epoch_ = of;
  world_size_ = static_cast<int>(ranks.size());
  places_ = std::move(ranks);
  for (int r = 0; r < world_size_; ++r) places_[static_cast<std::size_t>(r)].where = process_address{r};
  detached_.clear();
  hosts_.clear();
  losses_.clear();
  closed_ = {};
  for_controller_ = from_controller_ = {};
  next_check_ = {};
  last_work_ = steady_now();
  connected_ = static_cast<std::size_t>(
      std::ranges::count_if(places_, [](const place& one) { return one.route.rings.has_value(); }));
}

void order_service::learn(const told_commits& known) {
  const auto lock = enter();
  order_.learn(known);
}

told_commits order_service::commits() {
  const auto lock = enter();
  return order_.commits();
}

void order_service::open(epoch of, std::vector<order_route> ranks, std::vector<host_route> hosts,
                         std::span<const std::optional<rank>> before) {
  {
    const auto lock = enter();
    order_.open(of, static_cast<int>(ranks.size()), before);
    std::vector<place> places;
    places.reserve(ranks.size());
    for (order_route& one : ranks) places.push_back({.route = std::move(one)});
    for (const host_route& host : hosts) {
      order_.delegate(host.ranks);
      for (const rank one : host.ranks) places[static_cast<std::size_t>(one.value())] = {.has_host = true};
    }
    begin(of, std::move(places));
    to_controller_ = nullptr;
    for (host_route& host : hosts) hosts_.push_back({.route = std::move(host)});
  }
  changed_.notify_all();
}

void order_service::open_host(epoch of, int world_size, std::vector<std::pair<rank, ring_connection>> ranks,
                              epoch previous, const sequencer_limits& limits,
                              std::function<void(std::string message)> to_controller, const told_commits& known,
                              const order_continuation& continued) {
  {
    const auto lock = enter();
    std::vector<rank> present;
    present.reserve(ranks.size());
    for (const auto& one : ranks) present.push_back(one.first);
    order_.open_host(of, world_size, present, previous, limits, known, continued);
    std::vector<place> places(static_cast<std::size_t>(world_size));
    for (auto& one : ranks) places[static_cast<std::size_t>(one.first.value())].route.rings = std::move(one.second);
    begin(of, std::move(places));
    to_controller_ = std::move(to_controller);
    has_controller_ = true;
  }
  changed_.notify_all();
}

void order_service::attach(process_address where, order_route route) {
  {
    const auto lock = enter();
    if (epoch_ == epoch{} || closed_) return;
    drop_route(where);
    order_.attach(where);
    places_.push_back({.where = where, .route = std::move(route)});
  }
  changed_.notify_all();
}

void order_service::detach(process_address where) {
  const auto lock = enter();
  if (where.value() >= 0) return;
  drop_route(where);
  order_.detach(where);
  static_cast<void>(deliver_all(steady_now()));
}

std::vector<process_address> order_service::retiring() const {
  const auto lock = enter();
  return order_.retiring();
}

void order_service::expect_farewells(std::span<const process_address> from) {
  const auto lock = enter();
  order_.expect_farewells(from);
}

void order_service::drop_route(process_address where) {
  std::erase_if(places_, [&](const place& one) { return one.where == where; });
}

order_service::place* order_service::find(rank one) {
  return one.value() >= 0 && one.value() < world_size_ ? &places_[static_cast<std::size_t>(one.value())] : nullptr;
}

error order_service::receive(process_address from, std::string_view batch, time_point now) {
  const auto lock = enter();
  error why = order_.receive(from, batch);
  static_cast<void>(deliver_all(now));
  return why;
}

std::vector<std::pair<process_address, error>> order_service::take_detached() {
  const auto lock = enter();
  return std::exchange(detached_, {});
}

void order_service::close(const error& why, time_point now) {
  const auto lock = enter();
  end(why);
  static_cast<void>(deliver_all(now));
}

bool order_service::is_closed() const {
  const auto lock = enter();
  return order_.is_closed();
}

bool order_service::hold(time_point now) {
  const auto lock = enter();
  if (closed_ || !order_.hold()) return false;
  static_cast<void>(deliver_all(now));
  return true;
}

void order_service::mark_held(time_point now) {
  const auto lock = enter();
  if (closed_) return;
  order_.mark_held();
  static_cast<void>(deliver_all(now));
}

void order_service::note_successes(rank from, epoch of, std::uint64_t count) {
  const auto lock = enter();
  if (of == epoch_) order_.note_successes(from, count);
}

void order_service::end(const error& why) {
  if (!closed_) closed_ = why;
  order_.close(why);
}

void order_service::leave_controller() {
  const auto lock = enter();
  has_controller_ = false;
}

void order_service::join_controller() {
  const auto lock = enter();
  if (!to_controller_ || std::exchange(has_controller_, true)) return;
  from_controller_ = {};
  order_.begin_with_controller();
  static_cast<void>(deliver_all(steady_now()));
}

error order_service::receive_from_controller(std::string_view message, time_point now) {
  const auto lock = enter();
  error why;
  host_frame part = decode_host_frame(message, world_size_, why);
  if (why) return why;
  std::ranges::move(part.batches, std::back_inserter(from_controller_.batches));
  if (part.closed) from_controller_.closed = part.closed;
  if (!part.is_complete) return {};
  why = order_.receive_from_controller(std::exchange(from_controller_, {}));
  static_cast<void>(deliver_all(now));
  return why;
}

error order_service::receive_from_host(std::size_t host, std::string_view message, time_point now) {
  const auto lock = enter();
  if (host >= hosts_.size()) return {};
  error why;
  host_frame told = decode_host_frame(message, world_size_, why);
  const std::vector<rank>& own = hosts_[host].route.ranks;
  const auto is_own = [&](const auto& one) { return std::ranges::find(own, one.of) != own.end(); };
  if (!why && !(std::ranges::all_of(told.batches, is_own) && std::ranges::all_of(told.losses, is_own)))
    why = {.code = errc::internal,
           .text = "the order service of a host has sent data of ranks that are not on that host"};
  if (why) return why;
  for (const auto& one : told.batches)
    if (!why) why = order_.receive(one.of, one.bytes, now);
  for (auto& one : told.losses) losses_.push_back({epoch_, one.of, std::move(one.why)});
  std::ranges::move(told.reports, std::back_inserter(straggling_));
  static_cast<void>(deliver_all(now));
  return why;
}

error order_service::receive(rank from, std::string_view batch, time_point now) {
  const auto lock = enter();
  if (place* const one = find(from)) {
    if (one->has_host)
      return {.code = errc::communicator_failed,
              .text = "the process of rank " + to_string(from) +
                      " could not accept the rings in shared memory of its host's order service",
              .rank = from};
    if (one->has_written)
      return {.code = errc::internal,
              .text = "rank " + to_string(from) +
                      " has sent a batch through its connection to the controller, and uses rings in shared memory",
              .rank = from};
    drop_rings(*one);
  }
  error why = order_.receive(from, batch, now);
  static_cast<void>(deliver_all(now));
  return why;
}

void order_service::release(rank one) {
  const auto lock = enter();
  if (place* const found = find(one)) drop_rings(*found);
}

void order_service::expire(time_point now) {
  const auto lock = enter();
  if (order_.next_due() > now) return;
  order_.expire(now);
  static_cast<void>(deliver_all(now));
}

std::vector<order_service::loss> order_service::take_losses() {
  const auto lock = enter();
  return std::exchange(losses_, {});
}

std::vector<std::shared_ptr<const absence_report>> order_service::take_straggling() {
  const auto lock = enter();
  std::ranges::move(order_.take_straggling(), std::back_inserter(straggling_));
  return std::exchange(straggling_, {});
}

std::uint64_t order_service::batches_for(rank to, epoch of) const {
  const auto lock = enter();
  return of == epoch_ ? order_.batches_for(to) : 0;
}

std::shared_ptr<const resume_points> order_service::points() const {
  const auto lock = enter();
  return order_.points();
}

std::vector<open_operation> order_service::open_operations(epoch of) const {
  const auto lock = enter();
  return of == epoch_ ? order_.open_operations() : std::vector<open_operation>{};
}

bool order_service::has_rings(rank one) const {
  const auto lock = enter();
  if (one.value() < 0 || one.value() >= world_size_) return false;
  const place& found = places_[static_cast<std::size_t>(one.value())];
  return found.route.rings || found.has_host;
}

void order_service::drop_rings(place& one) {
  if (!one.route.rings) return;
  one.route.rings.reset();
  if (one.is_rank()) --connected_;
}

void order_service::lose(place& one, error why) {
  drop_rings(one);
  one.route.send = nullptr;
  if (!one.is_rank()) {
    order_.detach(one.where);
    detached_.emplace_back(one.where, std::move(why));
    return;
  }
  const rank self = one.self();
  why.rank = self;
  if (to_controller_) { // the controller decides whether the epoch ends
    for_controller_.losses.push_back({self, std::move(why)});
    return;
  }
  end({.code = errc::communicator_failed, .text = "rank " + to_string(self) + " is lost: " + why.text, .rank = self});
  losses_.push_back({epoch_, self, std::move(why)});
}

bool order_service::read(place& from, time_point now) {
  auto& rings = from.route.rings;
  if (!rings || !rings->has_news() || rings->is_waiting()) return false; // the first question costs least
  if (rings->receive(message_)) {
    from.has_written = true;
    if (error why = from.is_rank() ? order_.receive(from.self(), message_, now) : order_.receive(from.where, message_))
      lose(from, std::move(why));
    return true;
  }
  if (!rings->failure()) return false;
  lose(from, rings->failure());
  return true;
}

bool order_service::check(time_point now) {
  bool is_changed = false;
  if (to_controller_) {
    std::ranges::move(order_.take_straggling(), std::back_inserter(for_controller_.reports));
    deliver_to_controller(true);
  }
  for (place& one : places_) {
    auto& rings = one.route.rings;
    if (!rings || !rings->check_peer()) continue;
    lose(one, rings->failure());
    is_changed = true;
  }
  if (order_.next_due() > now) return is_changed;
  order_.expire(now);
  return true;
}

void order_service::deliver_to(place& to, time_point now) {
  auto& [rings, send] = to.route;
  if (!rings && !send) return;
  if (rings && rings->is_waiting()) rings->flush(now);
  while (!rings || (!rings->is_waiting() && !rings->failure())) {
    if (!(to.is_rank() ? order_.take_outgoing(to.self(), batch_) : order_.take_outgoing(to.where, batch_))) break;
    if (rings)
      rings->post(batch_, now);
    else
      send(std::exchange(batch_, {}));
  }
}

void order_service::deliver_to(remote_host& host) {
  host_frame frame;
  std::size_t size_bytes = 0;
  const auto send = [&](bool is_complete) {
    frame.is_complete = is_complete;
    host.route.send(encode(frame));
    frame = {};
    size_bytes = 0;
  };
  if (closed_ && !std::exchange(host.is_closed, true)) frame.closed = closed_;
  for (const rank one : host.route.ranks)
    for (;;) {
      std::string batch = order_.take_outgoing(one);
      if (batch.empty()) break;
      if (size_bytes + batch.size() > longest_batch_bytes) send(false);
      size_bytes += batch.size();
      frame.batches.push_back({one, std::move(batch)});
    }
  if (!frame.empty()) send(true);
}

void order_service::deliver_to_controller(bool all) {
  if (!has_controller_) return;
  order_.take_for_controller(for_controller_, all);
  if (for_controller_.empty()) return;
  // The batches of different ranks need not be in one message, which has a size limit.
  host_frame rest = std::exchange(for_controller_, {});
  std::size_t size_bytes = 0;
  for (host_frame::rank_batch& one : std::exchange(rest.batches, {})) {
    if (size_bytes + one.bytes.size() > longest_batch_bytes) {
      to_controller_(encode(host_frame{.batches = std::exchange(rest.batches, {})}));
      size_bytes = 0;
    }
    size_bytes += one.bytes.size();
    rest.batches.push_back(std::move(one));
  }
  to_controller_(encode(rest));
}

void order_service::deliver(time_point now) {
  for (remote_host& host : hosts_) deliver_to(host);
  if (to_controller_) deliver_to_controller(false);
  for (place& one : places_) deliver_to(one, now);
  const auto has_posted = [](const place& one) { return one.route.rings && one.route.rings->has_posted(); };
  if (std::ranges::none_of(places_, has_posted)) return;
  bell_->caller().fence(); // one for all, because a fence waits until the writes have reached the other cores
  for (place& one : places_)
    if (has_posted(one)) one.route.rings->wake_posted();
}

bool order_service::deliver_all(time_point now) {
  // Most requests are not the last of their operation, and lead to nothing.
  if (hosts_.empty() && !to_controller_ && !order_.has_outgoing() && !is_any_waiting()) return false;
  deliver(now);
  order_.tidy();
  bool has_lost = false;
  for (place& one : places_)
    if (std::optional<error> why = failure_of(one)) {
      lose(one, *std::move(why));
      has_lost = true;
    }
  if (!has_lost) return false;
  deliver(now); // the refusals at the remaining ranks; a failure of these is found in the next round
  return true;
}

std::optional<error> order_service::failure_of(const place& one) const {
  if (!one.route.rings) return std::nullopt;
  if (const error& why = one.route.rings->failure()) return why;
  const std::size_t waiting = one.is_rank() ? 0 : order_.waiting_bytes(one.where);
  if (waiting <= settings_.most_waiting_bytes) return std::nullopt;
  return error{.code = errc::deadline_exceeded,
               .text = std::to_string(waiting) + " bytes of answers wait for it, and the limit is " +
                       std::to_string(settings_.most_waiting_bytes) +
                       ": it reads them more slowly than it asks for them"};
}

bool order_service::is_any_waiting() const {
  return std::ranges::any_of(places_,
                             [](const place& one) { return one.route.rings && one.route.rings->is_waiting(); });
}

bool order_service::poll(time_point now) {
  const auto lock = enter();
  return do_round(now);
}

bool order_service::do_round(time_point now) {
  bool has_worked = false;
  for (place& one : places_) has_worked = read(one, now) || has_worked;
  if (now >= next_check_ || order_.next_due() <= now) {
    next_check_ = later(now, settings_.check_interval);
    has_worked = check(now) || has_worked;
  }
  if (has_worked || is_any_waiting()) has_worked = deliver_all(now) || has_worked;
  if (has_worked) last_work_ = now;
  return has_worked;
}

nanoseconds order_service::rest(time_point now) {
  const auto lock = enter();
  return find_rest(now);
}

nanoseconds order_service::find_rest(time_point now) {
  // `now` may be earlier than the last work: another thread did it after this round began, or it was timed by another
  // clock.
  const nanoseconds quiet = std::max(now - last_work_, nanoseconds{0});
  if (quiet < settings_.wait.spin) return {};
  time_point until = later(now, settings_.park);
  if (quiet >= settings_.idle_after) until = next_check_ = later(now, settings_.idle_park);
  until = std::min({until, next_check_, order_.next_due()});
  if (is_any_waiting()) until = std::min(until, later(now, ring_sender::room_interval));
  return std::max<nanoseconds>(until - now, nanoseconds{1});
}

void order_service::park(nanoseconds span) {
  // The rings may change while the thread sleeps, but not while it checks them.
  bell_->sleeper().park(
      [this] {
        const std::lock_guard lock{mutex_};
        const auto has_news = [](place& one) {
          auto& rings = one.route.rings;
          return rings && !rings->is_waiting() && rings->has_news();
        };
        return is_stopped_ || std::ranges::any_of(places_, has_news);
      },
      span);
}

void order_service::run() {
  while (!is_stopped_) {
    while (callers_ > 0) std::this_thread::yield();
    const time_point now = steady_now();
    bool has_worked = false, has_news = false;
    nanoseconds sleep{};
    {
      std::unique_lock lock{mutex_};
      // A driver may have rings where no rank has any.
      const auto has_rings = [this] {
        return connected_ > 0 ||
               std::ranges::any_of(places_, [](const place& one) { return one.route.rings.has_value(); });
      };
      if (!has_rings()) {
        changed_.wait(lock, [&] { return is_stopped_ || has_rings(); });
        last_work_ = steady_now();
        continue;
      }
      const std::size_t losses = losses_.size() + detached_.size();
      has_worked = do_round(now);
      if (auto late = to_controller_ ? decltype(straggling_){} : order_.take_straggling(); !late.empty()) {
        std::ranges::move(late, std::back_inserter(straggling_));
        has_news = true;
      }
      has_news = has_news || losses_.size() + detached_.size() > losses;
      if (!has_worked) sleep = find_rest(now);
    }
    if (has_news && settings_.on_news) settings_.on_news();
    if (sleep > nanoseconds{0})
      park(sleep);
    else if (!has_worked)
      spin_pause();
  }
}

void order_service::stop() {
  std::shared_ptr<shared_doorbell> bell;
  {
    const auto lock = enter();
    is_stopped_ = true;
    bell = bell_;
  }
  changed_.notify_all();
  if (bell) bell->caller().ring();
}

} // namespace troupe
