/// Serves with the version that it has, one request after the other, and takes another between two of them.

#include "cast.hpp"

#include <troupe/actors/actor_error.hpp>

#include <cstdio>
#include <utility>

namespace weights {

namespace {

class rollout final : public rollout_handle::base {
public:
  rollout(caf::actor_config& settings, const stage* where, ledger* books, troupe::rank self)
    : rollout_handle::base{settings},
      stage_{*where},
      books_{*books},
      self_{self},
      seen_{stage_.whole.allocate_pinned(stage_.count * sizeof(std::uint32_t))} {}

  behavior_type make_behavior() override {
    return {[this](const serve_with& next) {
              // The old memory goes back to its pool with the last request that uses it.
              const bool is_first = !current_.memory;
              current_ = next;
              if (is_first) serve();
            },
            [this](const finish&) {
              finishing_ = true;
              if (!current_.memory) end(books_.last != 0);
            }};
  }

  void on_exit() override {
    current_ = {};
    seen_ = {};
    books_.ended.count_down();
  }

private:
  /// A rollout would generate with the weights here. This one looks at all of them.
  void serve() {
    compat::request_unbounded(
        this, stage_.whole.collective(self_),
        troupe::rank_request{.what = troupe::copy{current_.memory, seen_}, .epoch = stage_.whole.epoch()})
        .then(
            [this, which = current_.which](const troupe::completion&) {
              look(which);
              if (finishing_ && which == current_.which) return end(which != books_.last);
              serve();
            },
            [this](const caf::error& failure) {
              std::fprintf(stderr, "a rollout ends: %s\n", to_string(troupe::from_caf(failure)).c_str());
              end(true);
            });
  }

  void look(version which) {
    const auto values = seen_.host_span<std::uint32_t>();
    const int trainers = stage_.trainers.size();
    for (std::size_t i = 0; i < values.size(); ++i)
      if (values[i] != expected(which, trainers, i)) {
        ++books_.wrong;
        break;
      }
    ++books_.served;
    if (books_.is_broken) ++books_.served_while_broken;
    const std::int64_t now = troupe::steady_now().time_since_epoch().count();
    const std::int64_t pause = last_ns_ == 0 ? 0 : now - last_ns_;
    last_ns_ = now;
    for (std::int64_t longest = books_.longest_pause_ns; pause > longest;)
      if (books_.longest_pause_ns.compare_exchange_weak(longest, pause)) break;
  }

  void end(bool is_wrong) {
    if (is_wrong) ++books_.wrong;
    quit();
  }

  const stage& stage_;
  ledger& books_;
  troupe::rank self_;
  serve_with current_;
  troupe::buffer seen_;
  std::int64_t last_ns_ = 0; ///< When the last reply came.
  bool finishing_ = false;
};

} // namespace

rollout_handle spawn_rollout(caf::actor_system& system, const stage& where, ledger& books, troupe::rank self) {
  return system.spawn<rollout>(&where, &books, self);
}

} // namespace weights
