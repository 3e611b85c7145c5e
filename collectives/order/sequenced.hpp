/// One rank's request on its way through the sequencer.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/order/compact_signature.hpp>
#include <troupe/collectives/order/lane.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/identity.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>

namespace troupe {

/// Who asks, where, and since when.
struct sequencing_terms {
  std::uint32_t world = 0; ///< Of sequencer::open_world().
  troupe::rank rank{};
  troupe::lane lane{};
  std::uint64_t client = 0; ///< Who owns the lane at this rank; 0 is nobody in particular, and any may join it.
  /// What the client takes for its place in the lane, from 0: checked, so that a message that was lost or doubled is
  /// noticed. None: the next.
  std::optional<std::uint64_t> position{};
  time_point asked{};
  time_point deadline = time_point::max(); ///< Until it is released.
};

/// Derived classes hold the operation and the answer. The sequencer keeps it from ask() until it hands it out again,
/// released or refused.
class sequenced {
public:
  explicit sequenced(const sequencing_terms& terms) noexcept : terms_{terms} {}
  sequenced(const sequenced&) = delete;
  sequenced& operator=(const sequenced&) = delete;
  virtual ~sequenced() = default;

  [[nodiscard]] const sequencing_terms& terms() const noexcept { return terms_; }
  /// Read without its memory, which may be another process's.
  [[nodiscard]] virtual const operation& what() const noexcept = 0;
  /// Of what(), where nobody knows better: an operation without memory does not tell the size of a copy.
  [[nodiscard]] virtual compact_signature sketch() const noexcept { return compact(what()); }

protected:
  /// Before it is asked, where the world's number was not known at first.
  void belongs_to(std::uint32_t world) noexcept { terms_.world = world; }

private:
  friend class sequencer;
  sequencing_terms terms_;
};

/// One line for people: "all_reduce of 1024 f32, sum".
[[nodiscard]] inline std::string describe(const sequenced& one) {
  return std::holds_alternative<copy>(one.what()) ? describe(one.sketch()) : describe(one.what());
}

} // namespace troupe
