/// Runs conformance cases: single ones (conform_runner), or all those of a world and of worlds split from it
/// (conform_suite). Many cases are in flight together and share each copy of memory to and from the devices.
#pragma once

#include <troupe/program/conform/conform_image.hpp>
#include <troupe/program/conform/conform_plan.hpp>

#include <troupe/collectives/operation/rank_group.hpp>
#include <troupe/collectives/operation/remote_buffer.hpp>
#include <troupe/runtime/world.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::program {

struct conform_tally {
  std::size_t passed = 0;
  std::size_t failed = 0;
  std::size_t not_run = 0;                      ///< The failed cases that did not run because the world had failed.
  std::map<std::string, std::size_t> skipped{}; ///< The skipped cases, by reason.

  [[nodiscard]] std::size_t skipped_in_all() const;
  conform_tally& operator+=(const conform_tally& other);
};

/// Coordinates cases in which one process, the asker, sends the requests of all ranks of a world over processes. The
/// ranks' processes export their memory, fill it before each batch and compare it afterwards. All processes run the
/// same cases in the same batches.
class conform_meeting {
public:
  /// For the process of a rank. \p seed is that of conform_runner.
  conform_meeting(world where, rank self, std::uint64_t seed);
  /// For the asker. \p ask sends a request to all ranks. \p find returns the handle of the memory that a rank has
  /// exported under a name.
  conform_meeting(int ranks, std::uint64_t seed, std::function<std::future<completion>(std::vector<operation>)> ask,
                  std::function<std::future<remote_buffer>(rank, const std::string&)> find);

  [[nodiscard]] bool is_asker() const noexcept { return ask_ != nullptr; }
  [[nodiscard]] const conform_scope& scope() const noexcept { return scope_; }
  [[nodiscard]] std::vector<conform_image>& on_device() noexcept { return on_device_; }
  [[nodiscard]] std::vector<conform_image>& on_host() noexcept { return on_host_; }
  [[nodiscard]] std::future<completion> ask(std::vector<operation> parts) { return ask_(std::move(parts)); }

  /// Begins the next batch. In the process of a rank: reports that its memory is ready, and returns when the operations
  /// are done. In the asker: returns when the memory of all ranks is ready.
  void begin_batch();
  /// Called by the asker: reports to all ranks that the operations of the batch are done.
  void end_batch();

private:
  [[nodiscard]] remote_buffer wait_for(rank target, const std::string& name) const;

  conform_scope scope_;
  std::size_t batch_ = 0;
  std::vector<conform_image> on_device_, on_host_; ///< By rank.
  // In the process of a rank:
  std::optional<world> world_;
  rank self_{};
  epoch formed_{};
  buffer done_; ///< The number of batches that are done.
  // In the asker:
  std::function<std::future<completion>(std::vector<operation>)> ask_;
  std::function<std::future<remote_buffer>(rank, const std::string&)> find_;
  std::vector<remote_buffer> counts_, flags_; ///< By rank: the batch numbers from 0, and the rank's done_.
};

/// Runs cases. A case that the world refuses as unsupported is skipped with that reason; any other error is a failure.
class conform_runner {
public:
  struct hooks {
    /// Called for each failed case, with a description of the first error.
    std::function<void(const std::string& name, const std::string& what)> failed;
    /// Changes the requests of the ranks before they are sent. Tests of the suite inject faults with it.
    std::function<void(std::vector<operation>& parts)> meddle{};
    /// Requests to the world and to its ranks are not in flight together: nobody orders them under ordering::caller.
    bool apart = false;
  };

  /// \p seed determines the inputs. \p image_bytes is the memory for each local rank: once on its device and three
  /// times in host memory. If some ranks live in other processes, every process runs the same cases, each for its own
  /// ranks.
  /// Errors: out_of_memory.
  conform_runner(world where, std::uint64_t seed, std::size_t image_bytes, hooks reports);
  /// Runs this process's part of cases whose requests the asker sends. \p where is empty in the asker.
  conform_runner(std::optional<world> where, conform_meeting& meeting, hooks reports);

  /// Accepts a case. It is run in a batch with others, at the latest by finish().
  void run(conform_case what);
  void finish();
  [[nodiscard]] const conform_tally& tally() const noexcept { return tally_; }

private:
  struct placed {
    conform_image* image = nullptr; ///< Null if the range belongs to a rank of another process.
    std::size_t number = 0;
  };
  /// One case with its memory.
  struct entry {
    std::string name;
    bool by_rank = false;
    std::vector<operation> parts{}; ///< The operations of `ranks` or, for a request to the world, of every rank.
    std::vector<rank> ranks{};
    std::vector<placed> memory{};
    std::optional<agreed_value> agreed{}; ///< conform_piece::agreed
    error failure{};
  };

  /// Returns null for a range of a rank in another process.
  [[nodiscard]] conform_image* image_of(const conform_range& range);
  [[nodiscard]] bool is_local(int one) const { return place_of(one).has_value(); }
  [[nodiscard]] std::optional<std::size_t> place_of(int one) const;
  [[nodiscard]] bool fits(const conform_case& what);
  [[nodiscard]] entry place(conform_case what);
  /// Returns the operations of each rank.
  [[nodiscard]] std::vector<std::vector<operation>> operations_of(const conform_case& what,
                                                                  const std::vector<placed>& memory) const;
  void run_batch();
  void ask();
  [[nodiscard]] std::vector<std::future<completion>> ask(const entry& one);
  [[nodiscard]] error copy_all(copy (conform_image::*direction)() const);
  void judge(entry& one);
  void fail(const std::string& name, const std::string& what);

  std::optional<world> world_; ///< Empty in a process without a rank.
  conform_meeting* meeting_ = nullptr;
  int ranks_;
  hooks reports_;
  std::vector<rank> locals_; ///< The ranks that have images: the local ones, or with a meeting all of them.
  bool is_whole_;            ///< True if all ranks are asked by one request.
  std::vector<conform_image> own_on_device_, own_on_host_;
  std::vector<conform_image>& on_device_; ///< Indexed as locals_.
  std::vector<conform_image>& on_host_;
  known_values values_;
  std::vector<entry> batch_;
  conform_tally tally_;
};

/// Runs the cases of the whole world of \p meeting whose names contain \p only.
[[nodiscard]] conform_tally run_meeting(std::optional<world> where, conform_meeting& meeting, const std::string& only,
                                        const conform_runner::hooks& reports);

/// Runs the cases in three steps. First, the whole world runs its cases. Then the world is split into sub-worlds that
/// share ranks. They run their cases of three dtypes at the same time. Under ordering::caller, requests to ranks are
/// made by one sub-world after another, because the clients must guarantee their order.
class conform_suite {
public:
  /// The hooks are called by one thread at a time.
  struct hooks {
    std::function<void(const std::string& name)> began{};
    std::function<void(const std::string& name, const std::string& what)> failed;
  };

  /// Runs only cases whose names contain \p only. Errors: invalid_argument if there are none.
  conform_suite(world where, ordering order, std::uint64_t seed, const std::string& only, hooks reports);

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
  ordering order_;
  choice chosen_;
  hooks reports_;
  conform_scope whole_;
  std::vector<split_scope> parts_;
  std::mutex reporting_;
};

} // namespace troupe::program
