import pathlib
import tempfile
import unittest

from fixture import run

PASSED = '<TestCase name="a"><OverallResult success="true" skips="0"/></TestCase>'
FAILED = '<TestCase name="b"><OverallResult success="false" skips="0"/></TestCase>'
SKIPPED = '<TestCase name="c"><OverallResult success="true" skips="1"/></TestCase>'


class SummariseTests(unittest.TestCase):
    def summarise(self, *texts, status=0):
        """The last line for these result files, and the exit status; a text of None is a file that is missing."""
        with tempfile.TemporaryDirectory() as folder:
            files = [pathlib.Path(folder) / str(number) for number in range(len(texts))]
            for file, text in zip(files, texts):
                if text is not None:
                    file.write_text(text, encoding="utf-8")
            self.said = run("summarise-tests", "--status", status, *files)
        return self.said.stdout.splitlines()[-1], self.said.returncode

    def test_catch2_cases_are_counted(self):
        self.assertEqual(self.summarise(f"<Catch2TestRun>{PASSED}{PASSED}{SKIPPED}</Catch2TestRun>"),
                         ("2 passed, 0 failed, 1 skipped", 0))

    def test_a_failed_case_fails(self):
        self.assertEqual(self.summarise(f"<Catch2TestRun>{PASSED}{FAILED}</Catch2TestRun>"),
                         ("1 passed, 1 failed, 0 skipped", 1))

    def test_ctest_results_are_counted(self):
        self.assertEqual(self.summarise('<testsuite><testcase name="a" status="run"/><testcase name="b"><failure/>'
                                        '</testcase><testcase name="c"><skipped/></testcase></testsuite>'),
                         ("1 passed, 1 failed, 1 skipped", 1))

    def test_results_that_break_off_are_a_failure_and_name_the_test(self):
        self.assertEqual(self.summarise(f'<Catch2TestRun>{PASSED}<TestCase name="the crash">', status=139),
                         ("1 passed, 1 failed, 0 skipped", 1))
        self.assertIn("the crash", self.said.stdout)

    def test_missing_and_empty_results_are_failures(self):
        self.assertEqual(self.summarise(None, ""), ("0 passed, 2 failed, 0 skipped", 1))

    def test_an_error_status_is_a_failure_though_all_tests_passed(self):
        self.assertEqual(self.summarise(f"<Catch2TestRun>{PASSED}</Catch2TestRun>", status=23),
                         ("1 passed, 1 failed, 0 skipped", 1))

    def test_no_test_at_all_fails(self):
        self.assertEqual(self.summarise("<Catch2TestRun></Catch2TestRun>"), ("0 passed, 0 failed, 0 skipped", 1))

    def test_only_skipped_tests_fail(self):
        self.assertEqual(self.summarise(f"<Catch2TestRun>{SKIPPED}</Catch2TestRun>", status=4),
                         ("0 passed, 0 failed, 1 skipped", 1))

    def test_the_last_summary_of_each_text_is_added(self):
        self.assertEqual(self.summarise("9 passed, 9 failed, 9 skipped\n1 passed, 0 failed, 2 skipped\n",
                                        "noise\n3 passed, 0 failed, 0 skipped\n"),
                         ("4 passed, 0 failed, 2 skipped", 0))
