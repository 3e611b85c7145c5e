#include <troupe/actors/world/executor/local_ranks.hpp>

#include <cstddef>
#include <utility>

namespace troupe {

std::shared_ptr<const std::vector<rank_context>> contexts_of(const world_plan& plan, std::uint64_t world) {
  struct owner {
    std::vector<std::shared_ptr<device>> devices;
    std::shared_ptr<const capabilities> able;
    std::vector<rank_context> contexts;
  };
  auto made = std::make_shared<owner>();
  made->able = plan.services.able;
  for (const local_rank& one : plan.locals) {
    made->devices.push_back(one.where);
    made->contexts.push_back({.self = one.self,
                              .world_size = plan.world_size,
                              .where = *one.where,
                              .able = made->able.get(),
                              .stamp = {.world = world}});
  }
  return {made, &made->contexts};
}

local_names names_of(const world_plan& plan, std::shared_ptr<plan_directory> plans) {
  return {.memory = plan.exported, .plans = std::move(plans), .functions = plan.functions};
}

rank_services services_of(const executor_context& of, std::shared_ptr<collective_state> asked,
                          std::shared_ptr<plan_directory> plans) {
  return {
      .ask =
          [to = std::move(asked)](rank_request what, error objection, reply_promise reply, std::uint64_t client) {
            to->accept_for_peer(std::move(what), std::move(objection), std::move(reply), client);
          },
      .here = names_of(of.plan, std::move(plans)),
      .lend =
          [helpers = of.plan.helpers, make = of.plan.lend,
           limit = of.plan.deadlines.form](lent_kind what, std::size_t size_bytes, const rank_services::lent& done) {
            const auto made = std::make_shared<buffer>();
            helpers->run(
                "an allocation for another process", limit,
                [made, make, what, size_bytes] { *made = make(what, size_bytes); },
                [made, done](const error& why) { done(why ? buffer{} : std::move(*made), why); });
          },
      .capture =
          [mail = of.mail, now = of.state.current_epoch()](std::vector<operation> steps, plan_options options,
                                                           error objection, rank_services::captured done) {
            mail->post(peer_capture{now, std::move(steps), std::move(options), std::move(objection), std::move(done)});
          }};
}

} // namespace troupe
