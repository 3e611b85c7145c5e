/// All conformance cases for one world and for worlds split from it.
#pragma once

#include <troupe/program/conform/conform_plan.hpp>
#include <troupe/program/conform/conform_runner.hpp>

#include <troupe/collectives/operation/rank_group.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::program {

/// Runs the cases in three steps. First, the whole world runs its cases. Then the world is split, and the sub-worlds,
/// which share ranks, run at the same time the cases of three dtypes that are asked of a world. Last, one sub-world
/// after another runs the cases that are asked of ranks, because their order is promised by their clients.
class conform_suite {
public:
  /// The hooks are called by one thread at a time.
  struct hooks {
    std::function<void(const std::string& name)> began{};
    std::function<void(const std::string& name, const std::string& what)> failed;
  };

  /// Runs only cases whose names contain \p only. Errors: invalid_argument if there are none.
  conform_suite(world where, std::uint64_t seed, std::string only, hooks reports);

  [[nodiscard]] std::size_t count_cases() const;
  /// Runs the cases. Errors: those of conform_runner and world::split().
  [[nodiscard]] conform_tally run();

private:
  /// A sub-world that is formed later.
  struct split_scope {
    rank_group group;
    conform_scope scope;
  };

  using choice = std::function<bool(const std::string& name)>;
  [[nodiscard]] static std::size_t count(const conform_scope& scope, const choice& chosen);
  [[nodiscard]] conform_tally run(const conform_scope& scope, const world& where, const choice& chosen);
  [[nodiscard]] conform_tally run_sub_worlds();

  world world_;
  choice chosen_;
  hooks reports_;
  conform_scope whole_;
  std::vector<split_scope> parts_;
  std::mutex reporting_;
};

} // namespace troupe::program
