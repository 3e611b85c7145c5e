#!/usr/bin/env python3
"""The order of real processes of one host: through shared memory, and through their connections where that fails.

Three processes with Gloo send requests without pause and verify every sum. One is killed (kill -9) and started again; the
processes' logs say which way the requests went in each epoch. Then the same while another process holds the name of
the controller's gate.
"""
import argparse
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

RANKS = 3


def fail(text, said=""):
    raise SystemExit(f"FAILED: {text}\n{said[-4000:]}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def play(troupe, folder, port):
    """Kills a process under load and stops the job. Returns what the launcher said."""
    report, output = folder / "report", folder / "output"
    for file in (report, output, folder / "pids"):
        file.write_text("")
    member = f'echo $$ >>"{folder}/pids"; exec "$0" "$@"'
    environment = {**os.environ, "TROUPE_LOG": "info", "TROUPE_BENCH_REPORT": str(report), "TROUPE_PROFILE": "frugal"}
    with open(output, "wb") as said:
        job = subprocess.Popen([troupe, "launch", "-n", str(RANKS), "--port", str(port), "--", "sh", "-c", member, troupe,
                                "bench", "process-member", "--backend", "gloo"],
                               stdout=said, stderr=subprocess.STDOUT, env=environment)

    def lines(kind):
        return [line.split() for line in report.read_text().splitlines() if line.startswith(kind + " ")]

    def await_epoch(number):
        """Waits until every rank has verified a sum in that epoch."""
        until = time.monotonic() + 60
        while len({line[3] for line in lines("good") if line[2] == str(number)}) < RANKS:
            if time.monotonic() > until or job.poll() is not None:
                fail(f"no sums in epoch {number}: {report.read_text()}", output.read_text(errors="replace"))
            time.sleep(0.02)

    try:
        await_epoch(1)
        os.kill(int((folder / "pids").read_text().split()[1]), signal.SIGKILL)
        await_epoch(2)
        job.send_signal(signal.SIGTERM)
        job.wait(60)
    finally:
        job.kill()
        job.wait()
    said = output.read_text(errors="replace")
    if lines("wrong") or lines("hung"):
        fail(f"wrong or hung: {report.read_text()}", said)
    return said


def expect_way(said, way):
    """Checks which way the requests of every rank went in both epochs."""
    for number in (1, 2):
        found = re.findall(rf"^\[(\d+)\].*requests of epoch {number} are ordered through (.*)$", said, re.MULTILINE)
        if {rank for rank, _ in found} != {str(rank) for rank in range(RANKS)} or {it for _, it in found} != {way}:
            fail(f"the requests of epoch {number} were ordered through {found} and not all through {way}", said)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--troupe", required=True, help="the program")
    troupe = str(pathlib.Path(parser.parse_args().troupe).resolve())
    with tempfile.TemporaryDirectory(prefix="troupe-order-") as name:
        folder = pathlib.Path(name)
        expect_way(play(troupe, folder, free_port()), "shared memory")

        port = free_port()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as holder:
            holder.bind(f"\0troupe-order-{port}")
            holder.listen()
            expect_way(play(troupe, folder, port), "the control connection")
    return 0


if __name__ == "__main__":
    sys.exit(main())
