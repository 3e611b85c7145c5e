"""The view of metrics of program/report/troupe_report.py: top_test.py. Exits with 77 without rich."""

import http.server
import math
import os
import pathlib
import re
import socketserver
import sys
import threading
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "program" / "report"))
from troupe_report import (Interval, Problem, Scrape, draw_top, histogram_quantile, http_get,  # noqa: E402
                           parse_http_address, parse_prometheus_text, short_bytes, short_number, short_time)


def scrape_of(at_seconds, text):
    return Scrape(at_seconds, parse_prometheus_text(text))


class PrometheusText(unittest.TestCase):
    def test_samples_are_read_with_their_labels_and_values(self):
        every = parse_prometheus_text('# HELP requests_total Of all.\n'
                                      '# TYPE requests_total counter\n'
                                      'requests_total{world="1",rank="0"} 12 1395066363000\n'
                                      '\n'
                                      '  depth -1.5e3\r\n'
                                      'latency_bucket { le = "+Inf" , } +Inf\n'
                                      'odd{text="a \\"quote\\", a \\\\ and a\\nline }"} NaN')
        self.assertEqual([one.name for one in every], ["requests_total", "depth", "latency_bucket", "odd"])
        self.assertEqual(every[0].labels, {"world": "1", "rank": "0"})
        self.assertEqual(every[0].value, 12)
        self.assertEqual(every[1].value, -1500)
        self.assertEqual(every[2].labels, {"le": "+Inf"})
        self.assertTrue(math.isinf(every[2].value))
        self.assertEqual(every[3].labels["text"], 'a "quote", a \\ and a\nline }')
        self.assertTrue(math.isnan(every[3].value))

    def test_nothing_and_comments_are_no_samples(self):
        self.assertEqual(parse_prometheus_text(""), [])
        self.assertEqual(parse_prometheus_text("\n\n# EOF"), [])

    def test_text_that_is_not_a_sample_is_refused_with_its_line(self):
        for text, complaint in {
                "good 1\n<html>": "line 2 of the metrics: a metric's name is missing before '<html>'",
                "a": "line 1 of the metrics: '' is not a number",
                "a 1x": "line 1 of the metrics: '1x' is not a number",
                "a 1_000": "line 1 of the metrics: '1_000' is not a number",
                "a 1 2 3": "line 1 of the metrics: there is unexpected text behind the value: '3'",
                'a{b="1" 2': "line 1 of the metrics: the labels have no end",
                'a{b="1': "line 1 of the metrics: a label's value has no end",
                "a{b=1} 2": "line 1 of the metrics: the label b has no value in quotes",
                "a{b} 2": "line 1 of the metrics: the label b has no '='",
                'a{="1"} 2': "line 1 of the metrics: a label's name is missing before '=\"1\"} 2'"}.items():
            with self.assertRaises(Problem) as refused:
                parse_prometheus_text(text)
            self.assertEqual(str(refused.exception), complaint)


class Intervals(unittest.TestCase):
    def test_sums_and_values_are_of_the_samples_that_pass(self):
        seen = scrape_of(0, 'asked{rank="0",size="4K"} 3\nasked{rank="2",size="4K"} 4\nasked{rank="10",size="1M"} 5\n'
                            'asked_bytes{rank="0"} 100\n')
        self.assertEqual(seen.sum("asked"), 12)
        self.assertEqual(seen.sum("asked", size="4K"), 7)
        self.assertEqual(seen.sum("asked", size="4K", rank="2"), 4)
        self.assertEqual(seen.sum("asked", world="1"), 0)
        self.assertTrue(seen.passing("asked", rank="10"))
        self.assertFalse(seen.passing("answered"))
        self.assertEqual(seen.values("asked", "rank"), ["0", "2", "10"])
        self.assertEqual(seen.values("asked", "size", rank="10"), ["1M"])

    def test_a_rate_is_what_a_counter_has_grown_by_in_a_second(self):
        before = scrape_of(10, 'asked{rank="0"} 100\n')
        now = scrape_of(12.5, 'asked{rank="0"} 150\nasked{rank="1"} 25\n')
        seen = Interval(before, now)
        self.assertAlmostEqual(seen.rate("asked"), 30)
        self.assertAlmostEqual(seen.rate("asked", rank="0"), 20)
        self.assertEqual(seen.growth("asked", rank="1"), 25)
        anew = scrape_of(13.5, 'asked{rank="0"} 7\n')  # another process answers there now
        self.assertAlmostEqual(Interval(now, anew).rate("asked"), 7)
        self.assertTrue(math.isnan(Interval(None, now).rate("asked")))
        self.assertTrue(math.isnan(Interval(now, now).rate("asked")))

    def test_a_percentile_lies_in_its_bucket_where_its_share_of_it_is(self):
        up_to = {1: 10, 2: 30, 4: 40, math.inf: 40}
        for quantile, value in {0.25: 1, 0.5: 1.5, 0.125: 0.5, 1: 4, 0: 0}.items():
            self.assertAlmostEqual(histogram_quantile(quantile, up_to), value)

    def test_a_percentile_beyond_the_last_bound_is_that_bound_and_one_of_nothing_is_not_known(self):
        self.assertAlmostEqual(histogram_quantile(0.99, {1: 10, 2: 10, math.inf: 20}), 2)
        self.assertTrue(math.isnan(histogram_quantile(0.5, {})))
        self.assertTrue(math.isnan(histogram_quantile(0.5, {1: 0, math.inf: 0})))

    def test_percentiles_are_of_what_was_observed_between_two_scrapes_over_all_samples_that_pass(self):
        before = scrape_of(0, "".join(f't_bucket{{rank="0",le="{le}"}} 1000\n' for le in ("1", "2", "+Inf")))
        now = scrape_of(1, 't_bucket{rank="0",le="1"} 1000\nt_bucket{rank="0",le="2"} 1004\n'
                           't_bucket{rank="0",le="+Inf"} 1004\nt_bucket{rank="1",le="1"} 0\n'
                           't_bucket{rank="1",le="2"} 6\nt_bucket{rank="1",le="+Inf"} 6\n')
        seen = Interval(before, now)
        self.assertAlmostEqual(seen.quantile(0.5, "t"), 1.5)
        self.assertAlmostEqual(seen.quantile(0.5, "t", rank="1"), 1.5)
        self.assertTrue(math.isnan(Interval(now, now).quantile(0.5, "t")))


def world_scrape(at_seconds, ranks, asked):
    """A world of `ranks` of which each has been asked `asked` times, 2 requests to a launch."""
    text = ('troupe_build_info{version="1",backend="mock 1",driver="mock 2",profile="frugal"} 1\n'
            f'troupe_poller_seconds_total{{state="busy"}} {at_seconds / 4}\n'
            f'troupe_poller_seconds_total{{state="parked"}} {at_seconds / 2}\n'
            'troupe_world_phase{world="3",phase="ready"} 1\n'
            'troupe_world_phase{world="3",phase="failed"} 0\n'
            'troupe_world_epoch{world="3"} 2\n'
            f'troupe_world_ranks{{world="3"}} {ranks}\n'
            f'troupe_world_local_ranks{{world="3"}} {ranks}\n'
            'troupe_world_faults_total{world="3",code="device_failed"} 1\n'
            'troupe_world_recovery_seconds_sum{world="3",rung="form_beside",result="ready"} 0.25\n'
            'troupe_world_recovery_seconds_count{world="3",rung="form_beside",result="ready"} 1\n')
    for i in range(ranks):
        rank = f'world="3",rank="{i}"'
        one = rank + ',operation="all_reduce",size="4K"'
        text += (f"troupe_requests_total{{{one}}} {asked}\n"
                 f"troupe_request_bytes_total{{{one}}} {asked * 1000}\n"
                 f"troupe_request_queue_seconds_total{{{one}}} {asked * 20e-6}\n"
                 f'troupe_request_latency_seconds_bucket{{{one},le="0.0001"}} 0\n'
                 f'troupe_request_latency_seconds_bucket{{{one},le="0.0002"}} {asked}\n'
                 f'troupe_request_latency_seconds_bucket{{{one},le="+Inf"}} {asked}\n'
                 f"troupe_launches_total{{{rank}}} {asked // 2}\n"
                 f"troupe_launched_requests_total{{{rank}}} {asked}\n"
                 f"troupe_rank_lead{{{rank}}} {i}\n"
                 f"troupe_rank_queue{{{rank}}} 5\n")
    return scrape_of(at_seconds, text)


def squeezed(lines):
    """Every run of blanks as one."""
    return re.sub(" +", " ", "\n".join(line.plain for line in lines))


class View(unittest.TestCase):
    def test_top_shows_rates_percentiles_fusion_and_faults_of_a_world(self):
        seen = Interval(world_scrape(100, 2, 1000), world_scrape(102, 2, 5000))
        text = squeezed(draw_top(seen, [], "http://here", 120, 40))
        for expected in ("troupe top http://here up - mock 1, mock 2, profile frugal",
                         "world 3 ready epoch 2 2 ranks (2 here)", "requests 4.00k/s",
                         "4.00MB/s launches 2.00k/s fusion 2", "poller busy 25%", "parked 50% looking 25%",
                         "faults device_failed 1 back by form_beside 1x, in 250ms",
                         "OPERATION SIZE<= REQ/S BYTES/S P50 P99 QUEUED REQUESTS",
                         "all_reduce 4K 4.00k 4.00M 150us 199us 20.0us 10.0k",
                         "RANK LEAD QUEUE REQ/S LAUNCHES/S FUSION BYTES/S FAILED P99",
                         "\n1 1 5 2.00k 1.00k 2 2.00M 0 199us"):
            self.assertIn(expected, text)

    def test_before_a_second_scrape_top_knows_no_rates(self):
        text = squeezed(draw_top(Interval(None, world_scrape(102, 1, 5000)), [], "here", 120, 40))
        self.assertIn("requests -/s", text)
        self.assertIn("all_reduce 4K - - - - - 5.00k", text)

    def test_top_fits_its_screen_and_says_what_it_leaves_out(self):
        seen, rates = Interval(world_scrape(100, 64, 1000), world_scrape(102, 64, 5000)), [1, 2, 8]
        lines = draw_top(seen, rates, "here", 80, 24)
        self.assertEqual(len(lines), 24)
        text = squeezed(lines)
        self.assertIn("more ranks", text)
        self.assertIn("▁▂█", text)
        self.assertLessEqual(max(line.cell_len for line in lines), 80)
        for height in range(24):
            small = draw_top(seen, rates, "here", 20, height)
            self.assertLessEqual(len(small), height)
            self.assertLessEqual(max((line.cell_len for line in small), default=0), 20)

    def test_good_and_bad_values_have_a_style_and_lines_are_cut_by_characters(self):
        seen = Interval(world_scrape(100, 2, 1000), world_scrape(102, 2, 5000))
        lines = draw_top(seen, [1, 2], "here", 80, 40)
        styles = {line.plain[span.start:span.end]: str(span.style) for line in lines for span in line.spans}
        self.assertEqual(styles["ready"], "bold green")
        self.assertEqual(styles["device_failed 1"], "bold red")
        self.assertEqual(styles["▄█"], "cyan")
        heading = next(line for line in lines if line.plain.startswith("OPERATION"))
        self.assertEqual([(span.start, span.end) for span in heading.spans], [(0, len(heading.plain))])  # one bar
        curve = next(line.plain for line in draw_top(seen, [1, 2], "here", 21, 40) if line.plain.startswith("requests"))
        self.assertEqual(curve, "requests 4.00k/s  ▄█ ")

    def test_columns_are_aligned_and_longer_cells_are_not_cut(self):
        from troupe_report import TopPage
        page = TopPage(Interval(None, Scrape(1, [])), "here")
        row = page.row((("A", 4), ("B", 3), ("C", 2)), "", ["▁▂", "x", ("behind", "bold red")])
        self.assertEqual("".join(one if isinstance(one, str) else one[0] for one in row), "▁▂    x behind")

    def test_a_process_without_worlds_is_shown_too(self):
        self.assertIn("no world has been formed", squeezed(draw_top(Interval(None, Scrape(1, [])), [], "here")))

    def test_figures_take_few_characters(self):
        for value, text in {0: "0", 7: "7", 640: "640", 2.5: "2.50", 12_345: "12.3k", 999_600: "1.00M"}.items():
            self.assertEqual(short_number(value), text)
        self.assertEqual(short_number(math.nan), "-")
        self.assertEqual([short_bytes(1500), short_bytes(3.2e12)], ["1.50k", "3.20T"])
        for seconds, text in {17e-6: "17.0us", 0.25: "250ms", 75: "75.0s", 130: "2m10s", 7290: "2h01m"}.items():
            self.assertEqual(short_time(seconds), text)


class Endpoint(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/metrics" else 404)
        self.end_headers()
        self.wfile.write(b"a 1\n")

    def log_message(self, *_):
        pass


class Address(unittest.TestCase):
    def test_where_metrics_are_read_is_a_url_or_a_host_and_a_port(self):
        self.assertEqual(parse_http_address("127.0.0.1:9464"), ("127.0.0.1", 9464, "/metrics"))
        self.assertEqual(parse_http_address("http://[::1]:1/other"), ("::1", 1, "/other"))
        self.assertEqual(parse_http_address("http://here/"), ("here", 80, "/metrics"))
        for text in ("https://here:1", "http://", ":9464", "here:", "here:x", "ftp://here:1", "[::1"):
            with self.assertRaises(Problem, msg=text):
                parse_http_address(text)

    def test_a_document_is_read_and_any_other_answer_is_told(self):
        with socketserver.TCPServer(("127.0.0.1", 0), Endpoint) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            port = server.server_address[1]
            self.assertEqual(http_get("127.0.0.1", port, "/metrics"), "a 1\n")
            with self.assertRaisesRegex(Problem, f"http://127.0.0.1:{port}/other: the answer is '404"):
                http_get("127.0.0.1", port, "/other")
            server.shutdown()
        with self.assertRaisesRegex(Problem, f"http://127.0.0.1:{port}/metrics: Connection refused"):
            http_get("127.0.0.1", port, "/metrics")


if __name__ == "__main__":
    try:
        import rich  # noqa: F401
    except ImportError:
        if sys.executable != "/usr/bin/python3" and os.access("/usr/bin/python3", os.X_OK):
            os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])
        print("skipped: there is no rich (package python3-rich)")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
