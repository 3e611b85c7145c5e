#include <troupe/actors/control/control_notes.hpp>
#include <troupe/actors/control/process_actor.hpp>
#include <troupe/device/overloaded.hpp>
#include <troupe/device/threads/condition.hpp>
#include <troupe/device/threads/worker.hpp>
#include <troupe/device/topology/thread_binding.hpp>

#include <chrono>
#include <utility>
#include <variant>

namespace troupe {

namespace {

constexpr std::chrono::milliseconds look_every{20};
constexpr std::chrono::milliseconds beat_every{50};

} // namespace

class process_actor::pulse {
public:
  explicit pulse(std::shared_ptr<process_link> link) : link_{std::move(link)}, thread_{[this] { beat(); }} {}
  pulse(const pulse&) = delete;
  pulse& operator=(const pulse&) = delete;
  ~pulse() {
    {
      const std::lock_guard lock{mutex_};
      stopped_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

private:
  void beat() {
    name_this_thread("troupe/pulse");
    std::unique_lock lock{mutex_};
    while (!changed_.wait_for(lock, beat_every, [this] { return stopped_; })) link_->beat();
  }

  const std::shared_ptr<process_link> link_;
  std::mutex mutex_;
  condition changed_;
  bool stopped_ = false;
  worker thread_; ///< Declared last, because it uses the other members.
};

process_actor::process_actor(caf::actor_config& settings, std::shared_ptr<process_link> link,
                             std::weak_ptr<transport_dialer> dialer)
  : process_inner_handle::base{settings},
    link_{std::move(link)},
    dialer_{std::move(dialer)},
    pulse_{std::make_shared<pulse>(link_)} {}

process_actor::behavior_type process_actor::make_behavior() {
  tick();
  return {
      [this](const process_note& note) {
        std::visit(overloaded{
                       [this](time_passes) { tick(); },
                       [this](controller_found one) {
                         if (one.attempt == attempt_) introduce();
                       },
                       [this](const controller_said& one) {
                         if (one.attempt == attempt_) link_->receive(one.bytes);
                       },
                       [this](const controller_lost& one) {
                         if (one.attempt == attempt_) lose(one.why);
                       },
                       [this](stop_control) { quit(); },
                   },
                   note.what);
      },
  };
}

void process_actor::on_exit() {
  pulse_.reset();
}

void process_actor::tick() {
  compat::weak_handle<process_inner_handle>{this}.post_after(look_every, process_note{time_passes{}});
  if (link_->tick() && !searching_) look_for_controller();
}

void process_actor::look_for_controller() {
  const auto dialer = dialer_.lock();
  if (!dialer) return;
  searching_ = true;
  const auto post = [self = compat::weak_handle<process_inner_handle>{this}](process_note note) {
    self.post(std::move(note));
  };
  const std::uint64_t mine = ++attempt_;
  dialer->connect({.on_admitted = [post, mine] { post({controller_found{mine}}); },
                   .on_message =
                       [post, mine](std::string bytes) {
                         post({controller_said{mine, std::move(bytes)}});
                       },
                   .on_lost =
                       [post, mine](const transport_fault& why) {
                         post({controller_lost{mine, why}});
                       }});
}

void process_actor::introduce() {
  searching_ = false;
  link_->connected();
  if (const auto dialer = dialer_.lock()) dialer->send(link_->introduction());
}

void process_actor::lose(const transport_fault& fault) {
  const bool is_in_order = fault.kind == transport_event_kind::ended;
  error why{.code = errc::communicator_failed,
            .text = is_in_order ? fault.text : "the connection to the controller has ended: " + fault.text};
  if (std::exchange(searching_, false)) { // it has not been admitted; a refusal would not change with another attempt
    const bool is_refused = fault.kind == transport_event_kind::bad_token ||
                            fault.kind == transport_event_kind::bad_certificate ||
                            fault.kind == transport_event_kind::other_version;
    why = {.code = is_refused ? errc::invalid_argument : errc::missing, .text = fault.text};
  }
  link_->disconnected(why);
}

} // namespace troupe
