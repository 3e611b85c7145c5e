#!/usr/bin/env -S python3 -B
"""troupe-trace: reads flight records of one or several processes (docs/operations/tracing.md).

    troupe trace FILE... [--events EVENTS.json] [--slowest N]

Prints where requests spent their time, and writes Chrome's trace events, which viewers (Perfetto) open. All times are
nanoseconds on the clock of the first record; unknown ones are None.
"""

from __future__ import annotations

import argparse
import json
import sys
import typing

from troupe_tool import Problem, Table, median, percentile, read_regular_file, save, start, whole_number

NEEDED = object()


def member(of: typing.Any, name: str, kind: type, default: typing.Any = NEEDED) -> typing.Any:
    """Returns a member of a JSON object. Errors: ValueError if it is missing or of another type."""
    if not isinstance(of, dict):
        raise ValueError(f"'{name}' is looked up in a value that is not an object")
    value = of.get(name, default)
    if value is NEEDED:
        raise ValueError(f"key '{name}' not found")
    if value is not default and type(value) is not kind:
        raise ValueError(f"the type of '{name}' must be {kind.__name__}, but is {type(value).__name__}")
    return printable(value) if isinstance(value, str) else value


def printable(text: str) -> str:
    """Returns the text with escapes in place of characters that could control the terminal on which it is printed."""
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text)


class Request:
    """One request at one rank."""

    TIMES = ("asked", "matched", "launch_began", "launched", "finished", "replied")
    __slots__ = (*TIMES, "began", "ticket", "epoch", "of_world", "what", "lane", "position", "needs_all_ranks", "bytes",
                 "site", "launch", "fused", "result")

    def __init__(self, document: typing.Any):
        self.ticket, self.epoch = member(document, "ticket", int), member(document, "epoch", int)
        self.of_world = member(document, "of_world", bool, False)
        self.what = member(document, "what", str, "a request whose beginning is no longer known")
        self.lane, self.position = member(document, "lane", str, ""), member(document, "position", int, 0)
        self.needs_all_ranks = member(document, "reach", str, "") == "all_ranks"
        self.bytes, self.site = member(document, "bytes", int, 0), member(document, "site", str, "")
        for name in self.TIMES:
            setattr(self, name, member(document, name, int, None))
        self.launch, self.fused = member(document, "launch", int, 0), member(document, "fused", int, 0)
        self.result = member(document, "result", str, "")  # the error; empty for a success and while the request runs
        # The computed time when the GPU began: after the launch and after earlier work on the rank's stream.
        self.began: int | None = None

    def shift(self, by: int) -> None:
        for name in self.TIMES:
            if (when := getattr(self, name)) is not None:
                setattr(self, name, when + by)

    def place(self) -> str:
        return f"world, request {self.ticket}" if self.of_world else f"lane {self.lane}, request {self.position}"


class Rank:
    """One rank of one world, with its requests in the order in which they were sent."""

    def __init__(self, document: dict, line: typing.Any):
        self.host, self.pid = member(document, "host", str), member(document, "pid", int)
        self.world, self.rank, self.device, self.asked_in_all = (
            member(line, name, int) for name in ("world", "rank", "device", "asked_in_all"))
        self.requests = [Request(one) for one in member(line, "requests", list)]

    def name(self) -> str:
        return f"rank {self.rank} of world {self.world}"

    def collective(self, one: Request) -> tuple:
        """Returns what the parts of one collective have in common."""
        which = ("", one.ticket) if one.of_world else (one.lane, one.position)
        return (self.world, one.epoch, one.of_world, *which)

    def work_out_beginnings(self) -> None:
        in_order = sorted((one for one in self.requests if one.launch and one.finished is not None
                           and one.launched is not None), key=lambda one: (one.epoch, one.launch))
        free_from, end, launch = 0, 0, 0
        for one in in_order:
            if one.launch != launch:  # Requests of one launch begin together.
                free_from, launch = end, one.launch
            one.began = min(max(one.launched, free_from), one.finished)
            end = max(end, one.finished)


class Record:
    """The record of one process, on its own clock."""

    def __init__(self, document: typing.Any):
        self.boot, self.about = member(document, "boot", str), member(document, "about", str)
        clock = member(document, "clock", dict)
        self.offset = member(clock, "steady_ns", int) - member(clock, "system_ns", int)
        self.ranks = [Rank(document, line) for line in member(document, "lines", list)]

    def shift(self, by: int) -> None:
        for rank in self.ranks:
            for one in rank.requests:
                one.shift(by)


def read_record(path: str) -> Record:
    text = read_regular_file("the flight record", path, "name a file that troupe wrote")
    try:
        document = json.loads(text)
        if member(document, "kind", str, "") != "troupe flight record":
            raise Problem(f"invalid_argument: {path}: it is not a flight record of troupe")
        if (schema := member(document, "schema", int)) != 1:
            raise Problem(f"too_old: {path}: its schema is {schema}, this troupe reads 1: use the troupe that wrote it")
        return Record(document)
    except (ValueError, RecursionError) as why:
        raise Problem(f"invalid_argument: {path}: it is not a flight record: {why}") from None


def lateness(known: list[Rank], other: list[Rank]) -> int | None:
    """Returns by how much later the same collectives finished in `other` than in `known`, or None if there are none.

    They finish at the same time, so this is the difference of the clocks.
    """
    def ends(ranks: list[Rank]) -> list[tuple]:
        return [(rank.collective(one), one.finished) for rank in ranks for one in rank.requests
                if one.needs_all_ranks and one.finished is not None]

    mine = dict(ends(known))
    differences = [end - mine[name] for name, end in ends(other) if name in mine]
    return median(differences) if differences else None


class Trace:
    """The records of several processes on the first one's clock. Processes of one machine share a clock."""

    def __init__(self, paths: list[str]):
        self.ranks: list[Rank] = []
        self.remarks: list[str] = []  # warnings for users who compare times of several hosts
        first = None
        for path in paths:
            one = read_record(path)
            first = first or one
            if one.boot != first.boot:  # Aligned first by the hosts' clocks, then by collectives that both finished.
                one.shift(first.offset - one.offset)
                late = lateness(self.ranks, one.ranks)
                one.shift(-(late or 0))
                self.remarks.append(f"{path} is from another machine" + (
                    " and shares no collective: its times are aligned by the hosts' clocks" if late is None else
                    ": its times are aligned by the collectives that both finished"))
            self.ranks += one.ranks
        self.about = first.about if first else ""
        self.ranks.sort(key=lambda rank: (rank.world, rank.rank))
        for rank in self.ranks:
            rank.work_out_beginnings()

    def collectives(self) -> list[list[tuple[int, Request]]]:
        """Returns, for each collective of several ranks, its parts: the index of the rank, and the request there."""
        found: dict[tuple, list[tuple[int, Request]]] = {}
        for r, rank in enumerate(self.ranks):
            for one in rank.requests:
                if one.needs_all_ranks and one.asked is not None:
                    found.setdefault(rank.collective(one), []).append((r, one))
        return [parts for _, parts in sorted(found.items(), key=lambda one: one[0]) if len(parts) > 1]


# The summary.


def microseconds(span: int) -> str:
    return f"{span / 1000:.1f}"


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}" if whole > 0 else "-"


def between(begin: int | None, end: int | None) -> int | None:
    return None if begin is None or end is None else max(end - begin, 0)


def spans(requests: list[Request], begin: str, end: str) -> list[int]:
    return [span for one in requests if (span := between(getattr(one, begin), getattr(one, end))) is not None]


def print_operations(trace: Trace) -> None:
    by_name: dict[str, list[Request]] = {}
    for rank in trace.ranks:
        for one in rank.requests:
            if one.asked is not None:
                by_name.setdefault(one.what.split(" ", 1)[0], []).append(one)
    print("\nBy operation, in microseconds. all: from request to end. peers: until all ranks had made the request.\n"
          "launch: from then to the launch. gpu: on the GPU, from the launch or the end of earlier work.")
    table = Table(("operation", "", 18), ("parts", "", 9), ("errors", "", 6), ("bytes", "", 13), ("p50", "all", 9),
                  ("p99", "all", 9), ("max", "all", 10), ("p50", "peers", 9), ("p50", "launch", 9), ("p50", "gpu", 9),
                  ("fused", "", 6))
    table.print_heading()
    for name, these in sorted(by_name.items()):
        total = spans(these, "asked", "finished")
        fused = [one.fused for one in these if one.fused > 0]
        launches = sum(1 / count for count in fused)
        table.print_row(name, str(len(these)), str(sum(bool(one.result) for one in these)),
                        str(sum(one.bytes for one in these)),
                        *(microseconds(percentile(total, fraction)) for fraction in (0.5, 0.99, 1)),
                        *(microseconds(median(spans(these, *pair))) for pair in
                          (("asked", "matched"), ("matched", "launched"), ("began", "finished"))),
                        f"{len(fused) / launches:.1f}" if fused else "-")


def last_at(parts: list[tuple[int, Request]], stage: str) -> int | None:
    """Returns the rank that passed a stage last. None if some have not passed it, or if all did at the same time."""
    times = [(getattr(one, stage), rank) for rank, one in parts]
    known = [when for when, _ in times if when is not None]
    if len(known) < len(times) or min(known) == max(known):
        return None
    return [rank for when, rank in times if when == max(known)][-1]


def print_last_ranks(trace: Trace) -> None:
    behind: list[list[int]] = [[] for _ in trace.ranks]  # the delays after the first rank's request
    asked_last, launched_last = [0] * len(trace.ranks), [0] * len(trace.ranks)
    for parts in trace.collectives():
        first = min(one.asked for _, one in parts)
        for rank, one in parts:
            behind[rank].append(one.asked - first)
        for counts, stage in ((asked_last, "asked"), (launched_last, "launch_began")):
            if (last := last_at(parts, stage)) is not None:
                counts[last] += 1
    print("\nThe ranks that come last to collectives of several ranks. Behind: delay after the first rank's request, "
          "us.")
    table = Table(("rank", "", 28), ("parts", "", 9), ("asked", "last %", 8), ("behind", "p50", 10),
                  ("behind", "p99", 10), ("launched", "last %", 9))
    table.print_heading()
    for rank, delays, asked, launched in zip(trace.ranks, behind, asked_last, launched_last):
        table.print_row(rank.name(), str(len(delays)), percent(asked, len(delays)), microseconds(median(delays)),
                        microseconds(percentile(delays, 0.99)), percent(launched, len(delays)))


def time_in_progress(rank: Rank) -> tuple[int, int]:
    """Returns how long at least one request of the rank was in progress, and how long at least two were."""
    over = [one for one in rank.requests if one.asked is not None and one.finished is not None]
    some = several = before = now = 0
    for when, change in sorted([(one.asked, 1) for one in over] + [(one.finished, -1) for one in over]):
        some += when - before if now >= 1 else 0
        several += when - before if now >= 2 else 0
        now, before = now + change, when
    return some, several


LONG_GAP = 100_000


def print_gpus(trace: Trace) -> None:
    print("\nThe GPUs' time between the first request and the last: busy with requests, and the gaps. Overlap: the\n"
          "share of the time with a request in progress in which there were two or more.")
    table = Table(("rank", "", 28), ("span", "ms", 10), ("busy", "%", 6), ("gaps", ">100us", 7), ("longest", "us", 10),
                  ("overlap", "%", 8), ("before", "", 28))
    table.print_heading()
    for rank in trace.ranks:
        run = sorted((one for one in rank.requests if one.began is not None and one.finished is not None),
                     key=lambda one: one.began)
        begin = end = run[0].began if run else 0
        busy, long_gaps, longest, before = 0, 0, 0, "-"
        for one in run:
            gap = one.began - end
            long_gaps += gap > LONG_GAP
            if gap > longest:
                longest, before = gap, one.what
            busy += max(one.finished - max(one.began, end), 0)
            end = max(end, one.finished)
        some, several = time_in_progress(rank)
        table.print_row(rank.name(), f"{(end - begin) / 1e6:.2f}", percent(busy, end - begin), str(long_gaps),
                        microseconds(longest), percent(several, some), before)


def print_slowest(trace: Trace, count: int) -> None:
    over = [(span, rank, one) for rank in trace.ranks for one in rank.requests
            if (span := between(one.asked, one.finished)) is not None]
    slowest = sorted(over, key=lambda one: -one[0])[:count]
    if slowest:
        print("\nThe slowest requests, us: until all ranks had made it + until its launch + on the GPU")
    for span, rank, one in slowest:
        parts = [between(one.asked, one.matched), between(one.matched, one.launched),
                 between(one.launched, one.finished)]
        site = f" asked at {one.site}" if one.site else ""
        sums = " + ".join("?" if part is None else microseconds(part) for part in parts)
        print(f"  {microseconds(span):>10} = {sums}  {rank.name()}, {one.what} ({one.place()}){site}")


def print_unfinished(trace: Trace, most: int = 20) -> None:
    found = [(rank, one) for rank in trace.ranks for one in rank.requests
             if one.asked is not None and one.finished is None and not one.result]
    if found:
        print("\nNot over when the record was written:")
    for rank, one in found[:most]:
        state = ("on the GPU" if one.launched is not None else "with the launcher" if one.matched is not None else
                 "waits for its peers")
        print(f"  {rank.name()}: {one.what} ({one.place()}), {state}" + (f", asked at {one.site}" if one.site else ""))
    if len(found) > most:
        print(f"  and {len(found) - most} more")


def print_summary(trace: Trace, slowest: int) -> None:
    parts = sum(len(rank.requests) for rank in trace.ranks)
    asked = sum(rank.asked_in_all for rank in trace.ranks)
    print(trace.about, f"{len(trace.ranks)} ranks, the last {parts} of {asked} requests to ranks", *trace.remarks,
          sep="\n")
    if parts == 0:
        return
    print_operations(trace)
    print_last_ranks(trace)
    print_gpus(trace)
    print_slowest(trace, slowest)
    print_unfinished(trace)


# Chrome's trace event format: one process per rank, with three rows. Times are in microseconds from the first request.

REQUESTS, LAUNCHER, GPU = 1, 2, 3


class Events:
    def __init__(self, trace: Trace):
        self.list: list[dict] = []
        self.zero = min((when for rank in trace.ranks for one in rank.requests
                         for when in (one.asked, one.launch_began, one.finished) if when is not None), default=0)
        for r in range(len(trace.ranks)):
            self.add_rank(r, trace.ranks[r])
        self.add_arrows(trace)

    def at(self, when: int) -> float:
        return (when - self.zero) / 1000

    def add(self, rank: int, row: int, phase: str, name: str, **more: typing.Any) -> None:
        self.list.append({"ph": phase, "name": name, **more, "pid": rank + 1, "tid": row})

    def add_rank(self, r: int, rank: Rank) -> None:
        text = f"{rank.name()}, GPU {rank.device} ({rank.host}, process {rank.pid})"
        self.add(r, REQUESTS, "M", "process_name", args={"name": text})
        self.add(r, REQUESTS, "M", "process_sort_index", args={"sort_index": r})
        for row, name in ((REQUESTS, "requests"), (LAUNCHER, "launcher"), (GPU, "GPU")):
            self.add(r, row, "M", "thread_name", args={"name": name})
            self.add(r, row, "M", "thread_sort_index", args={"sort_index": row})
        launches = {0}
        for one in rank.requests:
            self.add_life(r, one)
            if one.launch and (one.epoch, one.launch) not in launches:
                launches.add((one.epoch, one.launch))
                self.add_launch(r, one)

    @staticmethod
    def details(one: Request) -> dict:
        made: dict[str, typing.Any] = {"bytes": one.bytes, "epoch": one.epoch, "ticket": one.ticket}
        if not one.of_world:
            made["lane"] = f"{one.lane}, request {one.position}"
        if one.site:
            made["asked at"] = one.site
        if one.result:
            made["error"] = one.result
        return made

    def add_life(self, r: int, one: Request) -> None:
        if one.asked is None:
            return
        over = one.finished if one.finished is not None else one.replied
        if over is None:  # Still in progress when the record was written.
            self.add(r, REQUESTS, "i", f"{one.what}: not over", s="t", ts=self.at(one.asked), args=self.details(one))
            return
        span_id = f"{r}.{one.epoch}{'.w' if one.of_world else '.r'}{one.ticket}"
        for name, begin, end, details in ((one.what, one.asked, over, self.details(one)),
                                          ("waits for its peers", one.asked, one.matched, {}),
                                          ("waits for the launcher", one.matched, one.launch_began, {})):
            if begin is not None and end is not None:
                span = {"cat": "request", "id": span_id}
                self.add(r, REQUESTS, "b", name, **span, ts=self.at(begin), args=details)
                self.add(r, REQUESTS, "e", name, **span, ts=self.at(max(begin, end)))

    def add_launch(self, r: int, one: Request) -> None:
        name = f"{one.fused} together: {one.what}" if one.fused > 1 else one.what
        for row, category, begin, end in ((LAUNCHER, "launch", one.launch_began, one.launched),
                                          (GPU, "gpu", one.began, one.finished)):
            if begin is not None and end is not None:
                self.add(r, row, "X", name, cat=category, ts=self.at(begin), dur=max(end - begin, 0) / 1000,
                         args=self.details(one))

    def add_arrows(self, trace: Trace) -> None:
        """Joins the parts of each collective on the GPUs."""
        began = [sorted(((one.began, rank) for rank, one in parts if one.began is not None), key=lambda part: part[0])
                 for parts in trace.collectives()]
        for number, parts in enumerate((parts for parts in began if len(parts) > 1), 1):
            for i, (when, rank) in enumerate(parts):
                phase = "s" if i == 0 else "t" if i + 1 < len(parts) else "f"
                more = {"bp": "e"} if i > 0 else {}
                self.add(rank, GPU, phase, "collective", cat="collective", id=number, ts=self.at(when), **more)


def events_document(trace: Trace) -> dict:
    return {"traceEvents": Events(trace).list, "displayTimeUnit": "ns",
            "otherData": {"about": trace.about, "remarks": trace.remarks}}


def run(words: list[str]) -> int:
    parser = argparse.ArgumentParser("troupe trace", allow_abbrev=False, description=(
        "Read flight records: where requests spent their time, and a trace for Perfetto"))
    parser.add_argument("files", metavar="FILE", nargs="+", help="flight records, of one process each")
    parser.add_argument("--events", metavar="EVENTS.json", help="write Chrome's trace events (JSON) to this file")
    parser.add_argument("--slowest", type=whole_number(0, 1_000_000), default=10, metavar="N",
                        help="requests to list (default 10)")
    options = parser.parse_intermixed_args(words)
    trace = Trace(options.files)
    print_summary(trace, options.slowest)
    if options.events:
        save(options.events, json.dumps(events_document(trace), ensure_ascii=False, separators=(",", ":")) + "\n")
        print(f"\n{options.events}: open it in Perfetto (ui.perfetto.dev) or chrome://tracing")
    return 0


if __name__ == "__main__":
    sys.exit(start({"trace": run}))
