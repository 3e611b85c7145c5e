/// The meetings of ranks in several processes of one node: each rank exchanges the descriptors of its scratch at the
/// node's meeting_service.
#pragma once

#include <troupe/collectives/backend/one_shot/one_shot_meeting.hpp>
#include <troupe/device/file_descriptor.hpp>
#include <troupe/processes/meeting/meeting_messages.hpp>

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// A function that connects to the meeting service of this node without waiting. It returns an empty descriptor if
/// there is no service. Called from any thread.
using meeting_door = std::function<file_descriptor()>;

/// The meeting of a communicator at one of its ranks. Each rank has an object of its own, in whatever process.
class process_meeting final : public one_shot_meeting {
public:
  /// \p absence: see one_shot_meeting::absence().
  process_meeting(meeting_door door, const meeting_name& name, int world_size, std::string absence)
    : door_{std::move(door)}, name_{name}, world_size_{world_size}, absence_{std::move(absence)} {}

  [[nodiscard]] std::string absence() const override { return absence_; }
  /// Blocks on the service, which answers at the latest when its patience is over. Errors also: communicator_failed (a
  /// rank or the service has ended meanwhile).
  [[nodiscard]] one_shot_peers meet(rank self, one_shot_offer mine) override;
  void abort() noexcept override;
  [[nodiscard]] std::shared_ptr<one_shot_meeting> derived(const derivation& name, int world_size) override;

private:
  /// Throws if this rank has been aborted.
  void require_running(rank self) const;
  /// Connects. Returns false if there is no service. Throws if this rank has been aborted.
  [[nodiscard]] bool enter(rank self);
  void leave() noexcept;
  [[nodiscard]] one_shot_peers exchange(rank self, const one_shot_offer& mine);
  [[nodiscard]] meeting_answer await(rank self, std::vector<file_descriptor>& descriptors);

  const meeting_door door_;
  const meeting_name name_;
  const int world_size_;
  const std::string absence_;
  std::mutex mutex_;
  std::atomic<bool> aborted_ = false; ///< Written with the lock.
  file_descriptor socket_;            ///< While meet() runs. Closed by its thread only.
  std::vector<std::weak_ptr<one_shot_meeting>> splits_;
};

/// The place of a process's meetings.
class process_meetings final : public one_shot_meeting_place {
public:
  explicit process_meetings(meeting_door door) : door_{std::move(door)} {}

  /// The meeting of a formation of which note_node() has not been told, or told that it spans nodes, has an absence.
  [[nodiscard]] std::shared_ptr<one_shot_meeting> meeting_of(const unique_id& id, int world_size) override;
  void note_node(const unique_id& formation, bool is_one) override;

private:
  const meeting_door door_;
  std::mutex mutex_;
  std::deque<std::pair<meeting_name, bool>> noted_; ///< The latest formations.
};

} // namespace troupe
