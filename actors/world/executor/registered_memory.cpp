#include <troupe/actors/world/executor/registered_memory.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

namespace troupe {

namespace {

// The names of turns. Turns are matched by name, so processes that register memory of the same size share a turn.
std::string allocation_of(std::size_t size_bytes) {
  return "the allocation of " + std::to_string(size_bytes) + " bytes to register";
}
std::string registration_of(std::size_t size_bytes) {
  return "the registration of " + std::to_string(size_bytes) + " bytes";
}

} // namespace

void registered_memory::perform(const registration_request& asked, std::shared_ptr<registration_promise> reply) {
  error objection = maintenance_.objection(asked.epoch);
  if (!objection && asked.size_bytes == 0)
    objection = {.code = errc::invalid_argument, .text = "0 bytes cannot be registered: name a size"};
  if (objection) return reply->deliver(std::move(objection));
  const auto made = std::make_shared<regions>();
  const auto failures = std::make_shared<rank_results<error>>();
  // Allocate in a step of its own, so that a rank without memory is detected before others wait for it.
  maintenance_.ask(
      {.name = allocation_of(asked.size_bytes),
       .step =
           [made, failures, size_bytes = asked.size_bytes](rank_pipeline& one) {
             try {
               made->set(one.self(), one.peers().allocate_region(size_bytes));
             } catch (...) {
               error why = current_error();
               if (!why.rank) why.rank = one.self();
               failures->set(one.self(), std::move(why));
             }
           },
       .done =
           [this, made, failures, size_bytes = asked.size_bytes, reply = std::move(reply)](const error& failure) {
             const auto failed = failures->all();
             error why = failure ? failure : failed.empty() ? maintenance_.objection() : failed.front();
             why ? reply->deliver(std::move(why)) : enroll(made, size_bytes, reply);
           }});
}

void registered_memory::enroll(const std::shared_ptr<regions>& made, std::size_t size_bytes,
                               std::shared_ptr<registration_promise> reply) {
  maintenance_.ask({.name = registration_of(size_bytes),
                    .step = [made](rank_pipeline& one) { one.peers().register_region(*made->of(one.self())); },
                    .done =
                        [this, made, reply = std::move(reply)](const error& failure) {
                          if (failure) return reply->deliver(failure);
                          const bool alone = of_.plan.locals.size() == static_cast<std::size_t>(of_.plan.world_size);
                          add(std::make_shared<registered_pool>(made->all(), alone));
                          reply->deliver(registration_reply{pools_.back()});
                        }});
}

void registered_memory::add(std::shared_ptr<registered_pool> pool) {
  pools_.push_back(std::move(pool));
  of_.now.order->set_registered(pools_);
  of_.executor.publish();
}

void registered_memory::expect_newcomers() {
  std::ranges::move(pools_, std::back_inserter(missing_));
  pools_.clear();
}

void registered_memory::leave_out(const std::vector<std::size_t>& gone) {
  for (const auto& pool : pools_) pool->leave_out(gone);
}

rank_work registered_memory::registration_while_forming() {
  if (pools_.empty()) {
    forming_ = nullptr;
    return [](rank_pipeline&) {};
  }
  forming_ = std::make_shared<rank_results<spans>>();
  // A forming that was given up may still run when later epochs have fewer ranks, so it keeps its own list of regions.
  std::vector<std::vector<std::shared_ptr<registered_region>>> registered;
  for (const auto& pool : pools_) registered.push_back(pool->regions());
  return [registered = std::move(registered), times = forming_, time = of_.plan.services.time,
          locals = ranks_of(of_.plan)](rank_pipeline& one) {
    const auto local = std::ranges::find(locals, one.self()) - locals.begin();
    spans mine;
    for (std::size_t i = 0; i < registered.size(); ++i) {
      const time_point began = time->now();
      one.peers().register_region(*registered[i][static_cast<std::size_t>(local)]);
      mine.emplace_back(began, time->now());
    }
    times->set(one.self(), std::move(mine));
  };
}

void registered_memory::formed() {
  if (!forming_) return;
  const auto ranks = std::exchange(forming_, nullptr)->all();
  restoration all;
  for (std::size_t i = 0; i < ranks.front().size(); ++i) {
    auto [began, ended] = ranks.front()[i];
    for (const auto& each : ranks) {
      began = std::min(began, each[i].first);
      ended = std::max(ended, each[i].second);
    }
    all.push_back(
        {.kind = restored_kind::registration, .number = i, .state = restored_state::back, .took = ended - began});
  }
  restored_.add_first(std::move(all));
}

void registered_memory::register_missing() {
  for (const auto& pool : missing_) register_again(pool);
}

void registered_memory::register_again(const std::shared_ptr<registered_pool>& pool) {
  restored_part part{.kind = restored_kind::registration, .number = restored_.registration_count()};
  restored_.add(part);
  // Use the same turns as a process that registers for the first time.
  maintenance enrollment{.name = registration_of(pool->size_bytes()),
                         .restores = true,
                         .step = [pool](rank_pipeline& one) { one.peers().register_region(*pool->regions().front()); },
                         .done =
                             [this, pool, part, began = of_.plan.services.time->now()](const error& failure) mutable {
                               if (failure) return; // the next epoch tries again
                               std::erase(missing_, pool);
                               add(pool);
                               part.state = restored_state::back;
                               part.took = of_.plan.services.time->now() - began;
                               restored_.settle({of_.state.current_epoch(), part});
                             }};
  maintenance_.ask({.name = allocation_of(pool->size_bytes()),
                    .restores = true,
                    .step = [](rank_pipeline&) {}, // the memory is already allocated
                    .done =
                        [this, next = std::move(enrollment)](const error& failure) mutable {
                          if (!failure && !maintenance_.objection()) maintenance_.ask(std::move(next));
                        }});
}

void registered_memory::clear() noexcept {
  pools_.clear();
  missing_.clear();
}

} // namespace troupe
