"""The set of benches of program/report/troupe_suite.py: suite_test.py TROUPE."""

import pathlib
import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "program" / "report"))
from troupe_suite import BENCHES, arguments_of  # noqa: E402

TROUPE = sys.argv[1]


class Suite(unittest.TestCase):
    def test_every_collective_is_in_it_and_every_bench_is_described_as_in_the_help(self):
        text = subprocess.run([TROUPE, "bench", "--help"], check=True, capture_output=True, text=True).stdout
        known = dict(re.findall(r"^  (\S+) +(.*)$", text, re.MULTILINE))
        self.assertEqual({name: known.get(name) for name in BENCHES},
                         {name: bench.what for name, bench in BENCHES.items()})
        self.assertEqual(next(iter(BENCHES)), "barrier")
        self.assertEqual({name for name, what in known.items() if "request-to-reply time" in what},
                         {name for name, bench in BENCHES.items() if "request-to-reply time" in bench.what})

    def test_a_scale_is_smaller_on_the_mock(self):
        host = BENCHES["host"]
        self.assertEqual(arguments_of(host, quick=False, mock=False), ["-b", "1M", "-e", "256M"])
        self.assertEqual(arguments_of(host, quick=True, mock=False), arguments_of(host, quick=False, mock=True))
        self.assertEqual(arguments_of(host, quick=True, mock=True)[:4], ["-b", "64K", "-e", "1M"])

    def test_every_bench_takes_its_arguments_in_every_scale(self):
        for bench, name in {bench: name for name, bench in BENCHES.items()}.items():
            # Refused after the arguments were parsed and before anything is measured.
            wrong = ["--config", "/nowhere/a.json"]
            for quick, mock in ((False, False), (True, False), (True, True)):
                words = [TROUPE, "bench", name, *arguments_of(bench, quick, mock), *wrong]
                done = subprocess.run(words, check=False, capture_output=True, text=True)
                self.assertIn("/nowhere/a.json", done.stderr, words)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
