"""Tests tests/package/newcomer.py with documents that have planted faults, and with a shell script in place of troupe."""
import subprocess
import sys
import unittest

from fixture import TOOLS, FolderTest

SCRIPT = TOOLS.parent / "tests/package/newcomer.py"
PROGRAM = '```cpp\nint main() {}\n```\n'
README = f"# troupe\n{PROGRAM}\n    $ build/all_reduce\n    4 ranks: right (3 us)\n\n    troupe demo [--ranks N]\n\nSee tools/demo.\n"
MAKES_A_PROGRAM = """
<!-- newcomer: run -->
```sh
mkdir build && echo 'int main() {}' >all_reduce.cpp
printf '#!/bin/sh\\necho "4 ranks: right (7 us)"\\n' >build/all_reduce && chmod +x build/all_reduce
echo answered 20/20, wrong 0
```

```text
answered 7/7, wrong 0
```
"""


class NewcomerTest(FolderTest):
    def setUp(self):
        super().setUp()
        self.plant_program("bin/troupe", '#!/bin/sh\n[ "$1" = demo ] || { echo "no command $1"; exit 2; }\n')

    def follow(self, quick_start=MAKES_A_PROGRAM, readme=README):
        self.plant("quick.md", quick_start)
        self.plant("readme.md", readme)
        return subprocess.run([sys.executable, "-B", SCRIPT, "--prefix", self.root, "--quick-start", self.root / "quick.md",
                               "--readme", self.root / "readme.md"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False)

    def assert_catches(self, words, **documents):
        done = self.follow(**documents)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(words, done.stdout)

    def test_output_as_documented_passes(self):
        done = self.follow()
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("1 steps of a newcomer", done.stdout)

    def test_a_command_that_fails_is_caught(self):
        self.assert_catches("end with status 3", quick_start=MAKES_A_PROGRAM + "<!-- newcomer: run -->\n```sh\nexit 3\n```\n")

    def test_a_command_that_fails_in_the_middle_is_caught(self):
        self.assert_catches("end with status 1",
                            quick_start=MAKES_A_PROGRAM + "<!-- newcomer: run -->\n```sh\nfalse\ntrue\n```\n")

    def test_other_output_than_promised_is_caught(self):
        self.assert_catches("quick.md:2 promises", quick_start=MAKES_A_PROGRAM.replace("20/20, wrong 0", "20/20, wrong 1"))
        self.assert_catches("promises", quick_start=MAKES_A_PROGRAM.replace("20/20", "19/20"))

    def test_lines_in_another_order_are_caught(self):
        swapped = MAKES_A_PROGRAM.replace("echo answered", "echo second && echo answered")
        self.assert_catches("promises", quick_start=swapped.replace("answered 7/7, wrong 0", "answered 7/7, wrong 0\nsecond"))

    def test_documents_without_anything_to_run_or_to_promise_are_caught(self):
        self.assert_catches("no block that a newcomer runs", quick_start="# Quick start\n")
        self.assert_catches("promises nothing", quick_start=MAKES_A_PROGRAM.replace("```text", "```"))
        self.assert_catches("has no block", quick_start="<!-- newcomer: run -->\nnothing\n" + MAKES_A_PROGRAM)
        self.assert_catches("none of run", quick_start=MAKES_A_PROGRAM.replace("newcomer: run", "newcomer: ran"))

    def test_a_readme_that_tells_what_is_not_so_is_caught(self):
        self.assert_catches("README.md promises", readme=README.replace("4 ranks", "5 ranks"))
        self.assert_catches("no command play", readme=README.replace("troupe demo", "troupe play"))
        self.assert_catches("tools/dance", readme=README.replace("tools/demo", "tools/dance"))
        self.assert_catches("has no C++ program", readme=README.replace("```cpp", "```"))


if __name__ == "__main__":
    unittest.main()
