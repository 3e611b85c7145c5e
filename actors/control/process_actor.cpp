#include <troupe/actors/control/caf_remote.hpp>
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
constexpr std::chrono::seconds connects_within{10};

} // namespace

void process_outlet::set(caf::actor to) {
  const std::lock_guard lock{mutex_};
  to_ = std::move(to);
}

void process_outlet::send(std::string bytes) const {
  const std::lock_guard lock{mutex_};
  if (to_) compat::post(to_, std::move(bytes));
}

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
                             std::shared_ptr<process_outlet> outlet, controller_search search,
                             std::shared_ptr<deadline_pool> helpers)
  : process_inner_handle::base{settings},
    link_{std::move(link)},
    outlet_{std::move(outlet)},
    search_{std::move(search)},
    helpers_{std::move(helpers)},
    pulse_{std::make_shared<pulse>(link_)} {}

process_actor::behavior_type process_actor::make_behavior() {
  tick();
  return {
      [this](const std::string& bytes) { link_->receive(bytes); },
      [this](const process_note& note) {
        std::visit(overloaded{
                       [this](time_passes) { tick(); },
                       [this](const controller_found& one) { connect(one.it); },
                       [this](const controller_lost& one) {
                         searching_ = false;
                         lose(one.why);
                       },
                       [this](stop_control) { quit(); },
                   },
                   note.what);
      },
  };
}

void process_actor::on_exit() {
  pulse_.reset();
  outlet_->set({});
  search_ = nullptr;
}

void process_actor::tick() {
  compat::weak_handle<process_inner_handle>{this}.post_after(look_every, process_note{time_passes{}});
  if (link_->tick() && !searching_) look_for_controller();
}

void process_actor::look_for_controller() {
  searching_ = true;
  const auto mine = std::make_shared<compat::weak_handle<process_inner_handle>>(this);
  const auto found = std::make_shared<caf::actor>();
  helpers_->run(
      "the search for the controller", connects_within, [search = search_, found] { *found = search(); },
      [mine, found](error failure) {
        if (failure)
          mine->post(process_note{controller_lost{std::move(failure)}});
        else
          mine->post(process_note{controller_found{std::move(*found)}});
      });
}

void process_actor::connect(const caf::actor& controller) {
  searching_ = false;
  outlet_->set(controller);
  const std::uint64_t mine = ++connection_;
  watches_.add(this, controller, [this, mine](const caf::error&) {
    if (mine == connection_)
      lose({.code = errc::communicator_failed, .text = "the connection to the controller has ended"});
  });
  link_->connected();
  compat::send_to_remote(this, controller, link_->introduction());
}

void process_actor::lose(const error& why) {
  outlet_->set({});
  link_->disconnected(why);
}

} // namespace troupe
