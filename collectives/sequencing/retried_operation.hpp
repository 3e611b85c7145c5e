/// One operation that may be run again: what has become of its parts in one epoch.
#pragma once

#include <troupe/collectives/retry_claim.hpp>
#include <troupe/collectives/sequencing/lane.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace troupe {

class retry_shelf;

/// Threads: what retried_parts has from any; the rest from the shelf's.
class retried_operation final : public retried_parts {
public:
  enum class stage : std::uint8_t {
    running,      ///< No part is lost.
    lost_in_part, ///< Some are, of others it is not known yet.
    lost,         ///< All are, and none has been answered.
    over,         ///< Answered, or handed on: what is lost from now on is answered with its fault.
  };

  [[nodiscard]] static std::shared_ptr<retried_operation> make(std::weak_ptr<retry_shelf> shelf,
                                                               std::optional<lane> line, epoch formed_in,
                                                               int world_size, std::size_t parts);
  retried_operation(std::weak_ptr<retry_shelf> shelf, std::optional<lane> line, epoch formed_in, int world_size,
                    std::size_t parts) noexcept;
  ~retried_operation() override;

  void put_aside(lost_part one) noexcept override;
  void settled() noexcept override;

  [[nodiscard]] stage at() const noexcept;
  /// None: of the whole world.
  [[nodiscard]] const std::optional<lane>& line() const noexcept { return line_; }
  [[nodiscard]] epoch formed_in() const noexcept { return formed_in_; }
  [[nodiscard]] int world_size() const noexcept { return world_size_; }
  /// Whether any of the lost parts may have.
  [[nodiscard]] bool may_have_run() const noexcept;
  /// Of the lost part that has the least time.
  [[nodiscard]] time_point deadline() const noexcept;
  template <class Visit>
  void visit(Visit visit) const {
    const std::lock_guard lock{guard_};
    for (const lost_part& one : lost_) visit(one);
  }
  /// The lost parts; it is over then.
  [[nodiscard]] std::vector<lost_part> take() noexcept;

  [[nodiscard]] bool counted() const noexcept { return counted_; }
  void count() noexcept { counted_ = true; }

private:
  const std::weak_ptr<retry_shelf> shelf_;
  const std::optional<lane> line_;
  const epoch formed_in_;
  const int world_size_;
  bool counted_ = false; ///< Among those that were put aside.

  mutable std::mutex guard_;
  std::size_t open_; ///< Parts that have not been heard of.
  bool over_ = false;
  std::vector<lost_part> lost_;
};

} // namespace troupe
