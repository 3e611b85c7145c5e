/// Catch2 matchers for how requests end: CHECK_THAT(world.barrier(), succeeds()). Needs Catch2 3.4 or later, which
/// troupe itself does not.
#pragma once

#include <troupe/completion/outcome.hpp>
#include <troupe/device/error.hpp>
#include <troupe/testing/virtual_reply.hpp>

#include <catch2/matchers/catch_matchers_templated.hpp>

#include <chrono>
#include <future>
#include <optional>
#include <string>
#include <utility>

namespace troupe::testing {

/// How long a matcher waits for a future: real time, so that a test fails instead of hanging. A virtual reply is not
/// waited for: let time pass first.
inline constexpr std::chrono::seconds longest_wait{60};

/// What a request came to; none: nothing so far.
[[nodiscard]] inline std::optional<outcome> seen_in(const outcome& result) {
  return result;
}
[[nodiscard]] inline std::optional<outcome> seen_in(const virtual_reply& reply) {
  if (!reply.is_ready()) return std::nullopt;
  return reply.result();
}
/// Takes it out of the future.
[[nodiscard]] inline std::optional<outcome> seen_in(std::future<completion>& reply) {
  if (reply.wait_for(longest_wait) != std::future_status::ready) return std::nullopt;
  try {
    return reply.get();
  } catch (const exception& failure) {
    return failure.why();
  }
}

/// Matches outcomes, virtual replies and futures (whose outcome it takes) by a question about their error.
template <class Question>
class outcome_matcher final : public Catch::Matchers::MatcherGenericBase {
public:
  outcome_matcher(std::string wanted, Question question) : wanted_{std::move(wanted)}, question_{std::move(question)} {}

  template <class Reply>
  bool match(Reply&& reply) const {
    const std::optional<outcome> seen = seen_in(reply);
    if (!seen) {
      was_ = "it has not been answered";
      return false;
    }
    const error* const failure = failure_of(*seen);
    was_ = failure == nullptr ? "it succeeded" : "it was: " + to_string(*failure);
    return question_(failure);
  }
  std::string describe() const override { return wanted_ + " (" + was_ + ")"; }

private:
  std::string wanted_;
  Question question_;
  mutable std::string was_; ///< What the last match saw.
};

[[nodiscard]] inline auto succeeds() {
  return outcome_matcher{"succeeds", [](const error* failure) { return failure == nullptr; }};
}
[[nodiscard]] inline auto fails_with(errc code) {
  return outcome_matcher{"fails with " + std::string{to_string(code)},
                         [code](const error* failure) { return failure != nullptr && failure->code == code; }};
}
/// It failed, and certainly did not run (ONE-2).
[[nodiscard]] inline auto was_rejected() {
  return outcome_matcher{
      "was rejected", [](const error* failure) { return failure != nullptr && failure->effect == effect::rejected; }};
}
/// It failed, and may have run: its results are undefined (ONE-2).
[[nodiscard]] inline auto has_unknown_outcome() {
  return outcome_matcher{"has an unknown outcome", [](const error* failure) {
                           return failure != nullptr && failure->effect == effect::unknown_outcome;
                         }};
}

} // namespace troupe::testing
