/// One rank's request on its way through the sequencer.
#pragma once

#include <troupe/collectives/operation/compact_signature.hpp>
#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace troupe {

/// The client of a request, its position, and its times.
struct sequencing_terms {
  std::uint32_t world = 0; ///< The number of the world, from sequencer::open_world().
  troupe::rank rank{};
  troupe::lane lane{};
  std::uint64_t client = 0; ///< The owner of the lane at this rank; 0 if any client may use the lane.
  /// The position in the lane that the client assumes, from 0. It is checked, so that a lost or repeated message is
  /// noticed. nullopt: the next one.
  std::optional<std::uint64_t> position{};
  time_point asked{};
  time_point deadline = time_point::max(); ///< Deadline of the release.
  /// Why the rank cannot take part in the operation. When all ranks have asked for it, it is refused at all of them.
  std::shared_ptr<const error> objection{};
};

/// Base class of requests. Derived classes hold the operation and the reply. The sequencer owns the request from ask()
/// until it returns it, released or refused.
class sequenced {
public:
  explicit sequenced(sequencing_terms terms) noexcept : terms_{std::move(terms)} {}
  sequenced(const sequenced&) = delete;
  sequenced& operator=(const sequenced&) = delete;
  virtual ~sequenced() = default;

  [[nodiscard]] const sequencing_terms& terms() const noexcept { return terms_; }
  /// Returns the operation. Its memory is not accessed, because it may belong to another process.
  [[nodiscard]] virtual const operation& what() const noexcept = 0;
  /// Returns a summary of what(). Overridden for requests of other processes: their operations have no memory, from
  /// which the size of a copy is taken here.
  [[nodiscard]] virtual compact_signature sketch() const noexcept { return compact(what()); }

protected:
  /// Sets the number of the world. Call it before ask() if the number was not known at construction.
  void belongs_to(std::uint32_t world) noexcept { terms_.world = world; }

private:
  friend class sequencer;
  sequencing_terms terms_;
};

/// Returns one line for users: "all_reduce of 1024 f32, sum".
[[nodiscard]] inline std::string describe(const sequenced& one) {
  return std::holds_alternative<copy>(one.what()) ? describe(one.sketch()) : describe(one.what());
}

} // namespace troupe
