"""Plots, tables and the page of program/report/troupe_report.py: report_test.py. Exits with 77 without matplotlib."""

import math
import os
import pathlib
import sys
import unittest
import xml.etree.ElementTree

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "program" / "report"))
from troupe_report import (Axis, Panel, Plot, Problem, Result, Series, drawable, drawn, html_page,  # noqa: E402
                           log_ticks, plot_of, tables_of, wrapped)


def labels(values, least, most):
    return [label for _, label in log_ticks(values, least, most)]


def one_series(name, points):
    return Plot("title", [], [Panel("panel", Axis("size", "bytes"), Axis("time (us)"), [Series(name, points)])])


def begun_report(bench, heading=()):
    return {"schema": 2, "bench": bench, "troupe": "0.2.0", "caf": "0.17.6", "command": [], "date": "today",
            "machine": {"host": "here", "system": "Linux", "cores": 2}, "heading": list(heading)}


def collective_report():
    def figures(time):
        return {"time_us": time, "algbw_gb_per_s": 8e-3 / time, "busbw_gb_per_s": 8e-3 / time}

    report = begun_report("all_reduce", ["mock", "world of 2 is ready", " rank 0: device 0", "the method"])
    report["versions"] = {"collectives": "mock <of> this"}
    report["devices"] = [{"device": i, "name": "mock GPU", "pci": f"mock:{i}", "rank": i} for i in (0, 1)]
    report["settings"] = {"profile": "latency", "ordering": "agreed"}
    report["changed_settings"] = ["profile"]
    report["options"] = {"depth": 20}
    report["rows"] = [{"size_bytes": size, "type": "f32", "redop": "sum",
                       "out_of_place": {"troupe": figures(10), "wrong": 0, "raw": figures(8), "of_raw": {"p50": 0.8}}}
                      for size in (8, 4096)]
    return report


class Plots(unittest.TestCase):
    def test_sizes_on_an_axis_have_binary_units_and_are_few(self):
        self.assertEqual(labels("bytes", 8, 1 << 30), ["8 B", "64 B", "512 B", "4 KiB", "32 KiB", "256 KiB", "2 MiB",
                                                       "16 MiB", "128 MiB", "1 GiB"])
        self.assertEqual(labels("bytes", 8, 8), ["8 B"])
        self.assertEqual(labels("bytes", 700, 5000), ["1 KiB", "2 KiB", "4 KiB"])
        for most in (1e3, 1e6, 1e9, 1e12):
            self.assertLessEqual(len(labels("bytes", 8, most)), 11)

    def test_numbers_on_an_axis_go_in_decades_and_between_them_where_there_are_few(self):
        self.assertEqual(labels("numbers", 0.009, 1100), ["0.01", "0.1", "1", "10", "100", "1000"])
        self.assertEqual(labels("numbers", 3, 60), ["5", "10", "20", "50"])
        self.assertEqual(labels("numbers", 9e3, 3e6), ["10k", "100k", "1M"])
        self.assertEqual(labels("counts", 1, 256)[-1], "256")

    def test_points_that_an_axis_cannot_show_are_left_out_and_series_that_are_then_empty_too(self):
        plot = one_series("ours", [(8, 0), (16, 2), (math.nan, 1), (32, -1)])
        plot.panels[0].series.append(Series("nothing", [(8, 0)]))
        left = drawable(plot)
        self.assertEqual([[one.points for one in panel.series] for panel in left.panels], [[[(16, 2)]]])
        with self.assertRaisesRegex(Problem, "nothing to draw"):
            drawn(one_series("ours", [(8, 0)]))

    def test_a_plot_has_the_data_both_scales_and_every_name_as_it_is(self):
        svg = xml.etree.ElementTree.fromstring(drawn(one_series("it's `date` \"$x$\"\n{a}_b & $y$", [(8, 10), (1024, 20.5)])))
        texts = ["".join(one.itertext()).strip() for one in svg.iter("{http://www.w3.org/2000/svg}text")]
        for expected in ("it's `date` \"$x$\" {a}_b & $y$", "8 B", "1 KiB", "10", "20", "size", "time (us)", "title"):
            self.assertIn(expected, texts)

    def test_small_print_is_divided_at_blanks(self):
        self.assertEqual(wrapped("one two three", 7), ["one two", "three"])
        self.assertEqual(wrapped("µµµ µµµ", 7), ["µµµ µµµ"])  # letters are counted, not bytes
        self.assertEqual(wrapped("unbreakable", 3), ["unbreakable"])
        self.assertEqual(wrapped("", 3), [])


class Reports(unittest.TestCase):
    def test_a_collective_is_drawn_by_size_ours_beside_raw_with_what_it_was_measured_on(self):
        plot = plot_of(collective_report())
        self.assertEqual(len(plot.panels), 2)
        for panel in plot.panels:
            self.assertEqual([(one.name, one.reference) for one in panel.series], [("troupe", False), ("raw", True)])
            self.assertEqual(panel.series[0].points[-1][0], 4096)
            self.assertRegex(panel.y.label, "GB/s|µs")
            self.assertTrue(panel.x.logarithmic and panel.y.logarithmic)
        self.assertIn("all_reduce, 2 ranks", plot.title)
        self.assertIn("of the mock", plot.title)
        small = "\n".join(plot.small_print)
        for expected in ("2 × mock GPU", "the method", "profile = latency"):
            self.assertIn(expected, small)
        self.assertNotIn("ordering", small)

    def test_a_report_without_an_axis_is_not_drawn(self):
        self.assertIsNone(plot_of(begun_report("plan")))

    def test_tables_of_a_report_leave_out_what_was_not_measured(self):
        tables = tables_of(collective_report())
        self.assertEqual(len(tables), 1)
        self.assertEqual(tables[0].titles.count("of raw"), 1)  # none in place
        self.assertEqual(tables[0].rows[1][0], "4 KiB")
        self.assertIn("80.0 %", tables[0].rows[0])

    def test_raw_is_the_first_row_of_a_table_of_latencies(self):
        report = {**begun_report("latency"), "raw": {"p50": 7.5}, "rows": [{"way": "world-actor", "time": {"p50": 10}}]}
        self.assertEqual([one.rows for one in tables_of(report)], [[["raw", "7.50"], ["world-actor", "10.00"]]])

    def test_a_page_says_what_ran_what_did_not_and_why_and_nothing_in_it_is_markup_by_accident(self):
        page = html_page([Result("all_reduce", "what", "troupe bench all_reduce '<&>'", report=collective_report(),
                                 drawing="<?xml?><svg id='a'><use xlink:href='#a'/></svg>"),
                          Result("host", "what", "troupe bench host", failure="no <memory>")],
                         "troupe bench suite", "a note")
        for expected in ("of the mock", "a note", "Did not run: no &lt;memory&gt;", "&lt;&amp;&gt;",
                         "mock &lt;of&gt; this", "<svg id='a-all_reduce'><use xlink:href='#a-all_reduce'/></svg>"):
            self.assertIn(expected, page)
        self.assertNotIn("<?xml", page)


if __name__ == "__main__":
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        if sys.executable != "/usr/bin/python3" and os.access("/usr/bin/python3", os.X_OK):
            os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])
        print("skipped: there is no matplotlib (package python3-matplotlib)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
