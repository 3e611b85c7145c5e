#include <troupe/processes/membership/controller_connection.hpp>

#include <troupe/processes/membership/controlled_membership.hpp>

#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/runtime/logging.hpp>

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

struct controller_connection::parts {
  parts(const control_settings& settings, std::string token, nanoseconds patience)
    : search{settings, patience, steady_now()} {
    for (const std::string& one : control_addresses(settings)) {
      control_settings its = settings;
      its.address = one;
      dialers.push_back(make_control_dialer(its, token));
    }
  }

  template <class Call>
  auto locked(Call call) {
    const std::lock_guard lock{guard};
    return call();
  }

  void watch() {
    finding found;
    while (locked([this] { return !is_stopped && !search.ended(); })) {
      if (const auto attempt = locked([this] { return search.begin_attempt(steady_now()); })) connect(*attempt);
      begin_tick();
      found = what.tick();
      if (const auto notice = locked([&] { return search.end_tick(found); })) log_warning(*notice);
    }
    const auto why = locked([this] { return search.ended(); });
    if (why && !found.over) what.gave_up(*why);
    changed.notify_all();
  }

  void begin_tick() {
    std::unique_lock lock{guard};
    changed.wait_for(lock, controller_search::tick_period, [this] { return is_stopped; });
    search.begin_tick(steady_now());
  }

  /// Tries the next address: the one before has not answered, or its controller is lost.
  void connect(std::uint64_t attempt) {
    const auto before = locked([this] { return present; });
    const std::size_t next = (attempt - 1) % dialers.size();
    if (next != before) dialers[before]->leave();
    locked([&] { present = next; });
    transport_dialer* const dialer = dialers[next].get();
    dialer->connect({.on_admitted =
                         [this, dialer] {
                           dialer->send(what.introduction());
                           locked([this] { search.admit(); });
                         },
                     .on_message = [this](const std::string& bytes) { what.receive(bytes); },
                     .on_lost = [this, attempt](const transport_fault& why) { lose(attempt, why); }});
  }

  void send(std::string bytes) {
    locked([this] { return dialers[present]; })->send(std::move(bytes));
  }

  void lose(std::uint64_t attempt, const transport_fault& why) {
    what.disconnected(why, locked([&] { return search.was_admitted(attempt); }));
    locked([&] { search.lose(attempt, why, steady_now()); });
  }

  std::vector<std::shared_ptr<transport_dialer>> dialers; ///< For each address.
  std::size_t present = 0;                                ///< The one that was used last; protected by `guard`.
  hooks what;
  std::mutex guard;
  condition changed;
  bool is_stopped = false;
  controller_search search;
  worker watching;
};

controller_connection::controller_connection(const control_settings& settings, std::string token, nanoseconds patience)
  : parts_{std::make_unique<parts>(settings, std::move(token), patience)} {}

controller_connection::~controller_connection() {
  stop();
}

controller_connection::hooks controller_connection::hooks_of(const std::shared_ptr<control_session>& session) {
  return {.introduction = [session] { return session->introduction(); },
          .receive = [session](std::string_view bytes) { session->receive(bytes); },
          .disconnected = [session](const transport_fault& why,
                                    bool) { session->disconnected({.code = errc::missing, .text = why.text}); },
          .tick =
              [session] {
                const bool is_needed = session->tick();
                return finding{.over = session->over(), .is_silent = is_needed, .is_wanted = is_needed};
              },
          .gave_up = [session](const error& why) { session->give_up(why); }};
}

void controller_connection::begin(hooks what, const char* thread_name) {
  parts_->what = std::move(what);
  parts_->watching = worker{[all = parts_.get(), thread_name] {
    name_this_thread(thread_name);
    all->watch();
  }};
}

void controller_connection::send(std::string bytes) {
  parts_->send(std::move(bytes));
}

void controller_connection::stop() {
  parts_->locked([this] { parts_->is_stopped = true; });
  parts_->changed.notify_all();
  if (parts_->watching.joinable()) parts_->watching.join();
  for (const auto& one : parts_->dialers) one->stop();
}

std::optional<std::string> controller_connection::obstacle() const {
  return parts_->locked([this] { return parts_->search.obstacle(); });
}

std::optional<error> controller_connection::wait_ended(nanoseconds at_most) {
  std::unique_lock lock{parts_->guard};
  static_cast<void>(parts_->changed.wait_for(lock, at_most, [this] { return parts_->search.ended().has_value(); }));
  return parts_->search.ended();
}

} // namespace troupe
