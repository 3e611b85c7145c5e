/// Test rig with the pipelines, launchers and poller of one process over the mock, without actors.
#pragma once

#include "support/comes_true.hpp"
#include "support/outcomes.hpp"

#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::tests {

using namespace std::chrono_literals;

inline constexpr epoch rig_epoch{7};

/// Records the faults that pipelines report to their world. Threads: any.
class fault_log {
public:
  void add(rank who, error why) {
    const std::lock_guard lock{mutex_};
    faults_.emplace_back(who, std::move(why));
  }
  [[nodiscard]] std::vector<std::pair<rank, error>> all() const {
    const std::lock_guard lock{mutex_};
    return faults_;
  }
  /// Waits for the first fault.
  std::pair<rank, error> await() const {
    tests::await("a fault", [&] { return !all().empty(); });
    return all().front();
  }

private:
  mutable std::mutex mutex_;
  std::vector<std::pair<rank, error>> faults_;
};

struct pipeline_options {
  completion_strategy strategy = completion_strategy::flag;
  track_limits limits{};
  std::shared_ptr<manual_clock> time{}; ///< If null, time is real and the poller has a thread.
  staging_limits staging{};
  std::shared_ptr<const serving_lease> lease{};
  wait_profile wait{.spin = 0s};            ///< Of the poller.
  std::shared_ptr<troupe::poller> poller{}; ///< If null, one of its own.
};

struct pipeline_rig {
  using peers_maker = std::function<std::shared_ptr<communicator>(rank, const std::shared_ptr<device>&)>;

  explicit pipeline_rig(int size, const pipeline_options& options = {}, const peers_maker& make_peers = {}) {
    api = make_mock_driver({.device_count = size});
    std::shared_ptr<const clock> time = std::make_shared<monotonic_clock>();
    if (options.time) time = options.time;
    services = {.time = time,
                .poller = options.poller ? options.poller : std::make_shared<poller>(time, options.wait),
                .strategy = options.strategy,
                .limits = options.limits,
                .staging = std::make_shared<staging_stock>(options.staging),
                .lease = options.lease};
    if (!options.time) services.poller->start();
    const auto kind = make_mock_backend();
    const unique_id id = kind->make_unique_id();
    for (int i = 0; i < size; ++i) {
      devices.push_back(device::open(api, device_id{i}));
      pools.push_back(memory_pool::create(devices.back()));
      services.staging->add(pools.back());
      launchers.push_back(std::make_shared<launcher>(devices.back(), wait_profile{.spin = 0s}, 1ms));
      if (!services.slots) services.slots = std::make_shared<slot_table>(devices.back(), 64);
      auto peers = make_peers ? make_peers(rank{i}, devices.back()) : kind->create(id, rank{i}, size, devices.back());
      ranks.push_back(rank_pipeline::create(services, std::move(peers), launchers.back(), rig_epoch,
                                            [log = faults, i](error why) { log->add(rank{i}, std::move(why)); }));
    }
    on_all([](rank_pipeline& one) { one.init(); });
  }
  pipeline_rig(const pipeline_rig&) = delete;
  pipeline_rig& operator=(const pipeline_rig&) = delete;
  ~pipeline_rig() {
    if (!ended) abort({.code = errc::stopping, .text = "the test is over"});
    settle(); // so that no launcher's job holds the last reference to a rank
    ranks.clear();
    launchers.clear();
    services.poller->stop();
  }

  /// Calls \p work for each rank on a thread of its own, as a world does.
  void on_all(const std::function<void(rank_pipeline&)>& work) {
    std::vector<std::jthread> helpers;
    for (const auto& one : ranks) helpers.emplace_back([&work, &one] { work(*one); });
  }
  void abort(const error& why) {
    for (const auto& one : ranks) one->fail(why);
    on_all([](rank_pipeline& one) { one.abort(); });
    ended = true;
  }
  /// Waits until no operation is in flight, then closes all ranks. Returns whether all ranks drained.
  bool close() {
    std::vector<char> drained(ranks.size());
    on_all([&](rank_pipeline& one) { drained[static_cast<std::size_t>(one.self().value())] = one.drain(60s) ? 1 : 0; });
    on_all([](rank_pipeline& one) { one.close(); });
    ended = true;
    return std::ranges::find(drained, 0) == drained.end();
  }
  /// Waits until the launchers have finished the jobs posted so far.
  void settle() const {
    for (const auto& launch_thread : launchers) {
      const auto done = std::make_shared<std::promise<void>>();
      launch_thread->post([done] { done->set_value(); });
      done->get_future().wait();
    }
  }
  /// Releases the ranks, and waits until they have ended: a launcher holds those that it checks.
  void release_ranks() {
    for (auto& one : ranks) {
      const std::weak_ptr<rank_pipeline> released{std::exchange(one, nullptr)};
      await("a rank's end", [&] { return released.expired(); });
    }
    settle(); // the last reference may have been a launcher's
    ranks.clear();
  }
  void await_idle() const {
    for (const auto& one : ranks) await("the answers of all operations", [&] { return one->load() == 0; });
  }
  /// Returns device memory of rank \p index, filled with \p value.
  [[nodiscard]] buffer numbers(std::size_t index, std::size_t count, std::int32_t value) const {
    buffer made = pools[index]->allocate(count * sizeof value);
    for (std::size_t i = 0; i < count; ++i) std::memcpy(made.data() + i * sizeof value, &value, sizeof value);
    return made;
  }
  void submit(std::size_t index, operation what, const outcome_log& log, nanoseconds deadline = 1h) {
    ranks[index]->submit(ticket{++tickets}, std::move(what), deadline, log.make_reply_promise());
  }

  bool ended = false;
  std::uint64_t tickets = 0;
  std::shared_ptr<mock_driver> api;
  pipeline_services services;
  std::vector<std::shared_ptr<device>> devices;
  std::vector<std::shared_ptr<memory_pool>> pools;
  std::vector<std::shared_ptr<launcher>> launchers;
  std::vector<std::shared_ptr<rank_pipeline>> ranks;
  std::shared_ptr<fault_log> faults = std::make_shared<fault_log>();
};

[[nodiscard]] inline operation sum_of(const buffer& send, const buffer& recv, std::size_t count) {
  return all_reduce{.send = send, .recv = recv, .count = count, .type = dtype::i32, .op = reduction::sum};
}

/// Returns whether the first \p count numbers are \p value.
[[nodiscard]] inline bool holds(const buffer& memory, std::size_t count, std::int32_t value) {
  for (std::size_t i = 0; i < count; ++i)
    if (std::memcmp(memory.data() + i * sizeof value, &value, sizeof value) != 0) return false;
  return true;
}

/// Returns a buffer whose release the test can observe: \p owner expires when the last request releases the buffer.
[[nodiscard]] inline buffer watched(const std::shared_ptr<device>& where, const buffer& memory,
                                    std::weak_ptr<void>& owner) {
  auto held = std::make_shared<buffer>(memory);
  owner = held;
  return adopt(where, memory.data(), memory.size_bytes(), held);
}

} // namespace troupe::tests
