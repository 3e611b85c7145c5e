/// Catch2 matchers for how requests end, CHECK_THAT(world.barrier(), succeeds()), and for what was launched,
/// CHECK_THAT(script.launches(rank{0}), are_launches(is_launch("barrier") && asked_of_world())). Needs Catch2 3.4 or
/// later, which troupe itself does not.
#pragma once

#include <troupe/completion/reply/outcome.hpp>
#include <troupe/device/error.hpp>
#include <troupe/testing/launch_record.hpp>
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

/// How long a matcher waits for a future: real time, so that a test fails instead of hanging. A virtual reply is not
/// waited for: let time pass first.
inline constexpr std::chrono::seconds longest_wait{60};

/// What a request came to; none: nothing so far.
[[nodiscard]] inline std::optional<outcome> seen_in(const outcome& result) {
  return result;
}
/// The outcome of a reply; none while there is none.
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

/// Why seen_in() saw nothing, and what the test has to do.
[[nodiscard]] inline std::string describe_unseen(const virtual_reply&) {
  return "it has not been answered: let virtual time pass first, by the reply's get() or wait_for(), or the world's "
         "advance() or run_until()";
}
template <class Reply>
[[nodiscard]] std::string describe_unseen(const Reply&) {
  return "it has not been answered in " + std::to_string(longest_wait.count()) + " s";
}

/// "succeeded", or the error.
[[nodiscard]] inline std::string describe(const outcome& result) {
  const error* const failure = failure_of(result);
  return failure == nullptr ? "succeeded" : to_string(*failure);
}

/// Matches outcomes, virtual replies and futures (whose outcome it takes) by a question about their error.
template <class Question>
class outcome_matcher final : public Catch::Matchers::MatcherGenericBase {
public:
  /// \p wanted is what is said that it should have been.
  outcome_matcher(std::string wanted, Question question) : wanted_{std::move(wanted)}, question_{std::move(question)} {}

  /// For Catch2, which asks it.
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
  mutable std::string was_; ///< What the last match saw.
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

/// Matches one launch by a question about it.
template <class Question>
class launch_matcher final : public Catch::Matchers::MatcherGenericBase {
public:
  /// \p wanted is what is said that it should have been.
  launch_matcher(std::string wanted, Question question) : wanted_{std::move(wanted)}, question_{std::move(question)} {}

  /// For Catch2, which asks it.
  bool match(const launch_record& one) const {
    was_ = testing::describe(one);
    return question_(one);
  }
  std::string describe() const override { return wanted_ + (was_.empty() ? "" : " (it was: " + was_ + ")"); }

private:
  std::string wanted_;
  Question question_;
  mutable std::string was_; ///< What the last match saw.
};

/// Of an operation of that name ("all_reduce"), and of so many elements, where \p count says how many.
[[nodiscard]] inline auto is_launch(std::string_view operation, std::optional<std::size_t> count = {}) {
  return launch_matcher{"is a launch of " + std::string{operation} +
                            (count ? " of " + std::to_string(*count) : std::string{}),
                        [operation = std::string{operation}, count](const launch_record& one) {
                          return one.operation == operation && (!count || one.count == *count);
                        }};
}
/// For a request to the rank, in that lane.
[[nodiscard]] inline auto asked_in(lane line) {
  return launch_matcher{"was asked for in lane " + line.name(),
                        [line](const launch_record& one) { return one.by && !one.by->of_world && one.by->in == line; }};
}
/// For a request to the world.
[[nodiscard]] inline auto asked_of_world() {
  return launch_matcher{"was asked of the world", [](const launch_record& one) { return one.by && one.by->of_world; }};
}
/// By an actor (its id()) or a rank_lane (its client()).
[[nodiscard]] inline auto asked_by(std::uint64_t client) {
  return launch_matcher{"was asked for by client " + std::to_string(client),
                        [client](const launch_record& one) { return one.by && one.by->client == client; }};
}
/// For a plan that is being captured.
[[nodiscard]] inline auto captured() {
  return launch_matcher{"was captured for a plan", [](const launch_record& one) { return !one.by; }};
}
/// Matches a launch of that epoch.
[[nodiscard]] inline auto launched_in(epoch wanted) {
  return launch_matcher{"was launched in epoch " + to_string(wanted),
                        [wanted](const launch_record& one) { return one.epoch == wanted; }};
}
/// Matches a launch that went so.
[[nodiscard]] inline auto was(launch_fate fate) {
  return launch_matcher{"was " + std::string{to_string(fate)},
                        [fate](const launch_record& one) { return one.fate == fate; }};
}

/// Matches a rank's launches one by one, each by a matcher of its own: no more and no fewer.
template <class... Matchers>
class launches_matcher final : public Catch::Matchers::MatcherGenericBase {
public:
  /// One matcher for each launch, in order.
  explicit launches_matcher(const Matchers&... each) : each_{each...} {}

  /// For Catch2, which asks it.
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

  std::tuple<const Matchers&...> each_; ///< Catch2's own combinations refer to temporaries, too.
  mutable std::string was_;
  mutable std::optional<std::size_t> wrong_;
};

/// In that order: are_launches(is_launch("all_reduce", 64) && asked_in(line), is_launch("barrier")).
template <class... Matchers>
[[nodiscard]] auto are_launches(const Matchers&... each) {
  return launches_matcher<Matchers...>{each...};
}

} // namespace troupe::testing

// How Catch2 prints what the matchers match.
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
