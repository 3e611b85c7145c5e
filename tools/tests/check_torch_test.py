import json

from fixture import FolderTest, run


class CheckTorch(FolderTest):
    """The table, which needs no PyTorch."""

    def report(self, *results):
        """Runs the script on results: (backend, test, outcome, why)."""
        self.plant("results.jsonl", "".join(json.dumps(dict(zip(("backend", "test", "outcome", "why"), one), seconds=1,
                                                            torch="2.15.0")) + "\n" for one in results))
        told = run("check-torch", "--only-table", "--results", self.root / "results.jsonl", "--table", self.root / "table.md")
        return told, (self.root / "table.md").read_text(encoding="utf-8")

    def test_equal_results_are_only_counted(self):
        told, table = self.report(("gloo", "test_a", "passed", ""), ("troupe", "test_a", "passed", ""),
                                  ("gloo", "test_b", "skipped", "no GPU"), ("troupe", "test_b", "skipped", "no GPU"))
        self.assertEqual(told.returncode, 0, told.stdout)
        self.assertIn("PyTorch 2.15.0", table)
        self.assertIn("| gloo | 1 | 0 | 1 |\n| troupe | 1 | 0 | 1 |", table)
        self.assertNotIn("test_a", table)

    def test_a_test_that_passes_with_gloo_alone_is_an_error_unless_its_reason_is_known(self):
        told, table = self.report(("gloo", "test_a", "passed", ""), ("troupe", "test_a", "skipped", "not for troupe"),
                                  ("gloo", "test_send_recv_any_source", "passed", ""),
                                  ("troupe", "test_send_recv_any_source", "failed", "NotImplementedError: refused"))
        self.assertEqual(told.returncode, 1)
        self.assertIn("torch_exceptions.json: test_a\n", told.stdout)
        self.assertIn("| `test_a` | passed | skipped | not for troupe |", table)
        self.assertIn("| `test_send_recv_any_source` | passed | failed | troupe validates", table)

    def test_a_later_result_replaces_an_earlier_one(self):
        told, _ = self.report(("gloo", "test_a", "passed", ""), ("troupe", "test_a", "failed", "once"),
                              ("troupe", "test_a", "passed", ""))
        self.assertEqual(told.returncode, 0, told.stdout)
