import subprocess
import unittest

from fixture import TOOLS

STEPS = '''set -euo pipefail
. tools/parts/steps.bash
steps_choose "$TIERS" $NAMES
$BEFORE
step quick good echo fine
step quick tests echo "3 passed, 0 failed, 1 skipped"
step ci bad false
step ci worse bash -c 'echo "5 passed, 2 failed, 0 skipped"; exit 1'
step ci worst bash -c 'echo "5 passed, 0 failed, 0 skipped"; exit 1'
step_skipped all absent "no tool"
step all last echo the end
steps_end
'''


class Steps(unittest.TestCase):
    def run_steps(self, tiers, *names, before=""):
        told = subprocess.run(["bash", "-c", STEPS], cwd=TOOLS.parent, capture_output=True, text=True, check=False,
                              env={"PATH": "/usr/local/bin:/usr/bin:/bin", "TIERS": tiers, "NAMES": " ".join(names),
                                   "BEFORE": before})
        self.said = told.stdout + told.stderr
        return told.stdout.splitlines()[-1], told.returncode

    def test_steps_count_their_tests_or_themselves(self):
        self.assertEqual(self.run_steps("quick"), ("4 passed, 0 failed, 1 skipped", 0))

    def test_a_failed_step_fails_the_whole_and_does_not_keep_later_ones_from_running(self):
        self.assertEqual(self.run_steps("quick ci all"), ("10 passed, 4 failed, 2 skipped", 1))
        self.assertIn("the end", self.said)
        for line in (" FAILED   bad", " FAILED   worse", " FAILED   worst", " ok       last", " skipped  absent: no tool"):
            self.assertIn(line, self.said)

    def test_a_named_step_runs_alone_whatever_its_tier(self):
        self.assertEqual(self.run_steps("quick", "last"), ("1 passed, 0 failed, 0 skipped", 0))

    def test_a_failure_after_passed_tests_counts(self):
        self.assertEqual(self.run_steps("quick", "worst"), ("0 passed, 1 failed, 0 skipped", 1))

    def test_a_name_that_no_step_has_fails(self):
        self.assertEqual(self.run_steps("quick", "good", "bogus"), ("1 passed, 1 failed, 0 skipped", 1))
        self.assertIn("unknown step 'bogus'", self.said)

    def test_listing_runs_nothing(self):
        self.assertEqual(self.run_steps("quick", before="steps_list"), ("quick  tests", 0))
        self.assertNotIn("fine", self.said)
