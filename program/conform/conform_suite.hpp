/// All of the conformance cases for one world and for worlds split from it.
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

/// First the whole world's cases. Then it is split, and the sub-worlds, which share ranks, run cases of three dtypes at
/// the same time: those that are asked of a world. Last, one sub-world after the other, those that are asked of ranks,
/// since their order is their clients' to promise.
class conform_suite {
public:
  /// Called by one thread at a time.
  struct hooks {
    std::function<void(const std::string& name)> began{};
    std::function<void(const std::string& name, const std::string& what)> failed;
  };

  /// Only cases whose names contain \p only are run. Errors: invalid_argument when there are none.
  conform_suite(world where, std::uint64_t seed, std::string only, hooks reports);

  [[nodiscard]] std::size_t count_cases() const;
  /// Errors: those of conform_runner and world::split().
  [[nodiscard]] conform_tally run();

private:
  /// A sub-world that is to be.
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
