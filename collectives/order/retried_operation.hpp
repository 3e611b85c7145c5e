/// One operation that may be run again: what has become of its parts in one epoch.
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

/// Threads: what retried_parts has from any; the rest from the shelf's.
class retried_operation final : public retried_parts {
public:
  /// What has become of it.
  enum class stage : std::uint8_t {
    running,      ///< No part is lost.
    lost_in_part, ///< Some are, of others it is not known yet.
    lost,         ///< So are all, or done, and none has been answered.
    over,         ///< Answered, or handed on: whatever comes of a part from now on is its answer.
  };

  [[nodiscard]] static std::shared_ptr<retried_operation>
  make(std::weak_ptr<retry_queue> shelf, std::optional<lane> line, epoch formed_in, int world_size, std::size_t parts);
  retried_operation(std::weak_ptr<retry_queue> shelf, std::optional<lane> line, epoch formed_in, int world_size,
                    std::size_t parts) noexcept;
  ~retried_operation() override;

  void keep(kept_part one) noexcept override;
  /// Of a request to the world, which has one answer for all.
  [[nodiscard]] bool is_kept_when_done() const noexcept override { return !line_; }
  void settled() noexcept override;

  [[nodiscard]] stage at() const noexcept;
  /// None: of the whole world.
  [[nodiscard]] const std::optional<lane>& line() const noexcept { return line_; }
  [[nodiscard]] epoch formed_in() const noexcept { return formed_in_; }
  [[nodiscard]] int world_size() const noexcept { return world_size_; }
  /// Whether any of the parts may have.
  [[nodiscard]] bool may_have_run() const noexcept;
  /// Of the part that has the least time.
  [[nodiscard]] time_point deadline() const noexcept;
  template <class Visit>
  void visit(Visit visit) const {
    const std::lock_guard lock{guard_};
    for (const kept_part& one : kept_) visit(one);
  }
  /// Whatever it keeps; it is over then.
  [[nodiscard]] std::vector<kept_part> take() noexcept;

  /// Somebody waits for what becomes of it: from now on the shelf is told when it is over, too.
  /// Returns false where it is.
  [[nodiscard]] bool await() noexcept;
  [[nodiscard]] bool counted() const noexcept { return counted_; }
  void count() noexcept { counted_ = true; }

private:
  const std::weak_ptr<retry_queue> shelf_;
  const std::optional<lane> line_;
  const epoch formed_in_;
  const int world_size_;
  bool counted_ = false; ///< Among those that were put aside.

  mutable std::mutex guard_;
  std::size_t open_; ///< Parts that have not been heard of.
  bool over_ = false;
  bool any_lost_ = false;
  bool awaited_ = false;
  std::vector<kept_part> kept_;
};

} // namespace troupe
