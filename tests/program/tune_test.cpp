#include "support/outcomes.hpp"

#include <troupe/program/tune/tune_trials.hpp>

#include <troupe/runtime/configuration/gathered_settings.hpp>
#include <troupe/runtime/configuration/settings.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <algorithm>

using namespace troupe;
using namespace troupe::program;
using Catch::Matchers::WithinAbs;
using tests::error_of;

TEST_CASE("a candidate is better only by more than the default differs from itself", "[tune]") {
  const tune_samples quiet{{100, 100, 100}, {101, 100, 99}, {90, 91, 89}};
  const tune_verdict verdict = judge(quiet);
  CHECK_THAT(verdict.ratio, WithinAbs(0.9, 1e-9));
  CHECK_THAT(verdict.noise, WithinAbs(0.02, 1e-9)); // never less
  CHECK(verdict.is_better);
  CHECK_FALSE(verdict.is_worse);
  const tune_samples loud{{100, 100, 100}, {101, 120, 99}, {90, 91, 89}};
  CHECK_THAT(judge(loud).noise, WithinAbs(0.2, 1e-9));
  CHECK_FALSE(judge(loud).is_better);
  CHECK(judge({{100, 100, 100}, {100, 100, 100}, {110, 111, 109}}).is_worse);
}

TEST_CASE("a candidate that loses a round is not better", "[tune]") {
  CHECK_FALSE(judge({{100, 100, 100}, {100, 100, 100}, {80, 101, 80}}).is_better);
}

TEST_CASE("a drift that the default shares is nobody's gain", "[tune]") {
  const tune_verdict verdict = judge({{100, 200, 300}, {100, 200, 300}, {100, 200, 300}});
  CHECK_THAT(verdict.ratio, WithinAbs(1, 1e-9));
  CHECK_FALSE(verdict.is_better);
}

TEST_CASE("a candidate is taken where it is better somewhere and worse nowhere", "[tune]") {
  const tune_verdict better{.ratio = 0.8, .noise = 0.02, .is_better = true};
  const tune_verdict same{.ratio = 1.0, .noise = 0.02};
  const tune_verdict worse{.ratio = 1.3, .noise = 0.02, .is_worse = true};
  CHECK(is_taken({better, same}));
  CHECK_FALSE(is_taken({same, same}));
  CHECK_FALSE(is_taken({better, worse}));
  CHECK_THAT(gain_of({better, same}), WithinAbs(0.8, 1e-9));
}

TEST_CASE("rounds without figures are not judged", "[tune]") {
  CHECK(error_of([] { static_cast<void>(judge({})); }).code == errc::internal);
}

TEST_CASE("what is tried are settings and values that there are, other than the defaults", "[tune]") {
  for (const bool mock : {false, true})
    for (const bool quick : {false, true})
      for (const tune_trial& one : tune_trials({.is_quick = quick, .is_mock = mock})) {
        CAPTURE(one.name(), mock, quick);
        CHECK_FALSE(one.figures.empty());
        CHECK_FALSE(one.values.empty());
        if (one.setting.empty()) continue;
        const setting& which = find_setting(one.setting);
        CHECK(one.option == which.option);
        CHECK_FALSE((mock && one.setting.starts_with("nccl.")));
        for (const std::string& value : one.values) {
          configuration settings;
          which.set(settings, value);
          CHECK_NOTHROW(check(settings));
          CHECK(which.text(settings) != which.text(configuration{}));
        }
      }
}

TEST_CASE("a tuned file is a settings file, whatever its comments say", "[tune]") {
  const std::string text =
      tuned_file({"of this machine", "two\nlines */ \"}"},
                 {{"fusion_max_operations", "128", {"10 us, was 12 us"}}, {"profile", "latency", {}}});
  const auto entries = parse_settings_file("tuned.json", text);
  REQUIRE(entries.size() == 2);
  CHECK(entries[0].name == "fusion_max_operations");
  CHECK(entries[0].value == "128");
  CHECK(entries[1].value == "latency");
  CHECK(text.find("\"fusion_max_operations\": 128,") != std::string::npos); // numbers are bare
  CHECK(text.find("// 10 us, was 12 us") != std::string::npos);
  CHECK(parse_settings_file("tuned.json", tuned_file({"nothing"}, {})).empty());
  CHECK(error_of([] {
          static_cast<void>(tuned_file({}, {{"profil", "latency", {}}}));
        }).code == errc::invalid_argument);
}
