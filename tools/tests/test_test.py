import re
import subprocess
import unittest

from fixture import TOOLS

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
