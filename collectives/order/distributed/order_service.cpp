#include <troupe/collectives/order/distributed/order_service.hpp>
#include <troupe/completion/poller/wake_signal.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

static_assert(longest_ring_message_bytes >= longest_batch_bytes);

namespace {

/// While decisions wait for room in a ring, whose reader wakes nobody, rounds are at most this far apart.
constexpr nanoseconds room_interval = std::chrono::microseconds{100};

} // namespace

order_service::order_service(const order_service_settings& settings)
  : settings_{settings},
    bell_{std::make_shared<shared_doorbell>(shared_doorbell::create({.purpose = ring_purpose::service_bell}))},
    order_{settings.limits} {}

void order_service::open(epoch of, std::vector<ring_connection> ranks) {
  order_.open(of, static_cast<int>(ranks.size()));
  ranks_.clear();
  losses_.clear();
  next_check_ = {};
  connected_ = ranks.size();
  for (ring_connection& one : ranks) ranks_.emplace_back(std::move(one));
}

void order_service::close(const error& why, time_point now) {
  order_.close(why);
  deliver(now);
}

void order_service::lose(std::size_t index, error why) {
  const rank self{static_cast<int>(index)};
  why.rank = self;
  ranks_[index].reset();
  --connected_;
  order_.close({.code = errc::world_failed, .text = "rank " + to_string(self) + " is lost: " + why.text, .rank = self});
  losses_.push_back({self, std::move(why)});
}

bool order_service::read(std::size_t index, time_point now) {
  auto& from = ranks_[index];
  if (!from || from->is_waiting()) return false;
  if (from->receive(message_)) {
    if (error why = order_.receive(rank{static_cast<int>(index)}, message_, now)) lose(index, std::move(why));
    return true;
  }
  if (!from->failure()) return false;
  lose(index, from->failure());
  return true;
}

bool order_service::check(time_point now) {
  next_check_ = later(now, settings_.check_interval);
  bool is_changed = false;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (!ranks_[i] || !ranks_[i]->check_peer()) continue;
    lose(i, ranks_[i]->failure());
    is_changed = true;
  }
  if (order_.next_due() > now) return is_changed;
  order_.expire(now);
  return true;
}

void order_service::deliver(time_point now) {
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    auto& to = ranks_[i];
    if (!to) continue;
    to->flush(now);
    while (!to->is_waiting() && !to->failure()) {
      const std::string batch = order_.take_outgoing(rank{static_cast<int>(i)});
      if (batch.empty()) break;
      to->send(batch, now);
    }
  }
}

bool order_service::poll(time_point now) {
  bool has_worked = false;
  for (std::size_t i = 0; i < ranks_.size(); ++i) has_worked = read(i, now) || has_worked;
  if (now >= next_check_) has_worked = check(now) || has_worked;
  const bool is_waiting = std::ranges::any_of(ranks_, [](const auto& one) { return one && one->is_waiting(); });
  if (!has_worked && !is_waiting) return false;
  deliver(now);
  bool has_lost = false;
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    if (ranks_[i] && ranks_[i]->failure()) {
      lose(i, ranks_[i]->failure());
      has_lost = true;
    }
  if (has_lost) deliver(now); // the refusals at the remaining ranks; a failure of these is found in the next round
  return has_worked || has_lost;
}

void order_service::park(time_point now) {
  nanoseconds span = std::min<nanoseconds>(settings_.park, std::max<nanoseconds>(next_check_ - now, nanoseconds{1}));
  if (std::ranges::any_of(ranks_, [](const auto& one) { return one && one->is_waiting(); }))
    span = std::min(span, room_interval);
  bell_->sleeper().park(
      [this] {
        return std::ranges::any_of(ranks_, [](auto& one) { return one && !one->is_waiting() && one->has_news(); });
      },
      span);
}

void order_service::run(const std::atomic<bool>& stop) {
  time_point last_work = steady_now();
  while (!stop.load(std::memory_order_relaxed) && connected_ > 0) {
    const time_point now = steady_now();
    if (poll(now))
      last_work = now;
    else if (now - last_work < settings_.wait.spin)
      spin_pause();
    else
      park(now);
  }
}

} // namespace troupe
