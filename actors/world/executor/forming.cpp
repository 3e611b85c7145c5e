#include <troupe/actors/world/executor/forming.hpp>
#include <troupe/collectives/backend/solo_communicator.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

std::vector<std::shared_ptr<communicator>> make_communicators(const world_plan& plan) {
  std::vector<std::shared_ptr<communicator>> made;
  const unique_id id = plan.id ? *plan.id : plan.world_size > 1 ? plan.backend->make_unique_id() : unique_id{};
  for (const local_rank& one : plan.locals)
    if (plan.world_size > 1)
      made.push_back(plan.backend->create(id, one.self, plan.world_size, one.where));
    else
      made.push_back(std::make_shared<solo_communicator>(one.where));
  return made;
}

std::vector<std::shared_ptr<communicator>>
derive_communicators(const world_plan& plan, const world_effect::form& how,
                     const std::vector<std::shared_ptr<rank_pipeline>>& failed) {
  std::vector<std::shared_ptr<communicator>> made;
  for (const auto& one : failed) {
    if (std::ranges::find(how.without, one->self()) != how.without.end()) continue;
    const rank self{static_cast<int>(made.size())};
    made.push_back(how.how == recovery_rung::revoke ? one->peers().revoke_and_split()
                                                    : one->peers().shrink({how.without, self, plan.world_size}));
  }
  if (made.size() != plan.locals.size())
    throw exception{errc::communicator_failed, "not every rank has a communicator from which another can be derived"};
  return made;
}

std::shared_ptr<rank_pipeline> create_pipeline(const executor_context& of, std::uint64_t world,
                                               std::shared_ptr<communicator> peers, std::size_t index,
                                               epoch formed_in) {
  const rank self = peers->self();
  auto made =
      rank_pipeline::create(of.plan.services, std::move(peers), of.plan.locals[index].launch_thread, formed_in,
                            [mail = of.mail, self, formed_in](error why) {
                              mail->post(rank_report{rank_report::kind::faulted, self, formed_in, std::move(why)});
                            });
  made->belongs_to(world);
  made->on_late([mail = of.mail, self, formed_in](error why) {
    mail->post(rank_report{rank_report::kind::late, self, formed_in, std::move(why)});
  });
  return made;
}

namespace {

/// Number of spare streams per rank: the rank's stream and those of its staging, two permanent and two temporary
/// streams of NCCL, and some for other streams that the process may create meanwhile.
constexpr std::size_t streams_of_a_rank = 12;

} // namespace

spare_reserve::spare_reserve(const std::vector<local_rank>& locals) {
  for (const local_rank& one : locals)
    all_.emplace(one.where, std::make_shared<spare_streams>(one.where, streams_of_a_rank));
}

void spare_reserve::give_back(const rank_pipeline& of) const {
  if (const auto found = all_.find(of.where()); found != all_.end()) found->second->give_back();
}

void spare_reserve::keep(const rank_pipeline& of) const {
  const auto found = all_.find(of.where());
  if (found == all_.end()) return;
  try {
    found->second->fill();
  } catch (const exception&) { // spare streams are a precaution: later users of the device get its error
  }
}

} // namespace troupe
