import os
import pathlib
import re
import shutil
import subprocess
import unittest

from fixture import TOOLS, FolderTest

ROOT = TOOLS.parent


class Programs(unittest.TestCase):
    def test_the_programs_of_unit_tests_are_those_of_the_build(self):
        built = re.search(r"set\(unit_tests ([^)]*)\)", (ROOT / "tests/CMakeLists.txt").read_text(encoding="utf-8"))[1]
        script = (TOOLS / "test").read_text(encoding="utf-8")
        core = re.search(r"^core=\((.*)\)$", script, re.MULTILINE)[1]
        run = re.search(r"^units=\((.*)\)$", script, re.MULTILINE)[1].replace('"${core[@]}"', core)
        self.assertEqual(sorted(built.split()), sorted(run.split()))

    def test_a_name_that_is_no_program_and_no_file_is_refused_with_the_programs(self):
        for what in ("collective", "docs/testing.md"):
            told = subprocess.run([TOOLS / "test", "--only", what], capture_output=True, text=True, check=False)
            self.assertEqual(told.returncode, 2, told.stdout)
            self.assertIn("collectives", told.stderr)


# Each test program and ctest pass one test, and leave a file of their name. What is built last waits for those in WAITS.
BUILD = """#!/bin/sh
shift 2
mkdir -p build/dev/bin ran
for part in "$@"; do
  [ "$part" != "$BROKEN" ] || exit 1
  for name in $WAITS; do
    tried=0
    until [ "$part" != troupe_device_tests ] || [ -e ran/$name ]; do
      tried=$((tried + 1)); [ $tried -lt 600 ] || { echo "$name did not run before $part was built"; exit 1; }
      sleep 0.05
    done
  done
  cp program build/dev/bin/$part
done
"""
PROGRAM = """#!/bin/sh
for word in "$@"; do
  case "$word" in xml::out=*) out=${word#xml::out=} ;; esac
done
touch ran/$(basename "$0")
echo '<Catch2TestRun><TestCase name="one"><OverallResult success="true"/></TestCase></Catch2TestRun>' >"$out"
"""
CTEST = """#!/bin/sh
case "$*" in *" -N "*) echo "Test #1: one"; exit ;; esac
echo "    Start 1: one"
touch ran/ctest
while [ "$1" != --output-junit ]; do shift; done
echo '<testsuite><testcase name="one" status="run"/></testsuite>' >"$2"
"""


class Order(FolderTest):
    def setUp(self):
        super().setUp()
        for name in ("test", "summarise-tests", "parts/command.py"):
            (self.root / "tools" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(TOOLS / name, self.root / "tools" / name)
        self.plant_program("tools/install-dependencies", "#!/bin/sh\n")
        self.plant_program("tools/build", BUILD)
        self.plant_program("program", PROGRAM)
        self.plant_program("bin/ctest", CTEST)
        self.plant_program("bin/nproc", "#!/bin/sh\necho 1\n")

    def run_script(self, **variables):
        return self.run_program("tools/test", "--no-scripts", PATH=f"{self.root}/bin:{os.environ['PATH']}", **variables)

    @unittest.skipIf(pathlib.Path("/dev/nvidiactl").exists(), "on a GPU one group of tests runs after the other")
    def test_tests_run_while_the_next_ones_are_built(self):
        done = self.run_script(WAITS="ctest troupe_membership_tests troupe_actors_tests")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertRegex(done.stdout.splitlines()[-1], "^[1-9][0-9]* passed, 0 failed, 0 skipped$")

    def test_a_part_that_cannot_be_built_counts_as_a_failure_beside_the_tests_that_ran(self):
        for part in ("troupe_programs", "troupe_membership_tests"):
            done = self.run_script(BROKEN=part)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertRegex(done.stdout.splitlines()[-1], "^[0-9]+ passed, 1 failed, 0 skipped$", part)
