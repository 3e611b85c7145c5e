/// Defines matchers for outcomes and for launches, and describes what they have seen. Catch2 and GoogleTest both accept
/// them; this header needs neither. Include catch2.hpp or gtest.hpp, which also print troupe's values.
#pragma once

#include <troupe/completion/reply/outcome.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/testing/fault_script.hpp>
#include <troupe/testing/virtual_world.hpp>

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <future>
#include <optional>
#include <ostream>
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
/// Waits for a future and copies the outcome. Returns nothing if there is none within longest_wait, or if the future
/// has no state.
[[nodiscard]] inline std::optional<outcome> seen_in(const std::shared_future<completion>& reply) {
  if (!reply.valid() || reply.wait_for(longest_wait) != std::future_status::ready) return std::nullopt;
  try {
    return reply.get();
  } catch (const exception& failure) {
    return failure.why();
  }
}
/// Does the same and takes the outcome out of the future: it has no state afterwards.
[[nodiscard]] inline std::optional<outcome> seen_in(std::future<completion>& reply) {
  if (!reply.valid() || reply.wait_for(longest_wait) != std::future_status::ready) return std::nullopt;
  return seen_in(reply.share());
}

/// Describes why seen_in() returned nothing, and what the test must do.
[[nodiscard]] inline std::string describe_unseen(const virtual_reply&) {
  return "it has not been answered: let virtual time pass first, by the reply's get() or wait_for(), or the world's "
         "advance() or run_until()";
}
template <class Reply>
[[nodiscard]] std::string describe_unseen(const Reply& reply) {
  if constexpr (requires { reply.valid(); })
    if (!reply.valid())
      return "its outcome has been taken: share() the future if it is matched more than once, or by several matchers";
  return "it has not been answered in " + std::to_string(longest_wait.count()) + " s";
}

/// Returns the launch.
[[nodiscard]] inline std::optional<launch_record> seen_in(const launch_record& one) {
  return one;
}

/// Returns "succeeded", or the error.
[[nodiscard]] inline std::string describe(const outcome& result) {
  const error* const failure = failure_of(result);
  return failure == nullptr ? "succeeded" : to_string(*failure);
}
/// Returns "a completion".
[[nodiscard]] inline std::string describe(const completion&) {
  return "a completion";
}
/// Returns whether the reply has been answered, and the outcome.
[[nodiscard]] inline std::string describe(const virtual_reply& reply) {
  return "a reply in virtual time, " +
         (reply.is_ready() ? "answered: " + describe(reply.result()) : std::string{"not answered"});
}
/// Returns whether the future has a state. Does not wait.
[[nodiscard]] inline std::string describe(const std::future<completion>& reply) {
  return reply.valid() ? "a reply" : "a reply whose outcome has been taken";
}
[[nodiscard]] inline std::string describe(const std::shared_future<completion>& reply) {
  return reply.valid() ? "a reply" : "a reply whose outcome has been taken";
}
/// Returns the size of \p memory and where it is: "64 bytes of device 1". Its values are printed by values_of().
[[nodiscard]] inline std::string describe(const buffer& memory) {
  if (!memory) return "an empty buffer";
  std::string text = std::to_string(memory.size_bytes()) + " bytes of ";
  if (memory.on_host()) return text + "host memory";
  return text + (memory.where() == nullptr ? "another process" : "device " + to_string(memory.where()->id()));
}

/// Returns "lane " and the name.
[[nodiscard]] inline std::string describe(lane line) {
  return "lane " + line.name();
}

/// Returns "it succeeded" or "it was: " and the error, for messages that state what a matcher has seen.
[[nodiscard]] inline std::string describe_seen(const outcome& seen) {
  return failure_of(seen) == nullptr ? "it succeeded" : "it was: " + describe(seen);
}
/// Returns "it was: " and the launch.
[[nodiscard]] inline std::string describe_seen(const launch_record& seen) {
  return "it was: " + describe(seen);
}

/// Matches values in which a \p Subject is seen, with a predicate on it: an outcome in an outcome, a virtual reply or a
/// future, a launch_record in itself. A std::future has no state afterwards; a std::shared_future keeps it. GoogleTest
/// passes constant values, so there a std::future must be shared. Matchers of one subject combine by &&, || and !.
template <class Subject, class Question>
class matcher {
public:
  /// \p wanted completes "it …" in messages.
  matcher(std::string wanted, Question holds) : wanted_{std::move(wanted)}, holds_{std::move(holds)} {}

  /// Called by Catch2.
  template <class Value>
  [[nodiscard]] bool match(Value&& value) const {
    const std::optional<Subject> seen = seen_in(value);
    was_ = seen ? describe_seen(*seen) : describe_unseen(value);
    return seen && holds_(*seen);
  }
  /// Called by Catch2. Returns what was wanted, and what was seen last.
  [[nodiscard]] std::string toString() const { return was_.empty() ? wanted_ : wanted_ + " (" + was_ + ')'; }

  using is_gtest_matcher = void;
  /// Called by GoogleTest.
  template <class Value>
  bool MatchAndExplain(const Value& value, std::ostream* told) const { // NOLINT(modernize-use-nodiscard)
    static_assert(!std::same_as<Value, std::future<completion>>, "GoogleTest passes constants: share() the future");
    const bool is_match = match(value);
    if (told != nullptr) *told << was_;
    return is_match;
  }
  /// Called by GoogleTest.
  void DescribeTo(std::ostream* out) const { *out << wanted_; }
  /// Called by GoogleTest.
  void DescribeNegationTo(std::ostream* out) const { *out << (!*this).wanted_; }

  /// Matches what both match.
  template <class Other>
  [[nodiscard]] auto operator&&(const matcher<Subject, Other>& other) const {
    return combined(wanted_ + " and " + other.wanted_,
                    [one = holds_, two = other.holds_](const Subject& seen) { return one(seen) && two(seen); });
  }
  /// Matches what one of both matches.
  template <class Other>
  [[nodiscard]] auto operator||(const matcher<Subject, Other>& other) const {
    return combined(wanted_ + " or " + other.wanted_,
                    [one = holds_, two = other.holds_](const Subject& seen) { return one(seen) || two(seen); });
  }
  /// Matches what this does not match. A reply that has not been answered matches neither.
  [[nodiscard]] auto operator!() const {
    return combined("is not one that " + wanted_, [one = holds_](const Subject& seen) { return !one(seen); });
  }

private:
  template <class, class>
  friend class matcher;
  template <class Both>
  [[nodiscard]] static matcher<Subject, Both> combined(std::string wanted, Both holds) {
    return {std::move(wanted), std::move(holds)};
  }

  std::string wanted_;
  Question holds_;
  mutable std::string was_; ///< What was seen last.
};

/// Returns a matcher whose predicate is about the error of an outcome, null for a completion.
template <class Question>
[[nodiscard]] auto make_outcome_matcher(std::string wanted, Question question) {
  const auto holds = [question = std::move(question)](const outcome& seen) { return question(failure_of(seen)); };
  return matcher<outcome, decltype(holds)>{std::move(wanted), holds};
}

/// Matches a completion.
[[nodiscard]] inline auto succeeds() {
  return make_outcome_matcher("succeeds", [](const error* failure) { return failure == nullptr; });
}
/// Matches an error with \p code.
[[nodiscard]] inline auto fails_with(errc code) {
  return make_outcome_matcher("fails with " + std::string{to_string(code)},
                              [code](const error* failure) { return failure != nullptr && failure->code == code; });
}
/// Matches an error whose request certainly did not run (ONE-2).
[[nodiscard]] inline auto was_rejected() {
  return make_outcome_matcher(
      "was rejected", [](const error* failure) { return failure != nullptr && failure->effect == effect::rejected; });
}
/// Matches an error whose request may have run; its results are undefined (ONE-2).
[[nodiscard]] inline auto has_unknown_outcome() {
  return make_outcome_matcher("has an unknown outcome", [](const error* failure) {
    return failure != nullptr && failure->effect == effect::unknown_outcome;
  });
}

/// Returns a matcher for one launch.
template <class Question>
[[nodiscard]] matcher<launch_record, Question> make_launch_matcher(std::string wanted, Question holds) {
  return {std::move(wanted), std::move(holds)};
}

/// Matches a launch of \p operation ("all_reduce"), and, if \p count is given, of that number of elements.
[[nodiscard]] inline auto is_launch(std::string_view operation, std::optional<std::size_t> count = {}) {
  return make_launch_matcher("is a launch of " + std::string{operation} +
                                 (count ? " of " + std::to_string(*count) : ""),
                             [operation = std::string{operation}, count](const launch_record& one) {
                               return one.operation == operation && (!count || one.count == *count);
                             });
}
/// Matches a launch for a request to the rank in \p line.
[[nodiscard]] inline auto asked_in(lane line) {
  return make_launch_matcher("was requested in lane " + line.name(), [line](const launch_record& one) {
    return one.by && !one.by->of_world && one.by->in == line;
  });
}
/// Matches a launch for a request to the world.
[[nodiscard]] inline auto asked_of_world() {
  return make_launch_matcher("was requested from the world",
                             [](const launch_record& one) { return one.by && one.by->of_world; });
}
/// Matches a launch for a request of an actor (its id()) or a rank_lane (its client()).
[[nodiscard]] inline auto asked_by(std::uint64_t client) {
  return make_launch_matcher("was requested by client " + std::to_string(client),
                             [client](const launch_record& one) { return one.by && one.by->client == client; });
}
/// Matches a launch for a plan that is being captured.
[[nodiscard]] inline auto captured() {
  return make_launch_matcher("was captured for a plan", [](const launch_record& one) { return !one.by; });
}
/// Matches a launch in epoch \p wanted.
[[nodiscard]] inline auto launched_in(epoch wanted) {
  return make_launch_matcher("was launched in epoch " + to_string(wanted),
                             [wanted](const launch_record& one) { return one.epoch == wanted; });
}
/// Matches a launch with \p fate.
[[nodiscard]] inline auto was(launch_fate fate) {
  return make_launch_matcher("was " + std::string{to_string(fate)},
                             [fate](const launch_record& one) { return one.fate == fate; });
}

/// Matches a rank's launches one by one, each with a matcher of its own. Their number must be equal.
template <class... Questions>
class launches_matcher {
public:
  /// One matcher for each launch, in order.
  explicit launches_matcher(const matcher<launch_record, Questions>&... each) : each_{each...} {}

  /// Called by Catch2.
  [[nodiscard]] bool match(const std::vector<launch_record>& all) const {
    were_ = all;
    wrong_.reset();
    if (all.size() != sizeof...(Questions)) return !is_wanted_;
    [[maybe_unused]] std::size_t place = 0;
    [[maybe_unused]] const auto fits = [&](const auto& one) {
      if (!one.match(all[place])) wrong_ = place;
      ++place;
      return !wrong_;
    };
    return std::apply([&](const auto&... each) { return (fits(each) && ...); }, each_) == is_wanted_;
  }
  /// Called by Catch2. Returns what was wanted, and what was seen last.
  [[nodiscard]] std::string toString() const {
    std::string text = (is_wanted_ ? "are " : "are not these ") + std::to_string(sizeof...(Questions)) + " launches";
    if (is_wanted_ && wrong_) text += ", " + describe_wrong();
    text += ". They are:";
    for (const launch_record& one : were_) text += "\n  " + describe(one);
    return were_.empty() ? text + " none" : text;
  }

  using is_gtest_matcher = void;
  /// Called by GoogleTest, which prints the launches.
  bool MatchAndExplain(const std::vector<launch_record>& all,
                       std::ostream* told) const { // NOLINT(modernize-use-nodiscard)
    const bool is_match = match(all);
    if (told != nullptr && is_wanted_ && wrong_) *told << describe_wrong();
    return is_match;
  }
  /// Called by GoogleTest.
  void DescribeTo(std::ostream* out) const {
    *out << (is_wanted_ ? "are " : "are not these ") << sizeof...(Questions) << " launches";
    std::size_t place = 0;
    const auto add = [&](const auto& one) {
      *out << (place == 0 ? ": number " : "; number ") << place << ' ';
      one.DescribeTo(out);
      ++place;
    };
    std::apply([&](const auto&... each) { (add(each), ...); }, each_);
  }
  /// Called by GoogleTest.
  void DescribeNegationTo(std::ostream* out) const { (!*this).DescribeTo(out); }

  /// Matches what this does not match.
  [[nodiscard]] launches_matcher operator!() const {
    launches_matcher other = *this;
    other.is_wanted_ = !is_wanted_;
    return other;
  }

private:
  [[nodiscard]] std::string describe_wrong() const {
    return "of which number " + std::to_string(*wrong_) + " is another";
  }

  std::tuple<matcher<launch_record, Questions>...> each_;
  bool is_wanted_ = true;
  mutable std::vector<launch_record> were_; ///< Those that were seen last, and the first that did not match.
  mutable std::optional<std::size_t> wrong_;
};

/// Matches a rank's launches in order: are_launches(is_launch("all_reduce", 64) && asked_in(line),
/// is_launch("barrier")).
template <class... Questions>
[[nodiscard]] auto are_launches(const matcher<launch_record, Questions>&... each) {
  return launches_matcher<Questions...>{each...};
}

} // namespace troupe::testing
