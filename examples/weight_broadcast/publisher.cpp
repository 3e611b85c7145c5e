/// Broadcasts the newest version in chunks, beside the trainers' steps, and again where that fails.

#include "cast.hpp"

#include <troupe/actors/actor_error.hpp>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <utility>

namespace weights {

namespace {

class publisher final : public publisher_handle::base {
public:
  publisher(caf::actor_config& settings, const stage* where, ledger* books, std::vector<rollout_handle> rollouts)
    : publisher_handle::base{settings}, stage_{*where}, books_{*books}, rollouts_{std::move(rollouts)} {}

  behavior_type make_behavior() override {
    const publisher_handle self{this};
    compat::post(stage_.carriers.actor(), troupe::subscribe{caf::actor_cast<troupe::listener_handle>(self)});
    return {[this](const publish& next) {
              newest_ = next; // one that came meanwhile, and was not begun, is skipped
              go_on();
            },
            [this](const troupe::world_event& event) {
              if (event.phase == troupe::world_phase::failed) {
                std::fprintf(stderr, "broadcasts end: %s\n", to_string(event.reason).c_str());
                return quit();
              }
              if (event.phase != troupe::world_phase::ready || event.epoch <= epoch_) return;
              epoch_ = event.epoch;
              go_on();
            },
            [this](const finish&) {
              finishing_ = true;
              go_on();
            }};
  }

  void on_exit() override {
    newest_.reset();
    current_.reset();
    targets_.clear();
    for (const rollout_handle& one : rollouts_) compat::post(one, finish{});
    rollouts_.clear();
    books_.ended.count_down();
  }

private:
  void go_on() {
    if (unanswered_ > 0 || epoch_ == failed_in_) return; // under way, or the carriers are not back yet
    if (newest_) current_ = std::exchange(newest_, std::nullopt);
    if (current_) return broadcast();
    if (finishing_) quit();
  }

  /// Into memory that is new each time: nobody serves with it, and after a failure nothing old writes to it. All chunks
  /// are asked for at once; each is a launch of its own, so that other worlds' launches come between them.
  void broadcast() {
    failed_ = false;
    targets_.clear();
    for (const troupe::rank self : stage_.carriers.local_ranks())
      targets_.push_back(self.value() == 0 ? current_->memory
                                           : stage_.carriers.allocate(self, current_->memory.size_bytes()));
    for (std::size_t from = 0; from < stage_.count; from += stage_.chunk) {
      const std::size_t count = std::min(stage_.chunk, stage_.count - from);
      const auto part = [&](const troupe::buffer& all) {
        return all.slice(from * sizeof(std::uint32_t), count * sizeof(std::uint32_t));
      };
      std::vector<troupe::operation> parts;
      for (const troupe::buffer& one : targets_)
        parts.emplace_back(troupe::broadcast{.send = part(targets_.front()),
                                             .recv = part(one),
                                             .count = count,
                                             .type = troupe::dtype::u32,
                                             .root = troupe::rank{0}});
      ++unanswered_;
      compat::request_unbounded(this, stage_.carriers.actor(), troupe::world_request{std::move(parts), epoch_})
          .then([this](const troupe::completion&) { settle(); },
                [this](const caf::error& failure) {
                  if (!std::exchange(failed_, true))
                    std::printf("  version %u was not broadcast: %s\n", current_->which,
                                to_string(troupe::from_caf(failure)).c_str());
                  settle();
                });
    }
  }

  void settle() {
    if (--unanswered_ > 0) return;
    if (failed_) {
      ++books_.broken;
      books_.is_broken = true;
      // The new epoch may have been told of before the last of these answers.
      failed_in_ = epoch_;
      if (const auto now = stage_.carriers.status(); now.phase == troupe::world_phase::ready && now.epoch > epoch_)
        epoch_ = now.epoch;
    } else {
      for (std::size_t i = 0; i < rollouts_.size(); ++i)
        compat::post(rollouts_[i], serve_with{current_->which, targets_[i + 1]});
      ++books_.published;
      books_.last = current_->which;
      books_.is_broken = false;
      current_.reset();
    }
    go_on();
  }

  const stage& stage_;
  ledger& books_;
  std::vector<rollout_handle> rollouts_;
  std::optional<publish> newest_;
  std::optional<publish> current_; ///< Under way, or to be broadcast again.
  std::vector<troupe::buffer> targets_;
  troupe::epoch epoch_ = stage_.carriers.epoch();
  troupe::epoch failed_in_{};
  std::size_t unanswered_ = 0;
  bool failed_ = false;
  bool finishing_ = false;
};

} // namespace

publisher_handle spawn_publisher(caf::actor_system& system, const stage& where, ledger& books,
                                 std::vector<rollout_handle> rollouts) {
  return system.spawn<publisher>(&where, &books, std::move(rollouts));
}

} // namespace weights
