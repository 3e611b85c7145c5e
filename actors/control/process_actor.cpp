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
                       [this](controller_found) { introduce(); },
                       [this](const controller_said& one) { link_->receive(one.bytes); },
                       [this](const controller_lost& one) { lose(one.why); },
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
  const auto post = [mine = compat::weak_handle<process_inner_handle>{this}](process_note note) {
    mine.post(std::move(note));
  };
  dialer->connect({.on_admitted = [post] { post({controller_found{}}); },
                   .on_message = [post](std::string bytes) { post({controller_said{std::move(bytes)}}); },
                   .on_lost = [post](const transport_fault& why) { post({controller_lost{why}}); }});
}

void process_actor::introduce() {
  searching_ = false;
  link_->connected();
  if (const auto dialer = dialer_.lock()) dialer->send(link_->introduction());
}

void process_actor::lose(const transport_fault& fault) {
  error why{.code = errc::communicator_failed, .text = "the connection to the controller has ended: " + fault.text};
  if (std::exchange(searching_, false)) { // it has not been admitted; a refusal would not change with another attempt
    const bool is_refused = fault.kind == transport_event_kind::bad_token ||
                            fault.kind == transport_event_kind::bad_certificate ||
                            fault.kind == transport_event_kind::other_version;
    why = {.code = is_refused ? errc::invalid_argument : errc::missing, .text = fault.text};
  }
  link_->disconnected(why);
}

} // namespace troupe
