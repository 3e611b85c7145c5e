/// Runs conformance cases: many in flight for each copy of memory to and from the devices.
#pragma once

#include <troupe/program/conform/conform_image.hpp>

#include <troupe/runtime/world.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::program {

struct conform_tally {
  std::size_t passed = 0;
  std::size_t failed = 0;
  std::size_t not_run = 0;                      ///< Of those that failed: because the world had.
  std::map<std::string, std::size_t> skipped{}; ///< By reason.

  [[nodiscard]] std::size_t skipped_in_all() const;
  conform_tally& operator+=(const conform_tally& other);
};

/// A case that the world refuses as unsupported is skipped with that reason; any other error is a failure.
class conform_runner {
public:
  struct hooks {
    /// Told of each case that fails, and what was wrong first.
    std::function<void(const std::string& name, const std::string& what)> failed;
    /// Changes what ranks are asked before they are: how tests of the suite plant faults.
    std::function<void(std::vector<operation>& parts)> meddle{};
  };

  /// \p seed makes inputs. \p image_bytes is for each local rank, on its device, and thrice in host memory. Where not
  /// all ranks live in this process, every process runs the same cases, each for its own ranks. Errors: out_of_memory.
  conform_runner(world where, std::uint64_t seed, std::size_t image_bytes, hooks reports);

  /// Takes a case. It is run with others, now or later, at the latest by finish().
  void run(conform_case what);
  void finish();
  [[nodiscard]] const conform_tally& tally() const noexcept { return tally_; }

private:
  struct placed {
    conform_image* image = nullptr; ///< None: another process's.
    std::size_t number = 0;
  };
  /// One case with its memory.
  struct entry {
    std::string name;
    bool by_rank = false;
    std::vector<operation> parts{}; ///< Of ranks[i], or of every rank.
    std::vector<rank> ranks{};
    std::vector<placed> memory{};
    error failure{};
  };

  /// Null for one of another process's ranks.
  [[nodiscard]] conform_image* image_of(const conform_range& range);
  [[nodiscard]] bool is_local(int one) const { return place_of(one).has_value(); }
  [[nodiscard]] std::optional<std::size_t> place_of(int one) const;
  [[nodiscard]] bool fits(const conform_case& what);
  [[nodiscard]] std::shared_ptr<const reference_values> values_of(const value_source& source);
  [[nodiscard]] entry place(conform_case what);
  /// Of each rank, the operations that it is asked.
  [[nodiscard]] std::vector<std::vector<operation>> operations_of(const conform_case& what,
                                                                  const std::vector<placed>& memory) const;
  void run_batch();
  void ask();
  [[nodiscard]] std::vector<std::future<completion>> ask(const entry& one);
  [[nodiscard]] error copy_all(copy (conform_image::*direction)() const);
  void judge(entry& one);
  void fail(const std::string& name, const std::string& what);

  world world_;
  std::uint64_t seed_;
  hooks reports_;
  std::vector<rank> locals_;
  bool is_whole_;                                  ///< All ranks are local.
  std::vector<conform_image> on_device_, on_host_; ///< By local rank.
  std::map<value_source, std::shared_ptr<const reference_values>> values_;
  std::vector<entry> batch_;
  conform_tally tally_;
};

} // namespace troupe::program
