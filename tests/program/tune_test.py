"""The trials, the verdicts and the file of program/report/troupe_tune.py: tune_test.py TROUPE."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "program" / "report"))
from troupe_tool import Problem, Settings  # noqa: E402
from troupe_tune import Chosen, Figure, Verdict, gain_of, is_taken, judge, trials_of, tuned_file  # noqa: E402

TROUPE = sys.argv[1]


def config(*options):
    """Returns the settings in effect; None if they are refused."""
    done = subprocess.run([TROUPE, "config", "--json", *options], check=False, capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


class Verdicts(unittest.TestCase):
    def test_a_candidate_is_better_only_by_more_than_the_default_differs_from_itself(self):
        verdict = judge([100, 100, 100], [101, 100, 99], [90, 91, 89])
        self.assertAlmostEqual(verdict.ratio, 0.9)
        self.assertAlmostEqual(verdict.noise, 0.02)  # never less
        self.assertTrue(verdict.is_better)
        self.assertFalse(verdict.is_worse)
        loud = judge([100, 100, 100], [101, 120, 99], [90, 91, 89])
        self.assertAlmostEqual(loud.noise, 0.2)
        self.assertFalse(loud.is_better)
        self.assertTrue(judge([100, 100, 100], [100, 100, 100], [110, 111, 109]).is_worse)

    def test_a_candidate_that_loses_a_round_is_not_better(self):
        self.assertFalse(judge([100, 100, 100], [100, 100, 100], [80, 101, 80]).is_better)

    def test_a_drift_that_the_default_shares_is_nobodys_gain(self):
        verdict = judge([100, 200, 300], [100, 200, 300], [100, 200, 300])
        self.assertAlmostEqual(verdict.ratio, 1)
        self.assertFalse(verdict.is_better)

    def test_a_candidate_is_taken_where_it_is_better_somewhere_and_worse_nowhere(self):
        better, same, worse = Verdict(ratio=0.8, is_better=True), Verdict(), Verdict(ratio=1.3, is_worse=True)
        self.assertTrue(is_taken([better, same]))
        self.assertFalse(is_taken([same, same]))
        self.assertFalse(is_taken([better, worse]))
        self.assertAlmostEqual(gain_of([better, same]), 0.8)

    def test_rounds_without_figures_are_not_judged(self):
        for costs in (([], [], []), ([1], [], [1]), ([1], [1], [1, 2])):
            with self.assertRaises(ValueError):
                judge(*costs)

    def test_a_figure_is_a_cost_and_one_that_is_missing_or_0_is_refused(self):
        report = {"rows": [{"rate": 4, "time": 8, "none": 0}]}
        self.assertEqual(Figure("", "rows/0/rate", True).cost(report), 0.25)
        self.assertEqual(Figure("", "rows/0/time").cost(report), 8)
        for path in ("rows/0/none", "rows/0/other", "rows/1/time", "rows/time", "rows"):
            with self.assertRaisesRegex(Problem, "no figure for 'its name'"):
                Figure("its name", path).cost(report)


class Trials(unittest.TestCase):
    def test_only_existing_settings_and_values_other_than_the_defaults_are_tried(self):
        defaults, tried = config(), {}
        for mock in (False, True):
            for quick in (False, True):
                for one in trials_of(quick, mock):
                    self.assertTrue(one.figures and one.values, one)
                    self.assertFalse(mock and one.name.startswith("nccl."), one)
                    if one.is_setting:
                        tried.update({(one.name, one.option, value): None for value in one.values})
        self.assertGreater(len(tried), 20)
        for name, option, value in tried:
            settings = config(f"{option}={value}")
            self.assertIsNotNone(settings, (option, value))
            self.assertEqual({other for other in settings if settings[other] != defaults[other]}, {name})
            self.assertEqual(str(settings[name]), value)


class Files(unittest.TestCase):
    def test_a_tuned_file_is_a_settings_file_whatever_its_comments_say(self):
        chosen = {"fusion_max_operations": Chosen("", "128", ["10 us, was 12 us"]), "profile": Chosen("", "latency")}
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "tuned.json"
            for file in (chosen, {}):
                text = tuned_file(["of this machine", "two\nlines */ \"}"], file, config())
                path.write_text(text, encoding="utf-8")
                settings = config(f"--config={path}")
                expected = (128, "latency") if file else (64, "balanced")
                self.assertEqual((settings["fusion_max_operations"], settings["profile"]), expected)
                self.assertEqual('"fusion_max_operations": 128,' in text, bool(file))  # numbers are bare
                self.assertEqual("// 10 us, was 12 us" in text, bool(file))
        with self.assertRaises(KeyError):
            tuned_file([], {"profil": Chosen("", "latency")}, config())

    def test_options_are_passed_on_except_those_that_a_trial_sets(self):
        sys.argv[0] = TROUPE  # the folder in which other programs are found
        settings = Settings(["--ranks", "2", "--profile=latency", "--report-folder", "--x y"])
        self.assertEqual(settings.values["profile"], "latency")
        self.assertEqual(settings.without(["--profile"]), ["--ranks=2", "--report-folder=--x y"])
        self.assertEqual(settings.without(["--ranks"]), ["--profile=latency", "--report-folder=--x y"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
