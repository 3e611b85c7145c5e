/// One operation that may be run again: the outcomes of its parts in one epoch.
#pragma once

#include <troupe/collectives/operation/retry_claim.hpp>
#include <troupe/collectives/order/lane.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace troupe {

class retry_queue;

/// Threads: functions of retried_parts from any; the rest from the retry queue's tasks.
class retried_operation final : public retried_parts {
public:
  /// State of the operation.
  enum class stage : std::uint8_t {
    running,      ///< No part is lost.
    lost_in_part, ///< Some parts are lost; the outcome of others is not known yet.
    lost,         ///< All parts are lost or done, and none was answered.
    over,         ///< Answered, or replaced by a new run: each later outcome of a part is its answer.
  };

  [[nodiscard]] static std::shared_ptr<retried_operation>
  make(std::weak_ptr<retry_queue> shelf, std::optional<lane> line, epoch formed_in, int world_size, std::size_t parts);
  retried_operation(std::weak_ptr<retry_queue> shelf, std::optional<lane> line, epoch formed_in, int world_size,
                    std::size_t parts) noexcept;
  ~retried_operation() override;

  void keep(kept_part one) noexcept override;
  /// True for a request to the world, which has one answer for all ranks.
  [[nodiscard]] bool is_kept_when_done() const noexcept override { return !line_; }
  void settled() noexcept override;

  [[nodiscard]] stage at() const noexcept;
  /// nullopt: a request to the whole world.
  [[nodiscard]] const std::optional<lane>& line() const noexcept { return line_; }
  [[nodiscard]] epoch formed_in() const noexcept { return formed_in_; }
  [[nodiscard]] int world_size() const noexcept { return world_size_; }
  /// Returns whether a part may have run.
  [[nodiscard]] bool may_have_run() const noexcept;
  /// Returns the earliest deadline of its parts.
  [[nodiscard]] time_point deadline() const noexcept;
  template <class Visit>
  void visit(Visit visit) const {
    const std::lock_guard lock{guard_};
    for (const kept_part& one : kept_) visit(one);
  }
  /// Returns all kept parts. The operation is over then.
  [[nodiscard]] std::vector<kept_part> take() noexcept;

  /// From now on the retry queue is also notified when the operation is over. Returns false if it is over already.
  [[nodiscard]] bool await() noexcept;
  [[nodiscard]] bool counted() const noexcept { return counted_; }
  void count() noexcept { counted_ = true; }

private:
  const std::weak_ptr<retry_queue> shelf_;
  const std::optional<lane> line_;
  const epoch formed_in_;
  const int world_size_;
  bool counted_ = false; ///< Included in the count of operations kept for another run.

  mutable std::mutex guard_;
  std::size_t open_; ///< Parts without an outcome.
  bool over_ = false;
  bool any_lost_ = false;
  bool awaited_ = false;
  std::vector<kept_part> kept_;
};

} // namespace troupe
