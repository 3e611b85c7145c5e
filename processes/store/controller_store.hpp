/// Where the controllers of a world elect the one that decides, and where it keeps its decisions.
#pragma once

#include <troupe/device/threads/boot_clock.hpp>
#include <troupe/device/time.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

/// The claim of the controller that was elected.
struct store_claim {
  std::uint64_t revision = 0; ///< Names this election: no other one has this number.
  std::uint64_t lease = 0;    ///< The store's own name of what renew() renews.
  nanoseconds length{}; ///< The store ends the claim no sooner than this after it has received campaign() or renew().
  /// The latest decision of all controllers; nullopt if there is none. No other controller decides from now on.
  std::optional<std::string> record{};
};

/// What a controller that stands by sees.
struct store_view {
  std::optional<std::string> leader{}; ///< The name of the elected controller.
  std::optional<std::string> record{}; ///< The latest decision.
};

/// A store that several controllers of one world share. It elects one of them at a time, and accepts decisions of that
/// one only. Each call is one atomic step of the store, and waits for it.
///
/// Errors: each call throws errc::missing if the store does not answer; what it asked for may have been done then.
/// Threads: one call at a time.
class controller_store {
public:
  controller_store() = default;
  controller_store(const controller_store&) = delete;
  controller_store& operator=(const controller_store&) = delete;
  virtual ~controller_store() = default;

  /// Elects this controller, if none is elected, under the name \p leader, for about \p length. Returns nullopt if
  /// another one is elected. After an error, call it again with the same name.
  [[nodiscard]] virtual std::optional<store_claim> campaign(const std::string& leader, nanoseconds length) = 0;
  /// Prolongs \p claim. Returns false if it has ended.
  [[nodiscard]] virtual bool renew(const store_claim& claim) = 0;
  /// Replaces the latest decision by \p record if \p claim has not ended (compare and write). Returns whether it has
  /// not.
  [[nodiscard]] virtual bool decide(const store_claim& claim, const std::string& record) = 0;
  [[nodiscard]] virtual store_view observe() = 0;
  /// Ends \p claim, so that another controller is elected at once.
  virtual void resign(const store_claim& claim) = 0;
  /// Returns where it is, for people.
  [[nodiscard]] virtual std::string name() const = 0;
};

} // namespace troupe
