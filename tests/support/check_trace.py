#!/usr/bin/env python3
"""Runs a program that writes a flight record, runs `troupe trace` on the record, and checks the result.

Usage: check_trace.py TROUPE FOLDER                           the record of a demo of 3 ranks
       check_trace.py TROUPE FOLDER RANKS PROGRAM [WORD...]   the record that PROGRAM writes after a fault
The events are checked against Chrome's trace event format: every phase has its required members, every span ends, and
the events of an arrow are in order.
"""
import json
import pathlib
import subprocess
import sys

MEMBERS = {
    "M": {"name", "args"},
    "X": {"name", "cat", "ts", "dur"},
    "b": {"name", "cat", "id", "ts"},
    "e": {"name", "cat", "id", "ts"},
    "i": {"name", "ts", "s"},
    "s": {"name", "cat", "id", "ts"},
    "t": {"name", "cat", "id", "ts"},
    "f": {"name", "cat", "id", "ts", "bp"},
}


def check_events(document: dict, ranks: int) -> None:
    events = document["traceEvents"]
    depth: dict = {}
    arrows: dict = {}
    seen: dict = {}
    for event in events:
        phase = event["ph"]
        seen[phase] = seen.get(phase, 0) + 1
        missing = (MEMBERS[phase] | {"pid", "tid"}) - event.keys()
        assert not missing, f"{event} lacks {missing}"
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int), event
        if phase != "M":
            assert event["ts"] >= 0, event
        if phase == "X":
            assert event["dur"] >= 0, event
        if phase in "be":
            key = (event["pid"], event["cat"], event["id"])
            depth[key] = depth.get(key, 0) + (1 if phase == "b" else -1)
            assert depth[key] >= 0, f"{event} ends a span that has not begun"
        if phase in "stf":
            path = arrows.setdefault(event["id"], [])
            assert (phase == "s") == (not path), event
            assert not path or path[-1]["ts"] <= event["ts"], event
            path.append(event)
    assert not any(depth.values()), "spans without end"
    assert all(path[-1]["ph"] == "f" for path in arrows.values()), "arrows without end"
    for phase in "MXbesf":
        assert seen.get(phase), f"no event of phase {phase}"
    names = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert len(names) == ranks, names


def run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def demo_record(troupe: str, folder: pathlib.Path) -> pathlib.Path:
    record = folder / "record.json"
    run(troupe, "demo", "--backend", "mock", "--ranks", "3", "--requests", "600", "--record", str(record))
    return record


def record_after_fault(folder: pathlib.Path, program: list) -> pathlib.Path:
    for left in folder.glob("*.json"):
        left.unlink()
    run(*program, "--report-folder", str(folder))
    (record,) = folder.glob("flight-*.json")
    return record


def main() -> int:
    troupe, folder, program = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[4:]
    ranks = int(sys.argv[3]) if program else 3
    folder.mkdir(parents=True, exist_ok=True)
    record = record_after_fault(folder, program) if program else demo_record(troupe, folder)
    events = folder / "events.json"
    summary = run(troupe, "trace", str(record), "--events", str(events), "--slowest", "3")
    for word in (f"{ranks} ranks", "By operation", "all_reduce", "The ranks that come last", "The GPUs' time", "The slowest"):
        assert word in summary, f"no '{word}' in\n{summary}"
    if not program:
        assert "demo_" in summary and "Not over" not in summary, summary
    check_events(json.loads(events.read_text()), ranks)
    print(summary)
    return 0


if __name__ == "__main__":
    sys.exit(main())
