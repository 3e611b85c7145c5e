/// Test rig with several worlds over the same mock GPUs. Their ranks record their launches, and the test can stop the
/// launchers.
#pragma once

#include "support/noting_peers.hpp"

#include "support/pipeline_rig.hpp"
#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/error.hpp>

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::tests {

/// Blocks a launcher until go(), which the destructor calls.
class stopped_launcher {
public:
  /// Returns when the launcher is blocked.
  explicit stopped_launcher(launcher& launch_thread) {
    const auto stopped = std::make_shared<std::promise<void>>();
    launch_thread.post([stopped, until = go_->get_future().share()] {
      stopped->set_value();
      until.wait();
    });
    stopped->get_future().wait();
  }
  stopped_launcher(stopped_launcher&& other) noexcept = default;
  stopped_launcher& operator=(stopped_launcher&&) = delete;
  ~stopped_launcher() { go(); }

  void go() {
    if (const auto once = std::exchange(go_, nullptr)) once->set_value();
  }

private:
  std::unique_ptr<std::promise<void>> go_ = std::make_unique<std::promise<void>>();
};

struct ordering_rig {
  /// The first world is the rig's own. Its launches are recorded with the prefix "a ", those of the next with "b ".
  explicit ordering_rig(int size, int worlds = 1, bool real_time = false)
    : notes(static_cast<std::size_t>(size)),
      rig{size, {.time = real_time ? nullptr : time}, [this](rank self, const auto& gpu) {
            return make_peers(self, gpu, "a ");
          }} {
    sets.push_back(rig.ranks);
    for (int w = 1; w < worlds; ++w) {
      auto& set = sets.emplace_back();
      for (std::size_t i = 0; i < rig.devices.size(); ++i) {
        set.push_back(rank_pipeline::create(
            rig.services,
            make_peers(rank{static_cast<int>(i)}, rig.devices[i], std::string{static_cast<char>('a' + w)} + ' '),
            rig.launchers[i], rig_epoch, [](const error&) {}));
        set.back()->init();
      }
    }
  }
  ordering_rig(const ordering_rig&) = delete;
  ordering_rig& operator=(const ordering_rig&) = delete;
  virtual ~ordering_rig() {
    for (std::size_t w = 1; w < sets.size(); ++w)
      for (const auto& one : sets[w]) {
        one->fail({.code = errc::stopping, .text = "the test is over"});
        one->abort();
      }
    rig.settle();
  }

  /// Waits until the launchers have finished their jobs and the jobs that these posted.
  void settle() const {
    for (int i = 0; i < 3; ++i) rig.settle();
  }
  /// Polls until all submitted operations are answered.
  void look() const {
    for (const auto& set : sets)
      for (const auto& one : set)
        while (one->load() > 0)
          if (!rig.services.poller->step()) std::this_thread::yield();
  }
  /// Returns an all_reduce in new memory of rank \p self.
  [[nodiscard]] operation sum(std::size_t self, std::size_t count) const {
    const buffer memory = rig.numbers(self, count, 1);
    return sum_of(memory, memory, count);
  }
  [[nodiscard]] stopped_launcher stop(std::size_t which) const { return stopped_launcher{*rig.launchers[which]}; }

  std::shared_ptr<manual_clock> time = std::make_shared<manual_clock>();
  std::vector<std::shared_ptr<launch_notes>> notes; ///< Indexed by device.
  pipeline_rig rig;
  std::vector<std::vector<std::shared_ptr<rank_pipeline>>> sets; ///< Indexed by world, then by rank.

private:
  std::shared_ptr<communicator> make_peers(rank self, const std::shared_ptr<device>& gpu, std::string world) {
    auto& mine = notes[static_cast<std::size_t>(self.value())];
    if (!mine) mine = std::make_shared<launch_notes>();
    return std::make_shared<noting_peers>(self, static_cast<int>(notes.size()), gpu, mine, std::move(world));
  }
};

} // namespace troupe::tests
