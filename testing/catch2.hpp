/// Defines Catch2 matchers for outcomes, CHECK_THAT(world.barrier(), succeeds()), and for launches,
/// CHECK_THAT(script.launches(rank{0}), are_launches(is_launch("barrier") && asked_of_world())). Needs Catch2 3.4 or
/// later; troupe itself does not need Catch2.
#pragma once

#include <troupe/completion/reply/outcome.hpp>
#include <troupe/device/error.hpp>
#include <troupe/testing/fault_script.hpp>
#include <troupe/testing/virtual_reply.hpp>

#include <catch2/catch_tostring.hpp>
#include <catch2/matchers/catch_matchers_templated.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace troupe::testing {

/// The longest time that a matcher waits for a future. It is real time, so that a test fails instead of hanging.
/// Matchers do not wait for a virtual reply: let time pass first.
inline constexpr std::chrono::seconds longest_wait{60};

/// Returns the outcome of a request, or nothing if there is none yet.
[[nodiscard]] inline std::optional<outcome> seen_in(const outcome& result) {
  return result;
}
/// Returns the outcome of a virtual reply, or nothing if there is none yet.
[[nodiscard]] inline std::optional<outcome> seen_in(const virtual_reply& reply) {
  if (!reply.is_ready()) return std::nullopt;
  return reply.result();
}
/// Waits for a future and takes the outcome out of it. Returns nothing if there is none within longest_wait.
[[nodiscard]] inline std::optional<outcome> seen_in(std::future<completion>& reply) {
  if (reply.wait_for(longest_wait) != std::future_status::ready) return std::nullopt;
  try {
    return reply.get();
  } catch (const exception& failure) {
    return failure.why();
  }
}

/// Describes why seen_in() returned nothing, and what the test must do.
[[nodiscard]] inline std::string describe_unseen(const virtual_reply&) {
  return "it has not been answered: let virtual time pass first, by the reply's get() or wait_for(), or the world's "
         "advance() or run_until()";
}
template <class Reply>
[[nodiscard]] std::string describe_unseen(const Reply&) {
  return "it has not been answered in " + std::to_string(longest_wait.count()) + " s";
}

/// Returns "succeeded", or the error.
[[nodiscard]] inline std::string describe(const outcome& result) {
  const error* const failure = failure_of(result);
  return failure == nullptr ? "succeeded" : to_string(*failure);
}

/// Matches outcomes, virtual replies and futures (whose outcome it takes) with a predicate on their error.
template <class Question>
class outcome_matcher final : public Catch::Matchers::MatcherGenericBase {
public:
  /// \p wanted describes the expected outcome in messages.
  outcome_matcher(std::string wanted, Question question) : wanted_{std::move(wanted)}, question_{std::move(question)} {}

  /// Called by Catch2.
  template <class Reply>
  bool match(Reply&& reply) const {
    const std::optional<outcome> seen = seen_in(reply);
    if (!seen) {
      was_ = describe_unseen(reply);
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
  mutable std::string was_; ///< The outcome in the last match.
};

/// Matches a completion.
[[nodiscard]] inline auto succeeds() {
  return outcome_matcher{"succeeds", [](const error* failure) { return failure == nullptr; }};
}
/// Matches an error with \p code.
[[nodiscard]] inline auto fails_with(errc code) {
  return outcome_matcher{"fails with " + std::string{to_string(code)},
                         [code](const error* failure) { return failure != nullptr && failure->code == code; }};
}
/// Matches an error whose request certainly did not run (ONE-2).
[[nodiscard]] inline auto was_rejected() {
  return outcome_matcher{
      "was rejected", [](const error* failure) { return failure != nullptr && failure->effect == effect::rejected; }};
}
/// Matches an error whose request may have run; its results are undefined (ONE-2).
[[nodiscard]] inline auto has_unknown_outcome() {
  return outcome_matcher{"has an unknown outcome", [](const error* failure) {
                           return failure != nullptr && failure->effect == effect::unknown_outcome;
                         }};
}

/// Matches one launch with a predicate.
template <class Question>
class launch_matcher final : public Catch::Matchers::MatcherGenericBase {
public:
  /// \p wanted describes the expected launch in messages.
  launch_matcher(std::string wanted, Question question) : wanted_{std::move(wanted)}, question_{std::move(question)} {}

  /// Called by Catch2.
  bool match(const launch_record& one) const {
    was_ = testing::describe(one);
    return question_(one);
  }
  std::string describe() const override { return wanted_ + (was_.empty() ? "" : " (it was: " + was_ + ")"); }

private:
  std::string wanted_;
  Question question_;
  mutable std::string was_; ///< The launch in the last match.
};

/// Matches a launch of \p operation ("all_reduce"), and, if \p count is given, of that number of elements.
[[nodiscard]] inline auto is_launch(std::string_view operation, std::optional<std::size_t> count = {}) {
  return launch_matcher{"is a launch of " + std::string{operation} +
                            (count ? " of " + std::to_string(*count) : std::string{}),
                        [operation = std::string{operation}, count](const launch_record& one) {
                          return one.operation == operation && (!count || one.count == *count);
                        }};
}
/// Matches a launch for a request to the rank in \p line.
[[nodiscard]] inline auto asked_in(lane line) {
  return launch_matcher{"was requested in lane " + line.name(),
                        [line](const launch_record& one) { return one.by && !one.by->of_world && one.by->in == line; }};
}
/// Matches a launch for a request to the world.
[[nodiscard]] inline auto asked_of_world() {
  return launch_matcher{"was requested from the world",
                        [](const launch_record& one) { return one.by && one.by->of_world; }};
}
/// Matches a launch for a request of an actor (its id()) or a rank_lane (its client()).
[[nodiscard]] inline auto asked_by(std::uint64_t client) {
  return launch_matcher{"was requested by client " + std::to_string(client),
                        [client](const launch_record& one) { return one.by && one.by->client == client; }};
}
/// Matches a launch for a plan that is being captured.
[[nodiscard]] inline auto captured() {
  return launch_matcher{"was captured for a plan", [](const launch_record& one) { return !one.by; }};
}
/// Matches a launch in epoch \p wanted.
[[nodiscard]] inline auto launched_in(epoch wanted) {
  return launch_matcher{"was launched in epoch " + to_string(wanted),
                        [wanted](const launch_record& one) { return one.epoch == wanted; }};
}
/// Matches a launch with \p fate.
[[nodiscard]] inline auto was(launch_fate fate) {
  return launch_matcher{"was " + std::string{to_string(fate)},
                        [fate](const launch_record& one) { return one.fate == fate; }};
}

/// Matches a rank's launches one by one, each with a matcher of its own. Their number must be equal.
template <class... Matchers>
class launches_matcher final : public Catch::Matchers::MatcherGenericBase {
public:
  /// One matcher for each launch, in order.
  explicit launches_matcher(const Matchers&... each) : each_{each...} {}

  /// Called by Catch2.
  bool match(const std::vector<launch_record>& all) const {
    was_.clear();
    for (const launch_record& one : all) was_ += "\n  " + testing::describe(one);
    wrong_.reset();
    if (all.size() != sizeof...(Matchers)) return false;
    return match_each(all, std::index_sequence_for<Matchers...>{});
  }
  std::string describe() const override {
    std::string text = "are " + std::to_string(sizeof...(Matchers)) + " launches";
    if (wrong_) text += ", of which number " + std::to_string(*wrong_) + " is another";
    return text + ". They are:" + (was_.empty() ? " none" : was_);
  }

private:
  template <std::size_t... Places>
  bool match_each(const std::vector<launch_record>& all, std::index_sequence<Places...>) const {
    [[maybe_unused]] const auto fits = [&](std::size_t place, const auto& wanted) {
      if (!wanted.match(all[place])) wrong_ = place;
      return !wrong_;
    };
    return (fits(Places, std::get<Places>(each_)) && ...);
  }

  std::tuple<const Matchers&...> each_; ///< References, because Catch2's own combinations refer to temporaries too.
  mutable std::string was_;
  mutable std::optional<std::size_t> wrong_;
};

/// Matches a rank's launches in order: are_launches(is_launch("all_reduce", 64) && asked_in(line),
/// is_launch("barrier")).
template <class... Matchers>
[[nodiscard]] auto are_launches(const Matchers&... each) {
  return launches_matcher<Matchers...>{each...};
}

} // namespace troupe::testing

// How Catch2 prints the matched values.
/// \cond
template <>
struct Catch::StringMaker<troupe::outcome> {
  static std::string convert(const troupe::outcome& result) { return troupe::testing::describe(result); }
};
template <>
struct Catch::StringMaker<troupe::completion> {
  static std::string convert(const troupe::completion&) { return "a completion"; }
};
template <>
struct Catch::StringMaker<troupe::testing::virtual_reply> {
  static std::string convert(const troupe::testing::virtual_reply& reply) {
    return "a reply in virtual time, " +
           (reply.is_ready() ? "answered: " + troupe::testing::describe(reply.result()) : std::string{"not answered"});
  }
};
template <>
struct Catch::StringMaker<std::future<troupe::completion>> {
  static std::string convert(const std::future<troupe::completion>& reply) {
    return reply.valid() ? "a reply" : "a reply whose outcome has been taken";
  }
};
/// \endcond
