"""Reading flight records (program/report/troupe_trace.py): trace_test.py."""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "program" / "report"))
from troupe_tool import Problem  # noqa: E402
from troupe_trace import Trace, events_document  # noqa: E402


def record(rank, boot, steady, system):
    """One rank's record of three collectives, 1000 ns apart, each 300 ns on the GPU."""
    requests = [{"ticket": i + 1, "epoch": 1, "what": "all_reduce of 4 f32, sum", "lane": "x", "position": i,
                 "reach": "all_ranks", "bytes": 16, "asked": steady + 1000 * i + 10 * rank,
                 "matched": steady + 1000 * i + 50, "launch_began": steady + 1000 * i + 100,
                 "launched": steady + 1000 * i + 200, "finished": steady + 1000 * i + 500, "launch": i + 1, "fused": 1}
                for i in range(3)]
    return {"schema": 1, "kind": "troupe flight record", "host": boot, "boot": boot, "pid": 100 + rank,
            "about": "made up", "clock": {"steady_ns": steady, "system_ns": system},
            "lines": [{"world": 1, "rank": rank, "world_size": 2, "device": 0, "asked_in_all": 3,
                       "requests": requests}]}


class Program(unittest.TestCase):
    def test_it_ends_quietly_if_nobody_reads_its_output(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "troupe-trace"
            program.symlink_to(pathlib.Path(sys.modules["troupe_trace"].__file__))
            reader, writer = os.pipe()
            os.close(reader)
            buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
            with open(writer, "wb") as output:
                done = subprocess.run([sys.executable, "-B", program, "--help"], stdout=output, stderr=subprocess.PIPE,
                                      text=True, check=False, env=buffered)
        self.assertEqual((done.returncode, done.stderr), (1, ""))


class Records(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def trace(self, *records):
        """Reads records, which are documents or texts."""
        paths = [os.path.join(self.folder, f"{i}.json") for i in range(len(records))]
        for path, one in zip(paths, records):
            pathlib.Path(path).write_text(one if isinstance(one, str) else json.dumps(one), encoding="utf-8")
        return Trace(paths)

    def test_records_of_one_machine_share_its_clock(self):
        trace = self.trace(record(0, "a", 5000, 99), record(1, "a", 5000, 12345678))
        self.assertEqual(len(trace.ranks), 2)
        self.assertEqual(trace.remarks, [])
        self.assertEqual(trace.ranks[1].requests[0].asked, 5010)
        self.assertEqual([len(parts) for parts in trace.collectives()], [2, 2, 2])

    def test_records_of_another_machine_are_put_on_the_first_ones_clock_by_what_they_finished_together(self):
        # The hosts' own clocks differ by 777 ns beside what their records say.
        trace = self.trace(record(0, "a", 5000, 1_000_000), record(1, "b", 900_000, 1_000_777))
        self.assertEqual(len(trace.remarks), 1)
        self.assertRegex(trace.remarks[0], "1.json is from another machine: .* by the collectives that both finished")
        self.assertEqual(trace.ranks[1].requests[0].finished, trace.ranks[0].requests[0].finished)
        self.assertEqual(trace.ranks[1].requests[2].asked, 7010)

    def test_records_that_share_no_collective_are_put_on_one_clock_by_those_of_their_hosts(self):
        other = record(1, "b", 900_000, 1_000_777)
        other["lines"][0]["world"] = 2
        trace = self.trace(record(0, "a", 5000, 1_000_000), other)
        self.assertRegex(trace.remarks[0], "shares no collective: its times are aligned by the hosts' clocks")
        self.assertEqual(trace.ranks[1].requests[0].finished, trace.ranks[0].requests[0].finished + 777)

    def test_a_gpu_begins_with_a_request_when_it_is_launched_or_when_what_ran_before_it_has_ended(self):
        one = record(0, "a", 5000, 0)
        one["lines"][0]["requests"][0]["finished"] = 6400
        self.assertEqual([request.began for request in self.trace(one).ranks[0].requests], [5200, 6400, 7200])

    def test_a_file_that_is_not_a_flight_record_is_refused_by_its_name(self):
        later, wrong, without = (record(0, "a", 1, 1) for _ in range(3))
        later["schema"] = 2
        wrong["lines"][0]["requests"][1]["asked"] = "now"
        del without["boot"]
        for one, complaint in ((json.dumps(later)[:200], "0.json: it is not a flight record: "),
                               ('{"schema": 1}', "0.json: it is not a flight record of troupe"),
                               ("[1]", "0.json: it is not a flight record: "),
                               (later, "too_old: .*0.json: its schema is 2"),
                               (wrong, "0.json: it is not a flight record: .*'asked'"),
                               (without, "0.json: it is not a flight record: key 'boot' not found")):
            with self.subTest(complaint), self.assertRaisesRegex(Problem, complaint):
                self.trace(one)
        for path in ("/nowhere/record.json", "/dev/null", "/"):
            with self.subTest(path), self.assertRaisesRegex(Problem, f"flight record {path} cannot be read"):
                Trace([path])

    def test_texts_of_a_record_cannot_control_the_terminal(self):
        one = record(0, "a", 5000, 0)
        one["about"] = one["lines"][0]["requests"][0]["what"] = "\x1b]0;x\x07 gr\u00f6\u00dfe"
        trace = self.trace(one)
        for text in (trace.about, trace.ranks[0].requests[0].what):
            self.assertEqual(text, "\\x1b]0;x\\x07 gr\u00f6\u00dfe")

    def test_a_request_that_is_not_over_has_no_end_in_the_viewer(self):
        one = record(0, "a", 5000, 0)
        for name in ("matched", "launch_began", "launched", "finished", "launch", "fused"):
            del one["lines"][0]["requests"][2][name]
        phases = collections.Counter(event["ph"] for event in events_document(self.trace(one))["traceEvents"])
        self.assertEqual(phases["i"], 1)
        self.assertEqual((phases["b"], phases["e"]), (6, 6))  # two requests, with what they waited for


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
