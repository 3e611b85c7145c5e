#!/usr/bin/env -S python3 -B
"""troupe-plot, troupe-report and troupe-top: present the JSON reports of benches and the metrics of a running process.

    troupe plot REPORT.json FILE.svg    draws the report of a bench; "-" is standard input or output
    troupe report FOLDER                writes FOLDER/report.html from the output of `troupe bench suite --out FOLDER`
    troupe top [--url URL]              shows the requests and faults of a running process, from its Prometheus metrics

One file with three names. Plots need matplotlib; top needs rich.
"""

from __future__ import annotations

import argparse
import collections
import html
import http.client
import importlib
import io
import json
import math
import os
import pathlib
import re
import select
import signal
import socket
import sys
import textwrap
import time
import typing
from dataclasses import dataclass, field

from troupe_tool import Problem, save, start

SYSTEM_PYTHON = "/usr/bin/python3"


def need(module: str, purpose: str, remedy: str = "") -> typing.Any:
    """Imports `module`. If it is missing, restarts this program with the system's Python, which may have it."""
    try:
        return importlib.import_module(module)
    except ImportError as why:
        is_program = os.path.basename(sys.argv[0]).startswith("troupe-")
        if is_program and sys.executable != SYSTEM_PYTHON and os.access(SYSTEM_PYTHON, os.X_OK):
            os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, "-B", *sys.argv])
        package = module.split(".", 1)[0]
        raise Problem(f"{package}, which {purpose}, is missing ({why}): install it (on Debian and Ubuntu: "
                      f"apt-get install python3-{package}){remedy}") from None


def need_matplotlib(module: str = "matplotlib") -> typing.Any:
    return need(module, "draws the plots", ", or draw elsewhere from the JSON: troupe plot REPORT.json FILE.svg")


# Data of a plot: panels side by side, each with two axes and a legend below, and small print at the bottom.

MOST_TICKS = 10
MOST_COMBINATIONS = 4  # combinations of dtype and reduction in one plot; more are hard to distinguish


@dataclass
class Axis:
    label: str  # with the unit
    values: str = "numbers"  # or "counts": powers of two, or "bytes"
    logarithmic: bool = True

    def shows(self, value: float) -> bool:
        return math.isfinite(value) and (value > 0 or not self.logarithmic)


@dataclass
class Series:
    name: str
    points: list[tuple[float, float]]
    reference: bool = False  # the others are compared with it; drawn dashed and grey


@dataclass
class Panel:
    title: str
    x: Axis
    y: Axis
    series: list[Series] = field(default_factory=list)


@dataclass
class Plot:
    title: str
    small_print: list[str] = field(default_factory=list)  # paragraphs
    panels: list[Panel] = field(default_factory=list)


def number_label(value: float) -> str:
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit * (0.999 if unit > 1e3 else 9.99):  # 10k, but 1000
            return f"{value / unit:.4g}{name}"
    return f"{value:.4g}"


def bytes_label(value: float) -> str:
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1024 and len(units) > 1:
        value /= 1024
        units.pop(0)
    return f"{value:.4g} {units[0]}"


def log_ticks(values: str, least: float, most: float) -> list[tuple[float, str]]:
    """Returns at most about ten ticks of a logarithmic axis. If it spans few decades, 2 and 5 in each get ticks too."""
    if values == "numbers":
        first, last = math.floor(math.log10(least)), math.ceil(math.log10(most))
        within = (1, 2, 5) if math.log10(most / least) < 2.5 else (1,)
        at = [times * 10.0**i for i in range(first, last + 1, 1 + (last - first) // MOST_TICKS) for times in within]
        return [(one, number_label(one)) for one in at if least * (1 - 1e-9) <= one <= most * (1 + 1e-9)]
    first, last = math.ceil(math.log2(least) - 1e-9), math.floor(math.log2(most) + 1e-9)
    label = bytes_label if values == "bytes" else number_label
    return [(2.0**i, label(2.0**i)) for i in range(first, last + 1, 1 + max(0, last - first) // MOST_TICKS)]


def drawable(plot: Plot) -> Plot:
    """Returns `plot` without points that its axes cannot show, and without series and panels that are then empty."""
    panels = []
    for panel in plot.panels:
        left = [Series(one.name, [(x, y) for x, y in one.points if panel.x.shows(x) and panel.y.shows(y)],
                       one.reference) for one in panel.series]
        if left := [one for one in left if one.points]:
            panels.append(Panel(panel.title, panel.x, panel.y, left))
    return Plot(plot.title, plot.small_print, panels)


def wrapped(text: str, width: int) -> list[str]:
    """Breaks `text` at blanks into lines. A word that is longer than a line gets its own line."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def one_line(text: str) -> str:
    return "".join(" " if letter < " " else letter for letter in text)


# Colours that colour-blind readers can tell apart (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8B5E3C")
GREYS = ("#444444", "#888888", "#AAAAAA")


def draw_axis(axes: typing.Any, name: str, what: Axis, values: list[float], room: float) -> None:
    """Draws `what` as the axis `name` of matplotlib's axes. `room` is the factor by which both limits are extended."""
    axes.set(**{f"{name}label": one_line(what.label)})
    if not what.logarithmic:
        axes.set(**{f"{name}lim": (0, None) if min(values) >= 0 else (None, None)})
        return
    least, most = min(values) / room, max(values) * room
    ticks = log_ticks(what.values, least, most)
    axes.set(**{f"{name}scale": "log"})
    axis = getattr(axes, f"{name}axis")
    axis.set_ticks([], minor=True)
    axis.set_ticks([place for place, _ in ticks], [label for _, label in ticks])
    axes.set(**{f"{name}lim": (least, most)})


def drawn(plot: Plot) -> str:
    """Returns the plot as SVG with texts as text elements. Names and titles are shown literally."""
    plot = drawable(plot)
    if not plot.panels:
        raise Problem(f"nothing to draw: no figure of '{plot.title}' is above 0")
    matplotlib, figures = need_matplotlib(), need_matplotlib("matplotlib.figure")
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "troupe", "text.parse_math": False,
                                "font.family": "sans-serif", "font.size": 10, "axes.spines.top": False,
                                "axes.spines.right": False, "axes.grid": True, "grid.color": "#DDDDDD"}):
        count = len(plot.panels)
        figure = figures.Figure(figsize=(6.8 * count, 4.6))
        figure.suptitle(one_line(plot.title), fontsize=14, y=1.02)
        key_lines = 1
        for panel, axes in zip(plot.panels, figure.subplots(1, count, squeeze=False)[0]):
            axes.set_title(one_line(panel.title))
            colours, greys, lines = 0, 0, []
            for one in panel.series:
                if one.reference:
                    look = {"linestyle": "--", "marker": "o", "markerfacecolor": "white",
                            "color": GREYS[greys % len(GREYS)]}
                    greys += 1
                else:
                    look = {"linestyle": "-", "marker": "o", "color": COLOURS[colours % len(COLOURS)]}
                    colours += 1
                lines += axes.plot(*zip(*one.points), linewidth=1.6, markersize=4, **look)
            draw_axis(axes, "x", panel.x, [x for one in panel.series for x, _ in one.points],
                      1.1 if panel.x.values == "numbers" else 1.35)
            draw_axis(axes, "y", panel.y, [y for one in panel.series for _, y in one.points], 1.4)
            axes.tick_params(axis="x", rotation=35)
            names = [one_line(one.name) for one in panel.series]
            columns = max(1, min(len(names), 640 // (60 + 8 * max(map(len, names)))))
            key_lines = max(key_lines, -(-len(names) // columns))
            axes.legend(lines, names, loc="upper center", bbox_to_anchor=(0.5, -0.22), ncol=columns, frameon=False)
        small = [line for one in plot.small_print for line in wrapped(one_line(one), 110 * count)]
        figure.text(0.04, -0.12 - 0.05 * key_lines, "\n".join(small), fontsize=8, color="#555555", va="top",
                    linespacing=1.4)
        picture = io.StringIO()
        figure.savefig(picture, format="svg", bbox_inches="tight", metadata={"Date": None})
    return picture.getvalue()


# The plots and tables of each bench's report.


def at(row: typing.Any, path: str) -> typing.Any:
    """Returns the member of `row` that the members named in `path` lead to, or None."""
    for name in path.split("/"):
        if not isinstance(row, dict) or name not in row:
            return None
        row = row[name]
    return row


def figure_at(row: typing.Any, path: str) -> float:
    value = at(row, path)
    return value if isinstance(value, (int, float)) else 0


def series_of(name: str, rows: list, x: str, y: str, reference: bool = False) -> Series:
    return Series(name, [(figure_at(row, x), figure_at(row, y)) for row in rows], reference)


def converted(one: Series, convert: typing.Callable[[float, float], float]) -> Series:
    return Series(one.name, [(x, convert(x, y) if y > 0 else 0) for x, y in one.points], one.reference)


def as_bandwidth(times: Series) -> Series:
    return converted(times, lambda size, microseconds: size / microseconds / 1e3)


def grouped(rows: list, key: typing.Callable[[dict], typing.Any]) -> dict[str, list]:
    """Groups `rows` in order of first occurrence."""
    groups: dict[str, list] = {}
    for row in rows:
        groups.setdefault(str(key(row)), []).append(row)
    return groups


def ranks_of(report: dict) -> str:
    count = len(report.get("devices", []))
    return f"{count} rank" + ("" if count == 1 else "s")


SIZE = Axis("size", "bytes")


def time_axis(of: str) -> Axis:
    return Axis(f"time of {of} (µs)")


def bandwidth_axis(kind: str = "") -> Axis:
    return Axis(f"{kind} bandwidth (GB/s, 1 GB = 10⁹ B)".strip())


def collective_plot(report: dict) -> Plot:
    rows = report["rows"]
    groups = grouped(rows, lambda row: row["type"] + ("" if row["redop"] == "none" else " " + row["redop"]))
    plot = Plot(f"{report['bench']}, {ranks_of(report)}" + (f", {next(iter(groups))}" if len(groups) == 1 else ""))
    if len(groups) > MOST_COMBINATIONS:
        plot.small_print.append(f"Drawn are the first {MOST_COMBINATIONS} of {len(groups)} combinations of dtype and "
                                "reduction.")
        groups = dict(list(groups.items())[:MOST_COMBINATIONS])
    # A single rank sends nothing over links, so its bus bandwidth is 0.
    kind = "bus" if any(figure_at(row, "out_of_place/troupe/busbw_gb_per_s") > 0 for row in rows) else "alg"
    bandwidth = Panel("Bandwidth", SIZE, bandwidth_axis("bus" if kind == "bus" else "algorithm"))
    depth = int(figure_at(report, "options/depth"))
    each = Panel("Time", SIZE, time_axis("each, " + (f"{depth} in flight" if depth > 1 else "one at a time")))
    for name, mine in groups.items():
        for who in ("troupe", "raw"):
            label, base = who if len(groups) == 1 else f"{who} {name}", f"out_of_place/{who}/"
            bandwidth.series.append(series_of(label, mine, "size_bytes", f"{base}{kind}bw_gb_per_s", who == "raw"))
            each.series.append(series_of(label, mine, "size_bytes", base + "time_us", who == "raw"))
    plot.small_print.append("Out of place, medians of blocks. raw: the same calls without actors, launchers or poller, "
                            "in the same blocks.")
    plot.panels = [bandwidth, each]
    return plot


def host_plot(report: dict) -> Plot:
    each = Panel("Time", SIZE, time_axis("one request"))
    for memory, rows in grouped(report["rows"], lambda row: row["memory"]).items():
        for what in ("staged", "copies", "collective"):
            each.series.append(series_of(f"{what}, {memory}", rows, "size_bytes", f"{what}/p50", what != "staged"))
    bandwidth = Panel("Bandwidth", SIZE, bandwidth_axis(), [as_bandwidth(one) for one in each.series])
    return Plot(f"all_reduce of host memory, {ranks_of(report)}", panels=[bandwidth, each])


def registered_plot(report: dict) -> Plot:
    def series(way: str) -> list[Series]:
        return [series_of(memory, report["rows"], "bytes", f"{memory}/{way}/p50", memory == "raw")
                for memory in ("registered", "ordinary", "raw")]

    many = Panel("Many in flight", SIZE, bandwidth_axis(), [as_bandwidth(one) for one in series("rate")])
    alone = Panel("One at a time", SIZE, time_axis("request to reply"), series("alone"))
    return Plot(f"Requests on registered memory, {ranks_of(report)}", panels=[many, alone])


def rate_plot(report: dict) -> Plot:
    groups = grouped(report["rows"], lambda row: row["mode"])
    series = [series_of(f"troupe, {mode}", rows, "depth", "operations_per_s/p50") for mode, rows in groups.items()]
    series.append(series_of("raw", next(iter(groups.values())), "depth", "raw_per_s/p50", True))
    in_flight = Axis("operations in flight", "counts")
    rate = Panel("Rate", in_flight, Axis("operations per second (1/s)"), series)
    each = Panel("Time", in_flight, time_axis("each"), [converted(one, lambda _, rate: 1e6 / rate) for one in series])
    return Plot(f"Small operations ({int(figure_at(report, 'options/size_bytes'))} B) by how many are in flight, "
                f"{ranks_of(report)}", panels=[rate, each])


def share_of(name: str, histogram: list, reference: bool = False) -> Series:
    """Returns, for each time, the share of the requests that were answered within it."""
    every, seen = sum(one["count"] for one in histogram), 0
    points = []
    for one in histogram:
        if seen == 0:
            points.append((one["from_us"], 0))
        seen += one["count"]
        points.append((one["to_us"], 100 * seen / every if every else math.nan))
    return Series(name, points, reference)


def latency_plot(report: dict) -> Plot:
    series = [share_of(row["way"], row["time"]["histogram"]) for row in report["rows"]]
    if "raw" in report:
        series.append(share_of("raw", report["raw"]["histogram"], True))
    shares = Panel("By kind of client", Axis("time (µs)"),
                   Axis("requests answered within this time (%)", logarithmic=False), series)
    return Plot(f"Request to reply, {int(figure_at(report, 'options/size_bytes'))} B, one at a time, "
                f"{ranks_of(report)}", panels=[shares])


PLOTS = {"host": host_plot, "registered": registered_plot, "rate": rate_plot, "latency": latency_plot}


def is_of_mock(report: dict) -> bool:
    return any(one["pci"].startswith("mock:") for one in report.get("devices", []))


def counted(texts: typing.Iterable[str]) -> str:
    return ", ".join(f"{count} × {text}" for text, count in sorted(collections.Counter(texts).items()))


def machine_line(report: dict) -> str:
    machine = report["machine"]
    return f"{machine['host']}, {machine['system']}, {machine['cores']} cores"


def circumstances(report: dict) -> list[str]:
    """Returns how `report` was measured, as paragraphs: versions, devices and settings, method, machine."""
    versions = [f"troupe {report['troupe']}, CAF {report['caf']}"]
    versions += [f"{part}: {text}" for part, text in report.get("versions", {}).items()]
    devices = "Devices: " + (counted(one["name"] for one in report.get("devices", [])) or "none")
    if report.get("links"):
        devices += "; links: " + counted(one["link"] for one in report["links"])
    if "settings" in report:
        changed = [f"{name} = {report['settings'][name]}" for name in report.get("changed_settings", [])]
        devices += ". Settings: " + (", ".join(changed) or "the defaults")
    heading, first = report["heading"], 1  # The heading lists the world and its devices first, then the method.
    for i, line in enumerate(heading):
        if line.startswith((" ", "device ", "world ")):
            first = i + 1
    return ["; ".join(versions), devices, *heading[max(first, 1):], f"{machine_line(report)}, {report['date']}"]


def plot_of(report: dict) -> Plot | None:
    """Returns the plot of `report`, or None if it has no axis to plot."""
    rows = report.get("rows")
    if not rows:
        return None
    if report["bench"] in PLOTS:
        plot = PLOTS[report["bench"]](report)
    elif "out_of_place" in rows[0]:
        plot = collective_plot(report)
    else:
        return None
    if is_of_mock(report):
        plot.title += " (of the mock)"
    plot.small_print += circumstances(report)
    return plot


def bytes_text(value: float) -> str:
    return bytes_label(value) if value > 0 and math.log2(value).is_integer() else f"{value:.0f} B"


FORMS: dict[str, typing.Callable[[float], str]] = {
    "text": lambda value: f"{value:g}", "bytes": bytes_text, "whole": lambda value: f"{value:.0f}",
    "two": lambda value: f"{value:.2f}", "three": lambda value: f"{value:.3f}",
    "percent": lambda value: f"{100 * value:.1f} %"}

Columns = typing.List[typing.Tuple[str, str, str]]  # title, path in a row, form

COLLECTIVE: Columns = [
    ("size", "size_bytes", "bytes"), ("type", "type", "text"), ("redop", "redop", "text"),
    ("time (µs)", "out_of_place/troupe/time_us", "two"), ("busbw (GB/s)", "out_of_place/troupe/busbw_gb_per_s", "two"),
    ("raw time (µs)", "out_of_place/raw/time_us", "two"),
    ("raw busbw (GB/s)", "out_of_place/raw/busbw_gb_per_s", "two"), ("of raw", "out_of_place/of_raw/p50", "percent"),
    ("wrong", "out_of_place/wrong", "whole"), ("in place (µs)", "in_place/troupe/time_us", "two"),
    ("busbw (GB/s)", "in_place/troupe/busbw_gb_per_s", "two"), ("raw (µs)", "in_place/raw/time_us", "two"),
    ("of raw", "in_place/of_raw/p50", "percent"), ("wrong", "in_place/wrong", "whole")]
STRATEGIES: Columns = [
    ("completion", "strategy", "text"), ("asked by", "asker", "text"), ("p50 (µs)", "time/p50", "two"),
    ("p99 (µs)", "time/p99", "two"), ("added to raw (µs)", "added/p50", "two")]
COLUMNS: dict[str, Columns] = {
    "latency": [
        ("asked by", "way", "text"), ("p50 (µs)", "time/p50", "two"), ("p90 (µs)", "time/p90", "two"),
        ("p99 (µs)", "time/p99", "two"), ("p99.9 (µs)", "time/p99_9", "two"), ("max (µs)", "time/max", "two"),
        ("added to raw's p50 (µs)", "added/p50", "two"), ("first ask to last reply (µs)", "span/p50", "two")],
    "rate": [
        ("fusion", "fusion", "text"), ("in flight", "depth", "whole"), ("operations /s", "operations_per_s/p50", "whole"),
        ("raw /s", "raw_per_s/p50", "whole"), ("of raw", "of_raw/p50", "three")],
    "clients": [
        ("fusion", "fusion", "text"), ("burst p50 (µs)", "burst_us/p50", "two"),
        ("burst p99 (µs)", "burst_us/p99", "two"), ("raw, one group (µs)", "raw/group_us/p50", "two"),
        ("raw, separate (µs)", "raw/separate_us/p50", "two"), ("operations /s", "operations_per_s/p50", "whole"),
        ("rank requests /s", "rank_requests_per_s", "whole"), ("reply p50 (µs)", "reply_us/p50", "two"),
        ("reply p99 (µs)", "reply_us/p99", "two")],
    "plan": [
        ("workload", "workload", "text"), ("size", "size_bytes", "bytes"), ("plan p50 (µs)", "plan/p50", "two"),
        ("plan p99 (µs)", "plan/p99", "two"), ("raw graph p50 (µs)", "raw graph/p50", "two"),
        ("eager p50 (µs)", "eager/p50", "two"), ("plan / raw", "plan/of_raw/p50", "three"),
        ("plan / eager", "plan/of_eager/p50", "three"), ("wrong", "wrong", "whole")],
    "host": [
        ("memory", "memory", "text"), ("size", "size_bytes", "bytes"), ("copies (µs)", "copies/p50", "two"),
        ("collective (µs)", "collective/p50", "two"), ("staged (µs)", "staged/p50", "two"),
        ("of floor", "staged/of_floor/p50", "two"), ("wrong", "wrong", "whole")],
    "registered": [
        ("size", "bytes", "bytes"), ("raw alone (µs)", "raw/alone/p50", "two"),
        ("ordinary alone (µs)", "ordinary/alone/p50", "two"), ("registered alone (µs)", "registered/alone/p50", "two"),
        ("ratio", "alone_ratio", "three"), ("raw, each of many (µs)", "raw/rate/p50", "two"),
        ("ordinary, each (µs)", "ordinary/rate/p50", "two"), ("registered, each (µs)", "registered/rate/p50", "two"),
        ("ratio", "rate_ratio", "three")]}


@dataclass
class Table:
    caption: str
    titles: list[str]
    rows: list[list[str]]


def table(caption: str, rows: list, columns: Columns) -> Table:
    """Returns a table without the columns that have no figure in any row."""
    def cell(row: dict, path: str, form: str) -> str:
        value = at(row, path)
        if isinstance(value, str):
            return value
        return FORMS[form](value) if isinstance(value, (int, float)) else ""

    cells = {i: [cell(row, path, form) for row in rows] for i, (_, path, form) in enumerate(columns)}
    left = [i for i, texts in cells.items() if any(texts)]
    return Table(caption, [columns[i][0] for i in left], [list(row) for row in zip(*(cells[i] for i in left))])


def tables_of(report: dict) -> list[Table]:
    """Returns all tables of `report`, or none if its bench is unknown."""
    rows, columns = report.get("rows", []), COLUMNS.get(report["bench"])
    if columns:
        raw = [{"way": "raw", "time": report["raw"]}] if "raw" in report else []
        return [table("Medians of blocks", raw + rows, columns)] if rows else []
    tables = []
    if rows and "out_of_place" in rows[0]:
        tables.append(table("Bandwidth and time by size, medians of blocks", rows, COLLECTIVE))
    if "latency" in report:
        latency = report["latency"]
        raw = [{"strategy": "raw", "time": latency["raw"]}] if "raw" in latency else []
        tables.append(table(f"One request of {latency['size_bytes']} B at a time, request to reply",
                            raw + latency["rows"], STRATEGIES))
    return tables


# The page of `troupe bench suite`: self-contained, without network and scripts.

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 1180px; margin: 2em auto; padding: 0 1.5em; }
h1 { font-size: 1.9em; margin-bottom: 0; }
h2 { margin-top: 2.4em; border-bottom: 1px solid #ddd; padding-bottom: .2em; }
p.quiet, .quiet { color: #666; font-size: .92em; margin: .2em 0; }
.note { background: #fff4d6; border-left: 4px solid #e0a800; padding: .6em 1em; }
.failed { background: #fde8e6; border-left: 4px solid #c0392b; padding: .6em 1em; }
table { border-collapse: collapse; margin: .8em 0; font-variant-numeric: tabular-nums; font-size: .92em; }
caption { text-align: left; color: #666; padding: .2em 0; }
td { white-space: nowrap; }
th, td { padding: .2em .7em; text-align: right; border-bottom: 1px solid #eee; }
th { border-bottom: 1px solid #bbb; vertical-align: bottom; font-weight: 600; }
th.name, td.name { text-align: left; }
tbody tr:nth-child(even) { background: #f7f8fa; }
pre { background: #f5f6f8; padding: .7em 1em; overflow-x: auto; font-size: .88em; }
.wide { overflow-x: auto; }
figure { margin: 1em 0; } figure svg { width: 100%; height: auto; max-height: 42em; }
details { margin: .6em 0; } summary { cursor: pointer; color: #0a58a8; }
a { color: #0a58a8; }
@media print { details { display: none; } section { break-inside: avoid-page; } }
"""


@dataclass
class Result:
    """The outcome of one bench of a suite."""

    name: str
    what: str
    command: str  # the shell command that repeats the bench
    seconds: float = 0
    failure: str = ""  # why it did not run or what failed
    printed: str = ""
    report: dict | None = None
    drawing: str = ""  # SVG


def cell_tag(tag: str, text: str, is_name: bool) -> str:
    name = ' class="name"' if is_name else ""
    return f"<{tag}{name}>{html.escape(text)}</{tag}>"


def table_html(one: Table) -> str:
    names = [any(cell and cell[0] not in "-0123456789" for cell in column) for column in zip(*one.rows)]
    heads = "".join(cell_tag("th", title, is_name) for title, is_name in zip(one.titles, names))
    rows = "".join("<tr>" + "".join(cell_tag("td", cell, is_name) for cell, is_name in zip(row, names)) + "</tr>\n"
                   for row in one.rows)
    return (f'<div class="wide"><table><caption>{html.escape(one.caption)}</caption>\n<thead><tr>{heads}</tr></thead>\n'
            f"<tbody>\n{rows}</tbody></table></div>\n")


def inlined_svg(svg: str, suffix: str) -> str:
    """Returns `svg` for a page with other drawings: without prologue, and with `suffix` appended to its ids."""
    return re.sub(r"""(\bid=["']|href=["']#|url\(['"]?#)([^"')]+)""", rf"\1\2-{suffix}", svg[svg.find("<svg"):])


def pairs_html(pairs: typing.Iterable[tuple[str, str]]) -> str:
    rows = "".join(f"<tr>{cell_tag('td', name, True)}{cell_tag('td', text, True)}</tr>\n" for name, text in pairs)
    return f"<table><tbody>\n{rows}</tbody></table>"


def circumstances_html(report: dict) -> str:
    pairs = [("machine", machine_line(report)), ("date", report["date"]), ("troupe", report["troupe"]),
             ("CAF", report["caf"]), *report.get("versions", {}).items()]
    for one in report.get("devices", []):
        rank = f"rank {one['rank']}, " if "rank" in one else ""
        pairs.append((f"{rank}device {one['device']}", f"{one['name']}, {one['pci']}"))
    pairs += [(f"link {one['from']} to {one['to']}", one["link"]) for one in report.get("links", [])]
    text = f'<section id="circumstances"><h2>Measured on</h2>\n{pairs_html(pairs)}\n'
    if "settings" in report:
        text += ('<details id="settings"><summary>Every setting</summary>\n'
                 f"{pairs_html(report['settings'].items())}</details>")
    return text + "</section>\n"


def section_html(one: Result) -> str:
    name = html.escape(one.name)
    text = f'<section id="{name}"><h2>{name}</h2>\n<p>{html.escape(one.what)}</p>\n'
    if one.failure:
        text += f'<p class="failed">{"Failed" if one.report else "Did not run"}: {html.escape(one.failure)}</p>\n'
    if one.drawing:
        text += f"<figure>{inlined_svg(one.drawing, one.name)}</figure>\n"
    if one.report:
        text += "".join(map(table_html, tables_of(one.report)))
        text += f'<p class="quiet">All figures, with those of each block: <a href="{name}.json">{name}.json</a></p>\n'
    text += f'<p class="quiet">To repeat it:</p>\n<pre>{html.escape(one.command)}</pre>\n'
    if one.printed:
        text += ("<details><summary>Printed output, with the method</summary><pre>"
                 f"{html.escape(one.printed)}</pre></details>\n")
    return text + "</section>\n"


def summary_html(results: list[Result]) -> str:
    rows = ""
    for one in results:
        status = "ran" if not one.failure else "failed" if one.report else "did not run"
        name = html.escape(one.name)
        rows += (f'<tr><td class="name"><a href="#{name}">{name}</a></td>{cell_tag("td", one.what, True)}'
                 f'{cell_tag("td", status, True)}{cell_tag("td", f"{one.seconds:.1f}", False)}</tr>\n')
    return ('<section id="summary"><h2>Summary</h2>\n<table><thead><tr><th class="name">bench</th>'
            '<th class="name">what</th><th class="name">status</th><th>took (s)</th></tr></thead>\n'
            f"<tbody>\n{rows}</tbody></table></section>\n")


def html_page(results: list[Result], command: str, note: str = "") -> str:
    """Returns the page. `command` is the suite's command line; `note` is shown at the top."""
    reports = [one.report for one in results if one.report]
    # Prefer the first report of a world, which has the most information, to one of a single device.
    first = next((one for one in reports if "settings" in one), reports[0] if reports else None)
    text = ('<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<meta name="viewport" '
            'content="width=device-width, initial-scale=1">\n<title>troupe bench suite</title>\n'
            f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>troupe bench suite</h1>\n")
    if first:
        about = html.escape(f"troupe {first['troupe']} on {first['machine']['host']}, {first['date']}")
        text += f'<p class="quiet">{about}</p>\n'
        if is_of_mock(first):
            text += ('<p class="note">These are figures of the mock: simulated devices whose work is done by '
                     "this machine's CPU. They show that everything works and say nothing about GPUs.</p>\n")
    if note:
        text += f'<p class="note">{html.escape(note)}</p>\n'
    text += f"<pre>{html.escape(command)}</pre>\n" + summary_html(results)
    if first:
        text += circumstances_html(first)
    return text + "".join(map(section_html, results)) + "</body>\n</html>\n"


def load(path: pathlib.Path | str) -> dict:
    try:
        text = sys.stdin.read() if path == "-" else pathlib.Path(path).read_text(encoding="utf-8")
        return json.loads(text)
    except (OSError, ValueError) as why:
        raise Problem(f"{path} is not a readable JSON report: {why}") from None


def refuses_other_json(run: typing.Callable[[list[str]], int]) -> typing.Callable[[list[str]], int]:
    """Converts the errors of reading a malformed report to a Problem."""
    def checked(words: list[str]) -> int:
        try:
            return run(words)
        except (KeyError, TypeError, IndexError, AttributeError) as why:
            raise Problem(f"this is not a report of a bench: {type(why).__name__}: {why}") from None

    return checked


@refuses_other_json
def run_plot(words: list[str]) -> int:
    parser = argparse.ArgumentParser("troupe plot", description="draw the JSON report of a bench")
    parser.add_argument("report", metavar="REPORT.json", nargs="?",
                        help="file written by a bench's --json; - is standard input")
    parser.add_argument("file", metavar="FILE.svg", nargs="?", help="- is standard output")
    parser.add_argument("--check", action="store_true", help="only check whether plots can be drawn here")
    options = parser.parse_args(words)
    if not options.check and not options.file:
        parser.error("REPORT.json and FILE.svg are needed")
    need_matplotlib()
    if options.check:
        return 0
    report = load(options.report)
    plot = plot_of(report)
    if plot is None:
        raise Problem(f"bench {report['bench']} has measured nothing that can be plotted")
    save(options.file, drawn(plot))
    return 0


@refuses_other_json
def run_report(words: list[str]) -> int:
    parser = argparse.ArgumentParser("troupe report", description="write FOLDER/report.html of a suite of benches")
    parser.add_argument("folder", metavar="FOLDER", type=pathlib.Path, help="as named by troupe bench suite --out")
    folder = parser.parse_args(words).folder
    suite = load(folder / "suite.json")
    note = ""
    try:
        need_matplotlib()
    except Problem as why:
        note = f"The page has no plots: {why}"
    results = [Result(**one) for one in suite["benches"]]
    all_well = True
    for one in results:
        path = folder / f"{one.name}.json"
        one.report = load(path) if path.exists() else None
        plot = plot_of(one.report) if one.report and not note else None
        try:
            one.drawing = drawn(plot) if plot else ""
        except Problem as why:
            one.failure, all_well = one.failure or str(why), False
    save(folder / "report.html", html_page(results, suite["command"], note))
    print(folder / "report.html")
    if note:
        print(f"troupe report: {note}", file=sys.stderr)
    return 0 if all_well else 1


# `troupe top`: parses Prometheus' text format 0.0.4 and shows the changes between two scrapes.

NAME, LABEL = re.compile(r"[a-zA-Z0-9_:]+"), re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass
class Sample:
    name: str
    labels: dict[str, str]
    value: float


def parse_prometheus_text(text: str) -> list[Sample]:
    """Returns the samples in their order, without comments and timestamps. Raises Problem, which names the line."""
    return [parse_sample(line.strip(), number) for number, line in enumerate(text.split("\n"), 1)
            if line.strip() and not line.lstrip().startswith("#")]


def parse_sample(rest: str, line: int) -> Sample:
    def fail(why: str) -> typing.NoReturn:
        raise Problem(f"line {line} of the metrics: {why}")

    def take_name(what: str) -> str:
        nonlocal rest
        found = NAME.match(rest)
        if not found:
            fail(f"{what} is missing before '{rest}'")
        rest = rest[found.end():].lstrip()
        return found[0]

    def number(text: str) -> float:
        try:
            if "_" in text:  # which Python allows in numbers
                raise ValueError
            return float(text)
        except ValueError:
            fail(f"'{text}' is not a number")

    sample = Sample(take_name("a metric's name"), {}, 0)
    if rest.startswith("{"):
        rest = rest[1:].lstrip()
        while not rest.startswith("}"):
            label = take_name("a label's name")
            if not rest.startswith("="):
                fail(f"the label {label} has no '='")
            rest = rest[1:].lstrip()
            if not rest.startswith('"'):
                fail(f"the label {label} has no value in quotes")
            value = LABEL.match(rest)
            if not value:
                fail("a label's value has no end")
            sample.labels[label] = re.sub(r"\\(.)", lambda one: "\n" if one[1] == "n" else one[1], value[1])
            rest = rest[value.end():].lstrip()
            if rest.startswith(","):
                rest = rest[1:].lstrip()
            elif not rest.startswith("}"):
                fail("the labels have no end")
        rest = rest[1:]
    words = rest.split(None, 2) or [""]
    sample.value = number(words[0])
    if len(words) > 1:
        number(words[1])  # a timestamp
    if len(words) > 2:
        fail(f"there is unexpected text behind the value: '{words[2]}'")
    return sample


class Scrape:
    """The samples of an endpoint at one time of the monotonic clock."""

    def __init__(self, at_seconds: float, samples: list[Sample]):
        self.at_seconds = at_seconds
        self.by_name: dict[str, list[Sample]] = {}
        for one in samples:
            self.by_name.setdefault(one.name, []).append(one)

    def passing(self, name: str, **of: str) -> list[Sample]:
        return [one for one in self.by_name.get(name, []) if of.items() <= one.labels.items()]

    def sum(self, name: str, **of: str) -> float:
        return sum(one.value for one in self.passing(name, **of))

    def values(self, name: str, label: str, **of: str) -> list[str]:
        """Returns the distinct values of `label` among the selected samples. Numbers are sorted by value."""
        return sorted({one.labels.get(label, "") for one in self.passing(name, **of)},
                      key=lambda text: (len(text) if text.isdigit() else 0, text))

    def buckets(self, name: str, **of: str) -> dict[float, float]:
        """Returns how many observations of a histogram were at most each bound, ascending."""
        counts: dict[float, float] = {}
        for one in self.passing(f"{name}_bucket", **of):
            bound = float(one.labels["le"])
            counts[bound] = counts.get(bound, 0) + one.value
        return dict(sorted(counts.items()))


def histogram_quantile(quantile: float, up_to: dict[float, float]) -> float:
    """Returns the value below which the share `quantile` lies, as Prometheus does; NaN without observations."""
    every = max(up_to.values(), default=0)
    lower = below = 0.0
    for bound, count in up_to.items() if every > 0 else ():
        if count >= quantile * every and count > below:
            return lower if math.isinf(bound) else (
                lower + (bound - lower) * max(quantile * every - below, 0) / (count - below))
        lower, below = bound, count
    return lower if every > 0 else math.nan


@dataclass
class Interval:
    """The changes between two scrapes. A counter that has become smaller (after a restart) counts as begun at 0."""

    before: Scrape | None
    now: Scrape

    @property
    def seconds(self) -> float:
        return self.now.at_seconds - self.before.at_seconds if self.before else 0

    def growth(self, name: str, **of: str) -> float:
        if not self.before:
            return math.nan
        now = self.now.sum(name, **of)
        grown = now - self.before.sum(name, **of)
        return grown if grown >= 0 else now

    def rate(self, name: str, **of: str) -> float:
        return self.growth(name, **of) / self.seconds if self.seconds > 0 else math.nan

    def quantile(self, which: float, name: str, **of: str) -> float:
        if not self.before:
            return math.nan
        now, before = self.now.buckets(name, **of), self.before.buckets(name, **of)
        if max(before.values(), default=0) > max(now.values(), default=0):
            before = {}
        return histogram_quantile(which, {bound: count - before.get(bound, 0) for bound, count in now.items()})


# Functions that format figures in a few characters: "12.3k", "1.20G", "340us". An unknown figure is "-".


def three_digits(value: float, unit: str = "") -> str:
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}{unit}"


def short(value: float, units: tuple[tuple[float, str], ...]) -> str:
    if not math.isfinite(value):
        return "-"
    return "0" if value == 0 else three_digits(*next(
        (value / unit, name) for unit, name in units if value < 999.5 * unit or unit == units[-1][0]))


def short_number(value: float) -> str:
    if value < 999.5 and value == value // 1:
        return f"{value:.0f}"
    return short(value, ((1, ""), (1e3, "k"), (1e6, "M"), (1e9, "G")))


def short_bytes(value: float) -> str:
    return short(value, ((1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T")))


def short_time(seconds: float) -> str:
    if math.isnan(seconds):
        return "-"
    for most, unit, name in ((999.5e-6, 1e-6, "us"), (0.9995, 1e-3, "ms"), (99.95, 1, "s")):
        if seconds < most:
            return three_digits(seconds / unit, name)
    whole = int(seconds)
    return f"{whole // 60}m{whole % 60:02}s" if whole < 3600 else f"{whole // 3600}h{whole // 60 % 60:02}m"


def per_second(rate: float) -> str:
    return short_number(rate) + "/s"


def ratio(of: float, by: float) -> float:
    return of / by if by > 0 else math.nan


def in_percent(share: float) -> str:
    return "-" if math.isnan(share) else short_number(round(1000 * min(max(share, 0), 1)) / 10) + "%"


def curve(rates: list[float]) -> str:
    """Draws each rate as a bar, relative to the highest."""
    highest = max(rates, default=0)
    return "".join("▁▂▃▄▅▆▇█"[int(min(max(one / highest, 0), 1) * 7) if highest > 0 else 0] for one in rates)


def age(now: Scrape, since: str, **of: str) -> str:
    return short_time(max(0, time.time() - now.sum(since, **of))) if now.passing(since, **of) else "-"


def joined_counts(now: Scrape, metric: str, label: str) -> str:
    return ", ".join(f"{value} {short_number(now.sum(metric, **{label: value}))}" for value in now.values(metric, label))


GOOD, WARNING, BAD, ACCENT = "bold green", "bold yellow", "bold red", "cyan"
Piece = typing.Union[str, typing.Tuple[str, str]]  # a text, or a text and its style
Line = typing.List[Piece]

# Titles and widths of the tables' columns; the first is aligned left.
OPERATION_COLUMNS = (("OPERATION", 17), ("SIZE<=", 6), ("REQ/S", 9), ("BYTES/S", 9), ("P50", 9), ("P99", 9),
                     ("QUEUED", 9), ("REQUESTS", 10))
RANK_COLUMNS = (("RANK", 6), ("LEAD", 7), ("QUEUE", 7), ("REQ/S", 10), ("LAUNCHES/S", 12), ("FUSION", 8),
                ("BYTES/S", 10), ("FAILED", 9), ("P99", 9))


class TopPage:
    """Formats the lines of the screen."""

    def __init__(self, seen: Interval, url: str):
        self.seen, self.now, self.url = seen, seen.now, url
        self.worlds = self.now.values("troupe_world_epoch", "world")
        self.several = (("WORLD", 6),) if len(self.worlds) > 1 else ()

    def head(self, rates: list[float]) -> list[Line]:
        title: Line = [("troupe top", "bold"), f"  {self.url}  up {age(self.now, 'troupe_start_time_seconds')}"]
        for info in self.now.passing("troupe_build_info")[:1]:
            parts = [info.labels.get(name, "") for name in ("backend", "driver", "profile")]
            title.append(("  {}, {}, profile {}".format(*parts), "dim"))
        lines = [title, *map(self.world_line, self.worlds)]
        if not self.worlds:
            lines.append([("no world has been formed", WARNING)])
        lines.append(self.total_line(rates))
        if self.now.passing("troupe_poller_seconds_total"):
            lines.append(self.poller_line())
        return lines + self.fault_lines()

    def world_line(self, world: str) -> Line:
        def number(metric: str) -> str:
            return short_number(self.now.sum(metric, world=world))

        phases = [one.labels["phase"] for one in self.now.passing("troupe_world_phase", world=world) if one.value == 1]
        phase = phases[-1] if phases else "-"
        style = GOOD if phase == "ready" else BAD if phase == "failed" else WARNING
        line: Line = [f"world {world}  ", (phase, style), f"  epoch {number('troupe_world_epoch')}",
                      f"  {number('troupe_world_ranks')} ranks ({number('troupe_world_local_ranks')} here)"]
        if self.now.sum("troupe_world_lost_ranks", world=world) > 0:
            line.append((f"  lost {number('troupe_world_lost_ranks')}", BAD))
        line.append(f"  pending {number('troupe_world_pending_requests')}")
        if self.now.passing("troupe_world_pending_limit", world=world):
            line.append(f"/{number('troupe_world_pending_limit')}")
        if self.now.passing("troupe_world_lead", world=world):
            line.append(f"  lead {number('troupe_world_lead')}")
        # The uptime comes last, because a narrow screen cuts the end off.
        return [*line, f"  up {age(self.now, 'troupe_world_start_time_seconds', world=world)}"]

    def fusion(self, **of: str) -> str:
        return short_number(ratio(self.seen.growth("troupe_launched_requests_total", **of),
                                  self.seen.growth("troupe_launches_total", **of)))

    def total_line(self, rates: list[float]) -> Line:
        return ["requests ", (per_second(request_rate(self.seen)), "bold"), "  ", (curve(rates), ACCENT),
                "  " if rates else "", f"{short_bytes(self.seen.rate('troupe_request_bytes_total'))}B/s  ",
                f"launches {per_second(self.seen.rate('troupe_launches_total'))}  fusion {self.fusion()}"]

    def poller_line(self) -> Line:
        busy, parked = (self.seen.rate("troupe_poller_seconds_total", state=state) for state in ("busy", "parked"))
        full = 0 if math.isnan(busy) else int(min(max(busy, 0), 1) * 20 + 0.5)
        return ["poller   busy ", (in_percent(busy), "bold"), "  ",
                ("█" * full + "░" * (20 - full), WARNING if busy > 0.8 else ACCENT),
                f"  parked {in_percent(parked)}  looking {in_percent(1 - busy - parked)}"]

    def fault_lines(self) -> list[Line]:
        lines: list[Line] = []
        if faults := joined_counts(self.now, "troupe_world_faults_total", "code"):
            line: Line = ["faults   ", (faults, BAD)]
            times = "troupe_world_recovery_seconds"
            for rung in self.now.values(f"{times}_count", "rung", result="ready"):
                count = self.now.sum(f"{times}_count", rung=rung, result="ready")
                mean = ratio(self.now.sum(f"{times}_sum", rung=rung, result="ready"), count)
                line.append(f"  back by {rung} {short_number(count)}x, in {short_time(mean)}")
            lines.append(line)
        if failures := joined_counts(self.now, "troupe_request_failures_total", "code"):
            rate = per_second(self.seen.rate("troupe_request_failures_total"))
            lines.append(["failed   ", (failures, WARNING), f"  now {rate}"])
        return lines

    def operations(self) -> list[Line]:
        """Returns a line for each operation and size class, sorted by descending request rate."""
        kinds = {(one.labels.get("world", ""), one.labels.get("operation", ""), one.labels.get("size", "")): 0
                 for world in self.worlds for one in self.now.passing("troupe_requests_total", world=world)}
        found = []
        for world, kind, size in sorted(kinds):
            of = {"world": world, "operation": kind, "size": size}
            rate = self.seen.rate("troupe_requests_total", **of)
            queued = ratio(self.seen.growth("troupe_request_queue_seconds_total", **of),
                           self.seen.growth("troupe_requests_total", **of))
            cells: Line = [(kind, "bold"), size, short_number(rate),
                           short_bytes(self.seen.rate("troupe_request_bytes_total", **of)),
                           *(short_time(self.seen.quantile(which, "troupe_request_latency_seconds", **of))
                             for which in (0.5, 0.99)),
                           short_time(queued), short_number(self.now.sum("troupe_requests_total", **of))]
            found.append((0 if math.isnan(rate) else rate, self.row(OPERATION_COLUMNS, world, cells)))
        return [line for _, line in sorted(found, key=lambda one: -one[0])]

    def ranks(self) -> list[Line]:
        return [self.rank_line(world, rank) for world in self.worlds
                for rank in self.now.values("troupe_launches_total", "rank", world=world)]

    def rank_line(self, world: str, rank: str) -> Line:
        of = {"world": world, "rank": rank}
        failed = self.now.sum("troupe_request_failures_total", **of)
        lead = self.now.sum("troupe_rank_lead", **of) if self.now.passing("troupe_rank_lead", **of) else math.nan
        return self.row(RANK_COLUMNS, world, [
            (rank, "bold"), short_number(lead), short_number(self.now.sum("troupe_rank_queue", **of)),
            short_number(self.seen.rate("troupe_requests_total", **of)),
            short_number(self.seen.rate("troupe_launches_total", **of)), self.fusion(**of),
            short_bytes(self.seen.rate("troupe_request_bytes_total", **of)),
            (short_number(failed), WARNING if failed > 0 else ""),
            short_time(self.seen.quantile(0.99, "troupe_request_latency_seconds", **of))])

    def row(self, columns: tuple[tuple[str, int], ...], world: str, cells: Line) -> Line:
        """Aligns the cells. A cell longer than its column is not cut but followed by one blank."""
        if self.several:
            columns, cells = self.several + columns, [world, *cells]
        names = 2 if self.several else 1
        line: Line = []
        for i, ((_, width), cell) in enumerate(zip(columns, cells)):
            text, style = cell if isinstance(cell, tuple) else (cell, "")
            gap = " " * (width - len(text) if len(text) < width else 1)
            line += [(text, style), gap] if i < names else [gap, (text, style)]
        return line

    def heading(self, columns: tuple[tuple[str, int], ...]) -> Line:
        plain = self.row(columns, "WORLD", [title for title, _ in columns])
        return [("".join(one if isinstance(one, str) else one[0] for one in plain), "reverse")]


def request_rate(seen: Interval) -> float:
    return seen.rate("troupe_requests_total")


def table_lines(heading: Line, rows: list[Line], lines: int, what: str) -> list[Line]:
    """Returns a heading and as many rows as fit into `lines`. The last line counts the rows that are not shown."""
    if not rows or lines < 2:
        return []
    if len(rows) + 1 <= lines:
        return [heading, *rows]
    shown = lines - 2
    return [heading, *rows[:shown], [(f"... and {len(rows) - shown} more {what}", "dim")]]


def draw_top(seen: Interval, rates: list[float], url: str, columns: int = 80, lines: int = 24) -> list[typing.Any]:
    """Returns at most `lines` rich texts of at most `columns` characters. `rates` has request rates, latest last."""
    text = need("rich.text", "styles the terminal").Text
    page = TopPage(seen, url)
    every = page.head(rates)
    operations, ranks = page.operations(), page.ranks()
    room = lines - min(lines, len(every) + 2)  # An empty line precedes each table.
    # Ranks get the lines that operations leave, but at least half if both are many.
    for_ranks = min(len(ranks) + 1, max(room // 2, room - min(room, len(operations) + 1)))
    every += [[], *table_lines(page.heading(OPERATION_COLUMNS), operations, room - for_ranks, "operations")]
    every += [[], *table_lines(page.heading(RANK_COLUMNS), ranks, for_ranks, "ranks")]
    drawn_lines = []
    for line in every[:lines]:
        one = text.assemble(*line, no_wrap=True)
        one.truncate(columns)
        drawn_lines.append(one)
    return drawn_lines


MOST_SECONDS, MOST_BYTES = 5, 64 << 20  # limits of one answer, which usually has about 100 KiB


def parse_http_address(url: str) -> tuple[str, int, str]:
    """Returns host, port and path of "http://HOST:PORT/PATH", "HOST:PORT" or "http://HOST"."""
    found = re.fullmatch(r"(?:http://)?(?:\[([^\[\]/]+)\]|([^\[\]:/]+))(?::([0-9]{1,5}))?(/.*)?", url)
    if not found:
        raise Problem(f"'{url}' is not an address of metrics: write http://HOST:PORT, e.g. http://127.0.0.1:9464 "
                      "(https is not supported)")
    return found[1] or found[2], int(found[3] or 80), "/metrics" if found[4] in (None, "/") else found[4]


def http_get(host: str, port: int, path: str) -> str:
    """Returns the document, without proxies, redirections or TLS."""
    where = f"http://{f'[{host}]' if ':' in host else host}:{port}{path}"
    until = time.monotonic() + MOST_SECONDS
    connection = http.client.HTTPConnection(host, port, timeout=MOST_SECONDS)
    try:
        connection.request("GET", path, headers={"Accept": "text/plain", "Connection": "close"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise Problem(f"{where}: the answer is '{answer.status} {answer.reason}'")
        document = bytearray()
        while piece := answer.read1(1 << 16):
            document += piece
            if len(document) > MOST_BYTES:
                raise Problem(f"{where}: the answer is too long for a metrics endpoint")
            if time.monotonic() > until:
                raise TimeoutError
        return document.decode(errors="replace")
    except TimeoutError:
        raise Problem(f"{where}: no answer within {MOST_SECONDS} s") from None
    except (socket.gaierror, UnicodeError, OverflowError) as why:
        raise Problem(f"{where}: unknown host or port: {why}") from None
    except http.client.HTTPException as why:
        raise Problem(f"{where}: the answer is not HTTP: {type(why).__name__}") from None
    except OSError as why:
        at_all = "" if isinstance(why, ConnectionResetError) else (
            "; no process serves metrics there. Metrics are off by default: run the program with "
            f"TROUPE_METRICS_ADDRESS={host}:{port}, or set metrics.address in its settings; --url names another address")
        raise Problem(f"{where}: {why.strerror or why}{at_all}") from None
    finally:
        connection.close()


class TopReader:
    """Scrapes an endpoint repeatedly."""

    def __init__(self, url: str):
        self.address, self.url = parse_http_address(url), url
        self.seen: Interval | None = None
        self.rates: collections.deque[float] = collections.deque(maxlen=24)

    def read(self) -> None:
        samples = parse_prometheus_text(http_get(*self.address))
        now = Scrape(time.monotonic(), samples)
        self.seen = Interval(self.seen.now if self.seen else None, now)
        if self.seen.before:
            self.rates.append(request_rate(self.seen))

    def draw(self, columns: int, lines: int) -> list[typing.Any]:
        assert self.seen
        return draw_top(self.seen, list(self.rates) if len(self.rates) > 1 else [], self.url, columns, lines)


def wait_for_end(seconds: float) -> bool:
    """Waits for `seconds` or until the user presses q. Returns whether the user wants to end."""
    if not sys.stdin.isatty():
        time.sleep(seconds)
        return False
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([sys.stdin], [], [], left)[0] and os.read(sys.stdin.fileno(), 1) in (b"q", b""):
            return True
    return False


def watch(reader: TopReader, interval: float) -> None:
    """Shows the changes on the whole screen until q or Ctrl-C."""
    group, live_of = need("rich.console", "styles the terminal").Group, need("rich.live", "styles the terminal").Live
    import termios
    import tty
    keys = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        if keys:
            tty.setcbreak(sys.stdin)
        with live_of(screen=True, auto_refresh=False) as live:
            while True:
                live.update(group(*reader.draw(*live.console.size)), refresh=True)
                if wait_for_end(interval):
                    return
                reader.read()
    except KeyboardInterrupt:
        pass
    finally:
        if keys:
            termios.tcsetattr(sys.stdin, termios.TCSANOW, keys)


def seconds_in_range(text: str) -> float:
    if not 0.05 <= float(text) <= 3600:
        raise argparse.ArgumentTypeError(f"'{text}' must be a number from 0.05 to 3600")
    return float(text)


def run_top(words: list[str]) -> int:
    parser = argparse.ArgumentParser("troupe top", description="watch a running process: its requests and its faults")
    parser.add_argument("--url", default="http://127.0.0.1:9464",
                        help="address of its metrics: http://HOST:PORT, where metrics.address is HOST:PORT")
    parser.add_argument("--interval", type=seconds_in_range, default=1, metavar="SECONDS",
                        help="time between two scrapes")
    parser.add_argument("--once", action="store_true", help="scrape twice, print the changes as plain text, and exit")
    options = parser.parse_args(words)
    reader = TopReader(options.url)
    reader.read()
    need("rich", "styles the terminal")
    if not options.once and sys.stdout.isatty():
        watch(reader, options.interval)
        return 0
    while True:
        time.sleep(options.interval)
        reader.read()
        for line in reader.draw(160, 1000):
            print(line.plain.rstrip())
        if options.once:
            return 0
        print(flush=True)


if __name__ == "__main__":
    sys.exit(start({"plot": run_plot, "report": run_report, "top": run_top}))
