#include <troupe/actors/control/control_notes.hpp>
#include <troupe/actors/control/controller_actor.hpp>
#include <troupe/device/overloaded.hpp>

#include <utility>
#include <variant>

namespace troupe {

controller_actor::controller_actor(caf::actor_config& settings, controller_terms terms, sequencer_limits limits,
                                   const wait_profile& wait, std::shared_ptr<order_gate> gate, controller_hooks hooks)
  : controller_inner_handle::base{settings},
    server_{std::move(terms),
            order_service_settings{.limits = limits,
                                   .wait = wait,
                                   .on_news =
                                       [self = compat::weak_handle<controller_inner_handle>{this}] {
                                         self.post(controller_note{order_news{}});
                                       }},
            std::move(gate), std::move(hooks)} {}

controller_actor::behavior_type controller_actor::make_behavior() {
  tick_later();
  server_.run_order();
  return {
      [this](const controller_note& note) {
        std::visit(overloaded{
                       [this](time_passes) {
                         tick_later();
                         server_.tick();
                       },
                       [this](const peer_message& one) { server_.hear(one.from, one.bytes); },
                       [this](const peer_lost& one) { server_.lose(one.which); },
                       [this](const process_end& one) { server_.process_ended(one.name, one.pid, one.how); },
                       [this](stop_control) { server_.stop(); },
                       [this](order_news) { server_.hear_of_order(); },
                       [this](quit_control) {
                         is_told_to_quit_ = true;
                         quit();
                       },
                   },
                   note.what);
      },
  };
}

void controller_actor::on_exit() {
  server_.end_order();
  if (is_told_to_quit_) return;
  server_.fail({.code = errc::world_failed,
                .text = "the controller's actor has ended with an internal error: start the job again"});
}

void controller_actor::tick_later() {
  compat::weak_handle<controller_inner_handle>{this}.post_after(control_server::tick_interval,
                                                                controller_note{time_passes{}});
}

} // namespace troupe
