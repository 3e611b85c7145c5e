import pathlib
import tempfile
import unittest

from fixture import run

PASSED = '<TestCase name="a"><OverallResult success="true" skips="0"/></TestCase>'
FAILED = '<TestCase name="b"><OverallResult success="false" skips="0"/></TestCase>'
SKIPPED = '<TestCase name="c"><OverallResult success="true" skips="1"/></TestCase>'


class SummariseTests(unittest.TestCase):
    def summarise(self, *texts, status=0, log=""):
        """Returns the last line for these result files, and the exit status. A text of None stands for a missing file."""
        with tempfile.TemporaryDirectory() as folder:
            files = [pathlib.Path(folder) / str(number) for number in range(len(texts))]
            for file, text in zip(files, texts):
                if text is not None:
                    file.write_text(text, encoding="utf-8")
            printed = pathlib.Path(folder) / "log"
            printed.write_text(log, encoding="utf-8")
            self.said = run("summarise-tests", "--status", status, "--log", printed, *files)
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

    def test_cases_that_a_ctest_program_skipped_are_counted_besides(self):
        self.assertEqual(self.summarise('<testsuite><testcase name="a" status="run"><system-out>..s\n2 passed\nskipped cases: 1\n'
                                        '</system-out></testcase><testcase name="b"><skipped/><system-out>skipped cases: 72\n'
                                        '    72 times: no GPU</system-out></testcase></testsuite>'),
                         ("1 passed, 0 failed, 73 skipped", 0))

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

    def test_a_failed_case_is_named_with_the_expression_that_failed(self):
        self.summarise('<Catch2TestRun><TestCase name="sums are right"><Expression success="false" type="REQUIRE" '
                       'filename="sum_test.cpp" line="7"><Original>sum == 3</Original><Expanded>2 == 3</Expanded>'
                       '</Expression><OverallResult success="false"/></TestCase></Catch2TestRun>')
        self.assertIn("FAILED: sums are right\n    sum_test.cpp:7: REQUIRE( sum == 3 ) with 2 == 3\n", self.said.stdout)

    def test_a_failed_program_is_named_with_the_end_of_its_output(self):
        self.summarise('<testsuite><testcase name="demo"><failure/><system-out>begun\nlost a rank</system-out>'
                       '</testcase></testsuite>')
        self.assertIn("FAILED: demo\n    begun\n    lost a rank\n", self.said.stdout)

    def test_after_a_crash_the_report_of_a_sanitizer_is_named(self):
        self.summarise("<Catch2TestRun>", status=1, log="noise\n==7==ERROR: AddressSanitizer: heap-use\n    #0 here\n")
        self.assertIn("FAILED: ==7==ERROR: AddressSanitizer: heap-use\n    #0 here\n", self.said.stdout)

    def test_a_text_about_failed_tests_is_repeated_once(self):
        told = "FAILED: a test\n    x == 1\nnoise\n"
        self.summarise(f"{told}{told}0 passed, 1 failed, 0 skipped\n")
        self.assertEqual(self.said.stdout, "FAILED: a test\n    x == 1\n0 passed, 1 failed, 0 skipped\n")
