#include <troupe/processes/world_driver.hpp>

#include <troupe/actors/world/world_status.hpp>
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/collective_methods_definitions.hpp>
#include <troupe/device/process_mark.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/processes/control/driver_session.hpp>
#include <troupe/processes/membership/controlled_membership.hpp>
#include <troupe/processes/membership/controller_connection.hpp>
#include <troupe/runtime/logging.hpp>
#include <troupe/runtime/recording/flight_record.hpp>

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <variant>

namespace troupe {

namespace {

std::uint64_t draw_holder() {
  std::random_device entropy;
  return (std::uint64_t{entropy()} << 32U) | entropy() | 1U;
}

} // namespace

struct world_driver::parts {
  explicit parts(const configuration& settings)
    : controller{settings.control, settings.control.assignment.token, settings.control.patience} {
    const std::string host = host_name();
    session = std::make_shared<driver_session>(
        session_services{.time = std::make_shared<monotonic_clock>(),
                         .send = [this](std::string bytes) { controller.send(std::move(bytes)); },
                         .patience = settings.control.patience},
        process_identity{.name = host + ":" + std::to_string(::getpid()), .host = host, .pid = ::getpid()},
        settings.control.assignment.token,
        driver_services{.knock = [port = gate_port(settings.control)] { return knock_at_gate(port); },
                        .changed = [this](const world_event& now) { hear(now); },
                        .warned = [](const error& why) { log_warning(to_string(why)); },
                        .agreed = [this](const std::string& where, const agreed_value& value) { hear(where, value); },
                        .ring_wait = choose_wait(settings.profile, 1, std::thread::hardware_concurrency()).wait,
                        .default_deadline = settings.deadlines.operation,
                        .holder = draw_holder()});
    controller.begin(controller_connection::hooks_of(session), "troupe/driver");
  }

  ~parts() {
    std::unique_lock lock{mutex};
    const auto unheard = std::exchange(listeners, {}); // the end of this object is not reported
    const auto no_values = std::exchange(agreed_listeners, {});
    lock.unlock();
    session->close({.code = errc::abandoned, .text = "the driver has ended before the request was answered"});
    controller.stop();
  }

  /// In a fork, which shares the connections and has none of the threads, answers \p reply and returns true.
  template <class Promise>
  [[nodiscard]] bool refuses(Promise& reply) const {
    if (!made.is_inherited()) return false;
    reply.deliver(used_in_fork("this driver"));
    return true;
  }

  /// Returns the session. Its lock can be held for good in a fork, whose parent's threads it does not have. Errors:
  /// unsupported (a fork).
  [[nodiscard]] driver_session& own() const {
    if (made.is_inherited()) throw exception{used_in_fork("this driver")};
    return *session;
  }

  void hear(const world_event& event) {
    std::unique_lock lock{mutex};
    const auto told = listeners;
    lock.unlock();
    changed.notify_all();
    for (const auto& one : told) one(event);
  }

  void hear(const std::string& where, const agreed_value& value) {
    std::unique_lock lock{mutex};
    const auto told = agreed_listeners;
    lock.unlock();
    for (const auto& one : told) one(where, value);
  }

  const process_mark made;
  controller_connection controller;
  std::shared_ptr<driver_session> session;
  std::mutex mutex;
  condition changed;
  std::vector<std::function<void(const world_event&)>> listeners;
  std::vector<peer_requests::agreed_listener> agreed_listeners;
};

world_driver::world_driver(const configuration& settings)
  : parts_{new parts{settings}, [](parts* one) {
             if (!one->made.is_inherited()) delete one; // a fork has none of its threads, and shares its connections
           }} {}

world_event world_driver::status() const {
  return parts_->own().state();
}

bool world_driver::has_rings() const {
  return parts_->own().has_rings();
}

world_event world_driver::wait_ready(nanoseconds at_most) const {
  return wait_ready(troupe::epoch{}, at_most);
}

world_event world_driver::wait_ready(troupe::epoch after, nanoseconds at_most) const {
  const driver_session& session = parts_->own();
  std::unique_lock lock{parts_->mutex};
  world_event now;
  static_cast<void>(parts_->changed.wait_for(lock, at_most, [&] {
    now = session.state(); // what hear() was told last may be older
    return is_ready_after(now, after);
  }));
  return now;
}

void world_driver::on_event(std::function<void(const world_event&)> heard) {
  static_cast<void>(parts_->own());
  const std::lock_guard lock{parts_->mutex};
  parts_->listeners.push_back(std::move(heard));
}

void world_driver::on_agreed(std::function<void(const std::string& where, const agreed_value& value)> heard) {
  driver_session& session = parts_->own();
  {
    const std::lock_guard lock{parts_->mutex};
    parts_->agreed_listeners.push_back(std::move(heard));
  }
  session.hear_agreed();
}

void world_driver::ask(world_request asked, reply_promise reply) {
  if (parts_->refuses(reply)) return;
  parts_->session->ask(std::move(asked), std::move(reply));
}

std::future<remote_buffer> world_driver::find_memory(rank target, const std::string& name, nanoseconds deadline) const {
  auto [reply, future] = make_value_promise<remote_buffer>();
  find_memory(target, name, deadline, std::move(reply));
  return std::move(future);
}

void world_driver::find_memory(rank target, const std::string& name, nanoseconds deadline,
                               std::shared_ptr<value_promise<remote_buffer>> reply) const {
  if (parts_->refuses(*reply)) return;
  parts_->session->find(target, name, deadline, std::move(reply));
}

std::future<remote_buffer> world_driver::allocate(rank target, std::size_t size_bytes, nanoseconds deadline) {
  auto [reply, future] = make_value_promise<remote_buffer>();
  allocate(target, size_bytes, deadline, std::move(reply));
  return std::move(future);
}

void world_driver::allocate(rank target, std::size_t size_bytes, nanoseconds deadline,
                            std::shared_ptr<value_promise<remote_buffer>> reply) {
  if (parts_->refuses(*reply)) return;
  parts_->session->lend(target, lent_kind::memory, size_bytes, deadline, std::move(reply));
}

std::future<std::string> world_driver::read(const remote_buffer& from, nanoseconds deadline) const {
  auto [reply, future] = make_value_promise<std::string>();
  read(from, deadline, std::move(reply));
  return std::move(future);
}

void world_driver::read(const remote_buffer& from, nanoseconds deadline,
                        std::shared_ptr<value_promise<std::string>> reply) const {
  if (parts_->refuses(*reply)) return;
  parts_->session->read(from, deadline, std::move(reply));
}

std::future<world_processes> world_driver::processes() {
  auto [reply, future] = make_value_promise<world_processes>();
  change({}, std::move(reply));
  return std::move(future);
}

std::future<world_processes> world_driver::leave(int place, bool renumbers) {
  auto [reply, future] = make_value_promise<world_processes>();
  change({.kind = rank_change_kind::leave, .place = place, .renumbers = renumbers}, std::move(reply));
  return std::move(future);
}

std::future<world_processes> world_driver::drain(std::string host, bool renumbers) {
  auto [reply, future] = make_value_promise<world_processes>();
  change({.kind = rank_change_kind::drain, .host = std::move(host), .renumbers = renumbers}, std::move(reply));
  return std::move(future);
}

std::future<world_processes> world_driver::join(std::optional<int> place) {
  auto [reply, future] = make_value_promise<world_processes>();
  change({.kind = rank_change_kind::join, .place = place}, std::move(reply));
  return std::move(future);
}

// NOLINTNEXTLINE(readability-make-member-function-const): it changes the world
void world_driver::change(const rank_change& asked, std::shared_ptr<value_promise<world_processes>> reply) {
  if (parts_->refuses(*reply)) return;
  parts_->session->change(asked, std::move(reply));
}

/// Reads a report from memory that a rank exports for it, piece by piece, and then releases that memory.
class world_driver::report_reader : public std::enable_shared_from_this<report_reader> {
public:
  using bytes_promise = std::shared_ptr<value_promise<std::string>>;

  report_reader(std::shared_ptr<driver_session> session, nanoseconds deadline, bytes_promise reply)
    : session_{std::move(session)}, deadline_{deadline}, reply_{std::move(reply)} {}

  void begin(rank target, lent_kind what);

private:
  template <class Value, class Then>
  auto promise(Then then) {
    return std::make_shared<value_promise<Value>>(
        [self = shared_from_this(), then = std::move(then)](std::variant<Value, error>&& result) {
          if (auto* const why = std::get_if<error>(&result)) return self->end(std::move(*why));
          then(std::get<Value>(std::move(result)));
        });
  }
  void read_on() {
    const std::size_t left = lent_->size_bytes - text_.size();
    if (left == 0) return end(std::move(text_));
    session_->read(lent_->slice(text_.size(), std::min(left, peer_requests::most_read_bytes)), deadline_,
                   promise<std::string>([self = shared_from_this()](const std::string& piece) {
                     self->text_ += piece;
                     self->read_on();
                   }));
  }
  void end(std::variant<std::string, error> result) {
    if (lent_) session_->give_back(*lent_);
    reply_->deliver(std::move(result));
  }

  const std::shared_ptr<driver_session> session_;
  const nanoseconds deadline_;
  const bytes_promise reply_;
  std::optional<remote_buffer> lent_{};
  std::string text_{};
};

void world_driver::report_reader::begin(rank target, lent_kind what) {
  session_->lend(target, what, 0, deadline_, promise<remote_buffer>([self = shared_from_this()](remote_buffer lent) {
                   self->lent_ = lent;
                   self->read_on();
                 }));
}

std::future<std::string> world_driver::metrics(rank target, nanoseconds deadline) const {
  auto [reply, future] = make_value_promise<std::string>();
  metrics(target, deadline, std::move(reply));
  return std::move(future);
}

void world_driver::metrics(rank target, nanoseconds deadline, std::shared_ptr<value_promise<std::string>> reply) const {
  if (parts_->refuses(*reply)) return;
  std::make_shared<report_reader>(parts_->session, deadline, std::move(reply))->begin(target, lent_kind::metrics);
}

std::future<std::string> world_driver::flight_record(rank target, nanoseconds deadline) const {
  auto [reply, future] = make_value_promise<std::string>();
  flight_record(target, deadline, std::move(reply));
  return std::move(future);
}

void world_driver::flight_record(rank target, nanoseconds deadline,
                                 std::shared_ptr<value_promise<std::string>> reply) const {
  if (parts_->refuses(*reply)) return;
  std::make_shared<report_reader>(parts_->session, deadline, std::move(reply))->begin(target, lent_kind::flight_record);
}

void world_driver::release(const remote_buffer& allocated) {
  if (!parts_->made.is_inherited()) parts_->session->give_back(allocated);
}

std::future<completion> world_driver::ask(std::vector<operation> asked, request_options options, call_site from) {
  auto [reply, future] = make_future_promise();
  ask(make_request(std::move(asked), std::move(options), from), std::move(reply));
  return std::move(future);
}

std::future<completion> world_driver::capture(const std::string& name, plan_steps steps, nanoseconds deadline) {
  auto [reply, future] = make_future_promise();
  capture(name, std::move(steps), deadline, std::move(reply));
  return std::move(future);
}

void world_driver::capture(const std::string& name, plan_steps steps, nanoseconds deadline, reply_promise reply) {
  if (parts_->refuses(reply)) return;
  parts_->session->capture(name, std::move(steps), deadline, std::move(reply));
}

void world_driver::drop_plan(const std::string& name) {
  if (!parts_->made.is_inherited()) parts_->session->drop_plan(name);
}

std::future<completion> world_driver::replay(const std::string& name, request_options options, call_site from) {
  return collective_methods::replay(std::make_shared<captured_plan>(name), std::move(options), from);
}

std::future<completion> world_driver::call(const std::string& name, std::vector<std::vector<operand>> arguments,
                                           const std::vector<std::byte>& values, request_options options,
                                           call_site from) {
  const auto ranks = static_cast<std::size_t>(size());
  if (!arguments.empty() && arguments.size() != ranks)
    throw exception{errc::invalid_argument, "there are arguments for " + std::to_string(arguments.size()) +
                                                " ranks, and the world has " + std::to_string(ranks) +
                                                ": give one list for each rank"};
  const auto function = std::make_shared<const rank_function>(name);
  std::vector<operation> asked;
  for (std::size_t r = 0; r < ranks; ++r)
    asked.emplace_back(
        troupe::call{function, arguments.empty() ? std::vector<operand>{} : std::move(arguments[r]), values});
  return ask(std::move(asked), std::move(options), from);
}

template class collective_methods<world_driver, arguments_of_all, std::future<completion>>;

} // namespace troupe
