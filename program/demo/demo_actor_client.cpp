#include <troupe/actors.hpp>
#include <troupe/program/demo/demo_batch.hpp>
#include <troupe/program/demo/demo_clients.hpp>

#include <troupe/actors/caf/actor_error.hpp>

#include <utility>

namespace troupe::program {

namespace {

/// Never blocks: it begins a step when the last reply of the previous step has come.
class actor_client final : public listener_handle::base {
public:
  actor_client(caf::actor_config& settings, world where, client_task task, demo_ledger* books, std::latch* ended)
    : listener_handle::base{settings},
      world_{std::move(where)},
      task_{std::move(task)},
      books_{*books},
      ended_{*ended},
      batch_{world_, task_.ranks, task_.requests, task_.count, task_.seed} {}

  behavior_type make_behavior() override {
    compat::post(actor_of(world_), subscribe{listener_handle{this}});
    begin_round();
    return {[this](const world_event& event) { epoch_ = event.epoch; }};
  }

  void on_exit() override { ended_.count_down(); }

private:
  using step = void (actor_client::*)();

  void begin_round() {
    if (!task_.rounds->begins(round_)) return quit();
    batch_.fill(round_++);
    ask_ranks(batch_.copies_in(), &actor_client::reduce);
  }

  void reduce() {
    next_ = &actor_client::copy_out;
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      auto parts = batch_.request(i);
      if (to_world())
        ask("actor: all_reduce, world", actor_of(world_), world_request{std::move(parts), epoch_});
      else
        ask("actor: all_reduce, rank", own_rank(), rank_request_for(std::move(parts.front())));
    }
    if (to_world())
      ask("actor: barrier, world", actor_of(world_),
          world_request{std::vector<operation>(task_.ranks.size(), barrier{}), epoch_});
    else
      ask("actor: barrier, rank", own_rank(), rank_request_for(barrier{}));
  }

  void copy_out() { ask_ranks(batch_.copies_out(), &actor_client::verify); }

  void verify() {
    const std::size_t wrong = batch_.wrong_results();
    books_.verified(batch_.size() - wrong, wrong);
    begin_round();
  }

  // NOLINTNEXTLINE(performance-unnecessary-value-param): what it holds is moved on
  void ask_ranks(std::vector<demo_batch::ranked_operation> operations, step next) {
    next_ = next;
    for (auto& [self, what] : operations)
      ask("actor: copy", collective_of(world_, self), rank_request_for(std::move(what)));
  }

  template <class Handle, class Request>
  void ask(const char* kind, const Handle& whom, Request what) {
    ++awaited_;
    const std::size_t request = books_.ask(kind);
    compat::request_unbounded(this, whom, std::move(what))
        .then(
            [this, request](const completion& reply) {
              books_.answered(request, reply);
              settle();
            },
            [this, request](const caf::error& failure) {
              books_.answered(request, from_caf(failure));
              failed_ = true;
              settle();
            });
  }

  [[nodiscard]] rank_request rank_request_for(operation what) const {
    return {.what = std::move(what), .epoch = epoch_, .lane = task_.lane};
  }

  void settle() {
    if (--awaited_ > 0) return;
    if (failed_) return quit();
    (this->*next_)();
  }

  [[nodiscard]] bool to_world() const { return task_.ranks.size() == static_cast<std::size_t>(world_.size()); }
  [[nodiscard]] collective_handle own_rank() const { return collective_of(world_, task_.ranks.front()); }

  world world_;
  client_task task_;
  demo_ledger& books_;
  std::latch& ended_;
  demo_batch batch_;
  epoch epoch_ = world_.epoch();
  step next_ = nullptr;
  std::size_t awaited_ = 0;
  std::size_t round_ = 0;
  bool failed_ = false;
};

} // namespace

void spawn_actor_client(caf::actor_system& system, world where, const client_task& task, demo_ledger& books,
                        std::latch& ended) {
  system.spawn<actor_client>(std::move(where), task, &books, &ended);
}

} // namespace troupe::program
