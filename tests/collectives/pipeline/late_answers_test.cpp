// Answers that wait for the lease: each is given once, in order, whether or not the communicator fails meanwhile.
#include <troupe/collectives/pipeline/late_answers.hpp>

#include <catch2/catch_test_macros.hpp>

#include <string>
#include <utility>
#include <vector>

namespace troupe::tests::late_answers_test {

namespace {

struct answers_scene {
  void add(const std::string& name) {
    all.add([this, name](const error& why) {
      given.emplace_back(name, why.code);
      were_all_given.push_back(all.all_given());
    });
  }

  late_answers all;
  std::vector<std::pair<std::string, errc>> given;
  std::vector<bool> were_all_given; ///< While each was given.
};

using outcomes = std::vector<std::pair<std::string, errc>>;

} // namespace

TEST_CASE("late answers are given one by one in their order, and no later answer overtakes the last one",
          "[collectives][lease]") {
  answers_scene one;
  CHECK(one.all.all_given());
  one.add("first");
  one.add("second");
  CHECK_FALSE(one.all.all_given());
  one.all.give_next();
  CHECK(one.given == outcomes{{"first", errc::none}});
  one.all.give_next();
  CHECK(one.given == outcomes{{"first", errc::none}, {"second", errc::none}});
  CHECK(one.were_all_given == std::vector<bool>{false, false});
  CHECK(one.all.all_given());
}

TEST_CASE("late answers that a failure has given are not given again", "[collectives][lease][ONE-1]") {
  answers_scene one;
  one.add("first");
  one.add("second");
  one.all.fail({.code = errc::communicator_failed});
  CHECK(one.given == outcomes{{"first", errc::communicator_failed}, {"second", errc::communicator_failed}});
  CHECK(one.all.all_given());
  one.all.give_next();
  one.all.fail({.code = errc::stopping});
  CHECK(one.given.size() == 2);
}

} // namespace troupe::tests::late_answers_test
