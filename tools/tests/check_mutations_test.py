import shutil
import unittest

from fixture import ProjectTest, run

# A library and its test program as in a build of troupe; main() stands in for Catch2.
PROJECT = """cmake_minimum_required(VERSION 3.20)
project(small CXX)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include)
file(CREATE_LINK ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/include/troupe SYMBOLIC)
include_directories(${PROJECT_BINARY_DIR}/include)
add_library(small STATIC actors/budget.cpp)
add_subdirectory(tests)
"""
TESTS = "add_executable(troupe_tests budget_test.cpp)\ntarget_link_libraries(troupe_tests small)\n"
BUDGET = """#include <cstddef>
bool may_go_on(std::size_t taken, std::size_t most) {
  return taken < most;
}
"""
LIMIT = """#pragma once
#include <cstddef>
inline bool is_large(std::size_t taken) {
  return taken > 3;
}
"""
BUDGET_TEST = """#include <troupe/actors/limit.hpp>
#include <cstddef>
#include <cstring>
bool may_go_on(std::size_t taken, std::size_t most);
// TEST_CASE("a budget ends") TEST_CASE("a budget begins") TEST_CASE("four is large")
int main(int, char** words) {
  if (std::strstr(words[1], "no such test") != nullptr) return 2;
  bool good = true;
  if (std::strstr(words[1], "a budget ends") != nullptr) good = good && !may_go_on(3, 3);
  if (std::strstr(words[1], "a budget begins") != nullptr) good = good && may_go_on(0, 3);
  if (std::strstr(words[1], "four is large") != nullptr) good = good && is_large(4) && !is_large(3);
  while (may_go_on(99, 3)) {}
  return good ? 0 : 42;
}
"""


def entry(name, before, after, caught_by="a budget ends", more=""):
    return (f'[[mutation]]\nname = "{name}"\nfile = "actors/budget.cpp"\nbefore = "{before}"\nafter = "{after}"\n'
            f'caught_by = "{caught_by}"\nwhy = "a world never gives up"\n{more}\n')


@unittest.skipUnless(shutil.which("cmake") and shutil.which("ninja"), "cmake and ninja are not installed")
class CheckMutations(ProjectTest):
    FILES = {"CMakeLists.txt": PROJECT, "tests/CMakeLists.txt": TESTS, "actors/budget.cpp": BUDGET,
             "actors/limit.hpp": LIMIT, "tests/budget_test.cpp": BUDGET_TEST}

    def check(self, mutations, *arguments):
        self.plant("tests/mutations/control.toml", mutations)
        result = run("check-mutations", "--root", self.root, "--limit", 5, *arguments)
        self.assertEqual((self.root / "actors/budget.cpp").read_text(encoding="utf-8"), BUDGET)
        return result

    def test_a_mutation_that_a_test_sees_passes(self):
        result = self.check(entry("one-too-many", "taken < most", "taken <= most"))
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertRegex(result.stdout, r"caught +[0-9.]+ s  one-too-many")
        self.assertTrue(result.stdout.endswith("1 passed, 0 failed, 0 skipped\n"), result.stdout)
        self.assertFalse((self.root / "build/edit/mutations").exists())

    def test_a_header_is_changed_in_the_sources_of_the_named_tests(self):
        large = entry("three-is-large", "taken > 3", "taken > 2", caught_by="four is large")
        result = self.check(large.replace("budget.cpp", "limit.hpp"))
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertRegex(result.stdout, r"caught +[0-9.]+ s  three-is-large")
        survivor = entry("three-is-large", "taken > 3", "taken > 2")
        result = self.check(survivor.replace("budget.cpp", "limit.hpp"))
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("survived", result.stdout)
        tagged = entry("three-is-large", "taken > 3", "taken > 2", caught_by="[budget]")
        result = self.check(tagged.replace("budget.cpp", "limit.hpp"), "--no-build")
        self.assertIn("names its tests, not tags", result.stdout)

    def test_a_survivor_fails_and_its_tests_are_named(self):
        result = self.check(entry("one-too-many", "taken < most", "taken <= most", caught_by="a budget begins"))
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("survived", result.stdout)
        self.assertIn("none of these tests failed: a budget begins", result.stdout)

    def test_a_survivor_that_is_named_with_its_reason_passes_but_not_one_that_is_caught(self):
        named = 'survives = "nobody asks"'
        same = entry("as-before", "taken < most", "most > taken", more=named)
        self.assertEqual(self.check(same).returncode, 0)
        result = self.check(entry("one-too-many", "taken < most", "taken <= most", more=named))
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("a test detects it: remove its `survives`", result.stdout)

    def test_a_test_that_hangs_has_caught_it(self):
        result = self.check(entry("endless", "taken < most", "taken != most + 1"))
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("caught (timeout)", result.stdout)

    def test_a_mutation_that_does_not_apply_or_compile_fails(self):
        for text, after, said in (("taken > most", "true", "does not apply"), ("t", "x", "does not apply"),
                                  ("taken < most", "taken <", "does not compile")):
            with self.subTest(text):
                result = self.check(entry("broken", text, after))
                self.assertEqual(result.returncode, 1, result.stdout)
                self.assertIn(said, result.stdout)
        self.assertEqual(self.check(entry("broken", "taken > most", "true"), "--applies").returncode, 1)

    def test_a_mutation_whose_test_has_another_name_does_not_apply(self):
        renamed = self.check(entry("one-too-many", "taken < most", "taken <= most", caught_by="a budget is"), "--applies")
        self.assertEqual(renamed.returncode, 1, renamed.stdout)
        self.assertIn("there is no test of the name 'a budget is'", renamed.stdout)
        self.assertEqual(self.check(entry("one-too-many", "taken < most", "taken <= most"), "--applies").returncode, 0)

    def test_tests_that_fail_without_a_mutation_catch_nothing(self):
        result = self.check(entry("one-too-many", "taken < most", "taken <= most", caught_by="no such test"))
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertIn("the tests fail without any mutation", result.stdout)

    def test_entries_that_miss_something_are_refused(self):
        result = self.check(entry("one", "taken < most", "true").replace('why = "a world never gives up"\n', ""))
        self.assertEqual(result.returncode, 2, result.stdout)
        self.assertIn("'why' is missing", result.stdout)
        twice = entry("one", "taken < most", "true") * 2
        self.assertIn("two mutations have this name", self.check(twice).stdout)

    def test_names_choose_and_a_list_says_what_there_is(self):
        two = entry("one", "taken < most", "taken <= most") + entry("two", "taken < most", "true")
        self.assertIn("1 passed", self.check(two, "two").stdout)
        self.assertIn("unknown mutation three", self.check(two, "three").stdout)
        listed = self.check(two, "--list").stdout
        self.assertIn("two: actors/budget.cpp: a world never gives up", listed)
        self.assertIn("caught by: a budget ends", listed)
