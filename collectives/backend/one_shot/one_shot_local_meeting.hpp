/// The meetings of communicators whose ranks are all in one process.
#pragma once

#include <troupe/collectives/backend/one_shot/one_shot_meeting.hpp>
#include <troupe/device/threads/condition.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace troupe {

/// One object for all ranks of a communicator.
class one_shot_local_meeting final : public one_shot_meeting {
public:
  explicit one_shot_local_meeting(int world_size) : offers_(static_cast<std::size_t>(world_size)) {}

  [[nodiscard]] one_shot_peers meet(rank self, one_shot_offer mine) override;
  void abort() noexcept override;
  [[nodiscard]] std::shared_ptr<one_shot_meeting> derived(const derivation& name, int world_size) override;

private:
  [[nodiscard]] one_shot_peers concluded() const;

  std::mutex mutex_;
  condition changed_;
  std::vector<std::optional<one_shot_offer>> offers_;
  std::size_t arrived_ = 0;
  bool aborted_ = false;
  std::optional<one_shot_peers> peers_;
  std::map<derivation, std::weak_ptr<one_shot_local_meeting>> derived_;
};

class one_shot_local_place final : public one_shot_meeting_place {
public:
  [[nodiscard]] std::shared_ptr<one_shot_meeting> meeting_of(const unique_id& id, int world_size) override;

private:
  std::mutex mutex_;
  std::map<decltype(unique_id::bytes), std::weak_ptr<one_shot_meeting>> meetings_;
};

} // namespace troupe
