"""Runs pytest on the named files. Exits with 77, which CTest shows as skipped, if no case could run.

If only some cases were skipped, a line "skipped cases: N" reports them, which tools/summarise-tests counts.
"""
import sys

try:
    import numpy  # noqa: F401
    import pytest
except ImportError as why:
    print(f"skipped: {why}: install python3-numpy and python3-pytest")
    sys.exit(77)


class Counts:
    """Counts the cases that ran, and the reasons of those that were skipped."""

    def __init__(self):
        self.ran, self.skipped = 0, {}

    def pytest_runtest_logreport(self, report):
        if report.skipped:
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.skipped[reason] = self.skipped.get(reason, 0) + 1
        elif report.when == "call":
            self.ran += 1

    def pytest_collectreport(self, report):
        if report.skipped:  # a whole file
            self.skipped[str(report.longrepr)] = 1


counts = Counts()
status = pytest.main(["-q", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[counts])
if counts.skipped:
    print(f"skipped cases: {sum(counts.skipped.values())}")
    for why, number in counts.skipped.items():
        print(f"    {number} times: {why[:200]}")
sys.exit(77 if status in (0, 5) and counts.ran == 0 else status)
