import re
import shutil
import subprocess
import sys
import unittest

from fixture import TOOLS, ProjectTest, run

sys.path.insert(0, str(TOOLS))
try:
    import parts.mutants  # noqa: F401
    HAS_CLANG = True
except SystemExit:
    HAS_CLANG = False

# A library, its test program and the others that the tool links; the test program knows the options of Catch2 that are used.
PROJECT = """cmake_minimum_required(VERSION 3.20)
project(small CXX)
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
add_library(small STATIC actors/budget.cpp)
add_library(tests OBJECT tests/budget_test.cpp)
foreach(program troupe_tests troupe troupe-bench troupe-conform troupe-simulate troupe-stress)
  add_executable(${program} $<TARGET_OBJECTS:tests>)
  set_target_properties(${program} PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(${program} small)
endforeach()
"""
BUDGET = """struct budget {
  static constexpr int most = 4;
  int taken = 0;
  bool take();
  int first_over(const int* costs) const;
};
bool budget::take() {
  if (taken >= most) return false;
  ++taken;
  return true;
}
int budget::first_over(const int* costs) const {
  int at = 0;
  while (costs[at] <= most) ++at;
  switch (at) {
  case 7: return at + 1;
  default: return at;
  }
}
"""
TESTS = """#include <cstdio>
#include <cstring>
#include <initializer_list>
struct budget {
  int taken = 0;
  bool take();
  int first_over(const int* costs) const;
};
bool ends() {
  budget one;
  for (int i = 0; i < 4; ++i)
    if (!one.take()) return false;
  return !one.take() && one.taken == 4;
}
bool finds() {
  const int costs[] = {1, 2, 3, 9};
  return budget{}.first_over(costs) == 3;
}
int main(int count, char** words) {
  static char chosen[4096];
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(words[i], "--list-tests") == 0) {
      for (const char* const text : {"<a>", "<TestCase><Name>a budget ends, once</Name><SourceInfo><File>", __FILE__,
             "</File></SourceInfo></TestCase>", "<TestCase><Name>costs are found</Name><SourceInfo><File>", __FILE__,
             "</File></SourceInfo></TestCase>", "</a>"}) std::fputs(text, stdout);
      return 0;
    }
    if (std::strcmp(words[i], "--input-file") == 0) {
      std::FILE* const file = std::fopen(words[i + 1], "r");
      char* end = chosen;
      for (int one; (one = std::fgetc(file)) != EOF;)
        if (one != '\\n') *end++ = static_cast<char>(one);
      std::fclose(file);
    }
    if (std::strcmp(words[i], "--seeds") == 0) return PLANTED_SIMULATION;
  }
  bool good = true;
  if (std::strstr(chosen, "a budget ends\\\\, once") != nullptr)
    std::puts("<TestCase name=\\"a budget ends, once\\">"), good = good && ends();
  if (std::strstr(chosen, "costs are found") != nullptr) std::puts("<TestCase name=\\"costs are found\\">"), good = good && finds();
  return good ? 0 : 42;
}
"""
AREA = '[small]\nfiles = ["actors/*.cpp"]\ntests = [{tests}]\nprograms = []\n'


@unittest.skipUnless(shutil.which("cmake") and shutil.which("ninja"), "cmake and ninja are not installed")
@unittest.skipUnless(HAS_CLANG, "Python's clang module is not installed")
class Mutate(ProjectTest):
    FILES = {"CMakeLists.txt": PROJECT, "actors/budget.cpp": BUDGET,
             "tests/budget_test.cpp": TESTS.replace("PLANTED_SIMULATION", "0"),
             "tests/mutants/areas.toml": AREA.format(tests='"tests/*"')}

    def build(self):
        return run("mutate", "build", "--root", self.root, "--build", self.root / "build/edit", "--into", self.root / "out")

    def mutate(self, *arguments):
        return run("mutate", "run", "--into", self.root / "out", "--limit", 2, "--no-isolation", *arguments)

    def test_all_that_the_tests_see_is_caught_and_the_tree_is_as_before(self):
        made = self.build()
        self.assertEqual(made.returncode, 0, made.stdout)
        listed = self.mutate("--list").stdout
        self.assertIn("actors/budget.cpp:8: condition negated: taken >= most  =>  !(taken >= most)", listed)
        self.assertIn("actors/budget.cpp:9: statement dropped: ++taken;  =>  (nothing)", listed)
        self.assertIn("actors/budget.cpp:14: while to if: while (costs[at] <= most)  =>  if (costs[at] <= most)", listed)
        self.assertIn("actors/budget.cpp:13: constant + 1: 0  =>  0 + 1", listed)
        self.assertIn("early return", listed)
        self.assertNotIn(":2:", listed)  # a constant expression
        self.assertNotRegex(listed, r":16: constant . 1: 7")  # the label of a case
        result = self.mutate("--verbose")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertRegex(result.stdout, r"caught .* 9? ?.*statement dropped: \+\+taken;.*\[a budget ends, once\]")
        self.assertRegex(result.stdout, r"caught .*while to if.*\[costs are found\]")
        self.assertRegex(result.stdout, r"not reached .*:16: constant \+ 1: 1")  # no test comes to the seventh
        self.assertEqual((self.root / "actors/budget.cpp").read_text(encoding="utf-8"), BUDGET)

    def test_a_survivor_is_printed_and_fails_what_asks_for_more(self):
        self.plant("tests/mutants/areas.toml", AREA.format(tests='"tests/*", "!costs are found"'))
        self.assertEqual(self.build().returncode, 0)
        result = self.mutate("--at-least", 90)
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertRegex(result.stdout, r"not reached .*while to if")
        self.assertRegex(result.stdout, r"small: [0-9.]+ % caught, less than 90.0 %")
        self.assertEqual(self.mutate("--at-least", 10).returncode, 0)

    def test_a_draw_is_the_same_for_the_same_seed(self):
        self.assertEqual(self.build().returncode, 0)
        one, same, other = (self.mutate("--list", "--count", 5, "--seed", seed).stdout for seed in ("a", "a", "b"))
        self.assertEqual(len(one.splitlines()), 5)
        self.assertEqual(one, same)
        self.assertNotEqual(one, other)

    def test_the_simulator_is_asked_about_what_no_test_sees(self):
        self.plant("tests/budget_test.cpp", TESTS.replace("PLANTED_SIMULATION", "finds() ? 0 : 1"))
        self.plant("tests/mutants/areas.toml", AREA.format(tests='"a budget ends*"').replace(
            "[]", '["troupe-simulate --processes --seeds 1..{seeds}"]'))
        self.assertEqual(self.build().returncode, 0)
        result = self.mutate("--verbose")
        self.assertRegex(result.stdout, r"program .*while to if")

    def test_named_equivalents_are_not_run_and_must_still_be_there(self):
        self.plant("tests/mutants/equivalent.toml", '[[equivalent]]\nfile = "actors/budget.cpp"\nline = "case 7: return at + 1;"\n'
                   'kind = "constant + 1"\nbefore = "1"\nreason = "no budget is so large"\n')
        self.assertEqual(self.build().returncode, 0)
        result = self.mutate()
        self.assertNotIn(":16: constant + 1", result.stdout)
        self.assertEqual(self.mutate("--ids", re.search(r"(\d+) [^\n]*:16: constant \+ 1", self.mutate("--list").stdout)[1]).returncode, 1)
        self.plant("actors/budget.cpp", BUDGET.replace("case 7: return at + 1;", "case 8: return at + 1;"))
        result = self.build()
        self.assertEqual(result.returncode, 1)
        self.assertIn("names what is no longer there: actors/budget.cpp: case 7: return at + 1;", result.stdout)

    def test_tests_that_fail_by_themselves_stop_the_run(self):
        self.plant("actors/budget.cpp", BUDGET.replace("<= most", "< most - 1"))
        self.assertEqual(self.build().returncode, 0)
        result = self.mutate()
        self.assertEqual(result.returncode, 1)
        self.assertIn("1 tests fail without a mutant", result.stdout)
        self.assertEqual(self.mutate("--leave-out-failing").returncode, 0)

    def test_a_packed_list_runs_alone(self):
        self.assertEqual(self.build().returncode, 0)
        packed = run("mutate", "pack", self.root / "packed", "--into", self.root / "out")
        self.assertEqual(packed.returncode, 0, packed.stdout)
        shutil.rmtree(self.root / "out")
        result = self.run_program("packed/mutate", "run", "--into", self.root / "packed", "--no-isolation")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("| small |", result.stdout)


if __name__ == "__main__":
    unittest.main()
