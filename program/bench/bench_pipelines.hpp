/// The ranks' pipelines without actors: what launching costs between a request and its reply.
#pragma once

#include <troupe/program/bench/bench_asker.hpp>

#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/runtime/runtime.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace troupe::program {

/// Pipelines of their own, with launchers, a poller and communicators, over the same GPUs as \p where. Not to be used
/// while troupe's are busy.
class bench_pipelines {
public:
  /// \p wait: of launchers and poller.
  bench_pipelines(runtime& rt, const world& where, wait_profile wait);
  bench_pipelines(const bench_pipelines&) = delete;
  bench_pipelines& operator=(const bench_pipelines&) = delete;
  ~bench_pipelines();

  /// Gives every rank its operations, one by one or as one launch, and spins until all are answered. \p parts[r] are
  /// rank r's. Returns the time from the first to the last. Throws the first error.
  [[nodiscard]] nanoseconds ask(const std::vector<std::vector<operation>>& parts, bool together);

private:
  template <class Work>
  void on_all(const Work& work);

  std::shared_ptr<poller> poller_;
  std::vector<std::shared_ptr<launcher>> launchers_;
  std::vector<std::shared_ptr<rank_pipeline>> ranks_;
};

} // namespace troupe::program
