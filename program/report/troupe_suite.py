#!/usr/bin/env -S python3 -B
"""troupe-suite: runs a set of benches one after another, each in its own process, and writes a page with their results.

    troupe bench suite --out FOLDER [--quick] [--only BENCH,...] [OPTIONS OF SETTINGS]
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shlex
import sys
import time
import typing

from troupe_report import is_of_mock, need_matplotlib, run_report
from troupe_tool import (Problem, Progress, Settings, checked_path, find_program, last_words,
                         parse_with_settings, run_to_end, save, start)


class Bench(typing.NamedTuple):
    what: str  # as in `troupe bench --help`
    # The arguments, by scale. Full is for GPUs: sizes up to 1 GiB and the bench's default number of blocks; it takes
    # minutes. Quick has sizes up to 16 MiB and fewer blocks. Tiny is a test that everything works.
    full: str
    quick: str
    tiny: str


BARRIER = Bench("request-to-reply time, by completion strategy and client", "--raw",
                "-n 10 --blocks 3 --latency-iters 100 --raw", "-n 3 -w 1 --blocks 2 --latency-iters 5 --raw")


def collective(largest: str = "256M") -> Bench:
    return Bench("bandwidth and time by size, and request-to-reply time", f"-b 8 -e {largest} -f 4 {BARRIER.full}",
                 f"-b 8 -e 16M -f 8 {BARRIER.quick}", f"-b 8 -e 256K -f 8 {BARRIER.tiny}")


# In the order in which they run. The first is the one that reports its devices soonest.
BENCHES = {
    "barrier": BARRIER,
    "all_reduce": collective("1G"),
    **{name: collective() for name in (
        "reduce", "broadcast", "all_gather", "all_gather_v", "reduce_scatter", "reduce_scatter_v", "all_to_all",
        "all_to_all_v", "gather", "scatter", "gather_v", "scatter_v", "sendrecv")},
    "latency": Bench("one small operation at a time, through every kind of client", "", "-n 500 --blocks 3",
                     "-n 5 --blocks 2"),
    "clients": Bench("many clients at once: a burst, their rate, and its CPU time", "",
                     "--requests 5000 -n 10 --blocks 3", "--clients 8 --requests 200 -n 2 --blocks 2"),
    "rate": Bench("small operations per second, by the number in flight", "", "-n 2000 --blocks 3",
                  "-n 16 --blocks 2 --depths 1,4,16"),
    "plan": Bench("a captured plan, compared with a graph captured by hand and eager requests", "", "-n 10 --blocks 3",
                  "-n 2 --blocks 2 --steps 4"),
    "registered": Bench("small requests on registered memory, compared with ordinary memory", "", "-n 50 --blocks 3",
                        "-n 4 --blocks 2 --depth 2"),
    "host": Bench("all_reduce of host memory, compared with its copies and its collective", "-b 1M -e 256M",
                  "-b 256K -e 16M --blocks 3", "-b 64K -e 1M -n 2 --blocks 2")}


def arguments_of(bench: Bench, quick: bool, mock: bool) -> list[str]:
    return (bench.full, bench.quick, bench.tiny)[quick + mock].split()


def measured(name: str, own: list[str], settings: Settings, folder: pathlib.Path) -> tuple[dict, dict | None]:
    """Runs a bench. Returns its member of suite.json, and its report if it wrote one."""
    path = folder / f"{name}.json"
    path.unlink(missing_ok=True)  # Otherwise the report of an earlier run could be mistaken for this one's.
    words = ["bench", name, *own, *settings.given, "--json", str(path)]
    began = time.monotonic()
    done = run_to_end([find_program("troupe-bench"), *words])
    seconds = time.monotonic() - began
    report = json.loads(path.read_bytes()) if path.exists() else None
    failure = "" if report else "the bench wrote no report"
    if done.returncode != 0:
        failure = "results were wrong" if report and report.get("wrong") else last_words(done)
    return {"name": name, "what": BENCHES[name].what, "command": shlex.join(["troupe", *words]), "seconds": seconds,
            "failure": failure, "printed": done.stdout}, report


def run(words: list[str]) -> int:
    parser = argparse.ArgumentParser("troupe bench suite", allow_abbrev=False,
                                     description="run a set of benches, and write a page with their results")
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="FOLDER",
                        help="folder for report.html and each bench's JSON report; created if it is missing")
    parser.add_argument("--only", action="append", default=[], metavar="BENCH",
                        help="run only these benches, comma-separated")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and blocks")
    options, settings = parse_with_settings(parser, words)
    folder, only = options.out, options.only
    for name in only:
        if name not in BENCHES:
            raise Problem(f"invalid_argument: the suite has no bench '{name}': choose some of {', '.join(BENCHES)}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as why:
        text = "a file has this name" if folder.exists() else why.strerror
        raise Problem(f"invalid_argument: cannot create the folder {folder}: {text}: name a writable folder with "
                      "--out") from None
    checked_path(folder / "report.html")
    try:
        need_matplotlib()
    except Problem as why:
        print(f"troupe: {why}; the page will have no plots", file=sys.stderr)

    wanted = [name for name in BENCHES if not only or name in only]
    mock = settings.values["backend"] == "mock"
    results = []
    with Progress(len(wanted)) as progress:
        for i, name in enumerate(wanted):
            progress.show(f"{i + 1}/{len(wanted)} {name}")
            result, report = measured(name, arguments_of(BENCHES[name], options.quick, mock), settings, folder)
            if i == 0 and report:  # If troupe selected the backend, the first report says whether it is the mock.
                mock = mock or is_of_mock(report)
            results.append(result)
            progress.done += 1
            progress.clear()
            outcome = f"FAILED: {result['failure']}" if result["failure"] else f"{name}.json"
            print(f"{name:<18} {result['seconds']:6.1f} s  {outcome}", flush=True)

    command = ["troupe", "bench", "suite", "--out", str(folder), *(["--quick"] if options.quick else [])]
    command += [word for name in only for word in ("--only", name)] + settings.given
    # What the page needs besides the benches' own reports.
    save(folder / "suite.json", json.dumps({"schema": 1, "command": shlex.join(command), "benches": results}, indent=2,
                                           ensure_ascii=False) + "\n")
    status = run_report([str(folder)])
    return 1 if any(one["failure"] for one in results) else status


if __name__ == "__main__":
    sys.exit(start({"suite": run}))
