/// A world in one process, or one over processes, with one test body: what both promise is tested by the same cases.
#pragma once

#include "support/outcomes.hpp"
#include "support/runtimes.hpp"

#include <troupe/processes/controller.hpp>
#include <troupe/runtime/rank_lane.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests {

class any_world {
public:
  /// A world of this process.
  explicit any_world(configuration settings) { parts_.emplace_back(std::move(settings)); }
  /// A world of processes with a rank each. Each "process" is a runtime of this one.
  explicit any_world(int processes) {
    control_ = std::make_unique<controller>(
        controller_options{.terms = {.world_size = processes, .token = "a secret of these tests", .suspicion = 10s}});
    for (int i = 0; i < processes; ++i) {
      configuration made = mock_settings(1);
      made.control = {.address = control_->address(), .patience = 10s};
      made.control.assignment = {.token = "a secret of these tests", .name = std::to_string(i), .place = i};
      parts_.emplace_back(std::move(made));
    }
  }

  [[nodiscard]] int size() { return of(0).size(); }
  /// The handle by which \p self is asked.
  [[nodiscard]] world& of(int self) {
    part& asked = parts_[parts_.size() == 1 ? 0 : static_cast<std::size_t>(self)];
    return asked.handle();
  }
  [[nodiscard]] bool is_in_one_process() const { return !control_; }
  [[nodiscard]] runtime& runtime_of(int self) {
    return *parts_[parts_.size() == 1 ? 0 : static_cast<std::size_t>(self)].rt;
  }
  /// Calls \p work with each handle, in all processes at once. Returns the error of each rank's call, or errc::none.
  std::vector<error> each(const std::function<void(world&)>& work) {
    std::vector<std::future<error>> ends;
    for (part& one : parts_)
      ends.push_back(std::async(std::launch::async, [&] { return error_of([&] { work(one.handle()); }); }));
    std::vector<error> all;
    for (auto& one : ends) all.push_back(one.get());
    all.resize(static_cast<std::size_t>(size()), all.front());
    return all;
  }
  /// Each rank's buffer of \p count floats, rank + 1.
  [[nodiscard]] std::vector<buffer> values(std::size_t count) {
    std::vector<buffer> all;
    for (part& one : parts_)
      for (buffer& each : ranked_values(one.handle(), count)) all.push_back(std::move(each));
    return all;
  }
  /// Whether every element of every rank's buffer is \p value.
  [[nodiscard]] bool all_are(const std::vector<buffer>& memory, float value) {
    for (int r = 0; r < size(); ++r)
      for (const float seen : read_back(of(r), rank{r}, memory[static_cast<std::size_t>(r)]))
        if (seen != value) return false;
    return true;
  }
  /// Asks each rank for its part in the lane. Returns the answers.
  std::vector<error> ask(const std::vector<operation>& parts, lane where = {}) {
    std::vector<std::future<completion>> replies;
    for (int r = 0; r < size(); ++r)
      replies.push_back(of(r).ask(
          rank{r},
          {.what = parts[static_cast<std::size_t>(r)], .epoch = of(r).epoch(), .deadline = 20s, .lane = where}));
    std::vector<error> answers;
    for (auto& one : replies) answers.push_back(failure_of(std::move(one)));
    return answers;
  }
  /// Captures a plan at all ranks. Returns what each rank's capture came to, and its plan.
  std::vector<error> capture(const capture_function& function, std::vector<std::shared_ptr<captured_plan>>& made,
                             const plan_options& options = {}) {
    made.assign(static_cast<std::size_t>(size()), nullptr);
    return each([&](world& where) {
      const auto plan = where.capture(function, options);
      for (const rank self : where.local_ranks()) made[static_cast<std::size_t>(self.value())] = plan;
    });
  }

private:
  struct part {
    explicit part(configuration settings)
      : rt{std::make_unique<runtime>(std::move(settings))}, forming{std::async(std::launch::async, [&all = *rt] {
          return all.form_world();
        })} {}
    [[nodiscard]] world& handle() {
      if (!formed) formed = forming.get();
      return *formed;
    }

    std::unique_ptr<runtime> rt;
    std::future<world> forming;
    std::optional<world> formed;
  };

  std::unique_ptr<controller> control_;
  std::vector<part> parts_;
};

} // namespace troupe::tests

/// Defines three test cases with one body: "mock: name", "nccl: name" tagged [gpu], and "processes: name" tagged
/// [processes]. The body receives `all`, a world of \p ranks ranks.
#define TROUPE_ANY_WORLD_TEST(ranks, name, tags) TROUPE_ANY_WORLD_TEST_(ranks, name, tags, __COUNTER__)
#define TROUPE_ANY_WORLD_TEST_(ranks, name, tags, number)                                                              \
  static void TROUPE_TEST_JOIN(any_world_test_, number)(troupe::tests::any_world & all);                               \
  TEST_CASE("mock: " name, tags) {                                                                                     \
    troupe::tests::any_world all{troupe::tests::mock_settings(ranks)};                                                 \
    TROUPE_TEST_JOIN(any_world_test_, number)(all);                                                                    \
  }                                                                                                                    \
  TEST_CASE("nccl: " name, tags "[gpu]") {                                                                             \
    troupe::tests::any_world all{troupe::tests::gpu_settings(ranks)};                                                  \
    TROUPE_TEST_JOIN(any_world_test_, number)(all);                                                                    \
  }                                                                                                                    \
  TEST_CASE("processes: " name, tags "[processes]") {                                                                  \
    troupe::tests::any_world all{ranks};                                                                               \
    TROUPE_TEST_JOIN(any_world_test_, number)(all);                                                                    \
  }                                                                                                                    \
  static void TROUPE_TEST_JOIN(any_world_test_, number)(troupe::tests::any_world & all)
