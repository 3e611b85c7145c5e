#!/usr/bin/env python3
"""The order of real processes of one host: through shared memory, and through their connections where that fails.

Three processes with Gloo send requests without pause and verify every sum. One is killed (kill -9) and started again; the
controller's log says which way the requests went in each epoch. Then the same while another process holds the name of
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
        if job.wait(60) != 0:
            fail("the job did not end well", output.read_text(errors="replace"))
    finally:
        job.kill()
        job.wait()
    said = output.read_text(errors="replace")
    if lines("wrong") or lines("hung"):
        fail(f"wrong or hung: {report.read_text()}", said)
    return said


def expect_ranks(said, ways):
    """Checks how many ranks of each epoch went through shared memory."""
    for number, count in ways.items():
        found = re.search(rf"world serving in epoch {number} with {RANKS} of {RANKS} ranks([^;\n]*)", said)
        if not found:
            fail(f"epoch {number} was not reported", said)
        expected = f", {count} through shared memory" if count else ""
        if found[1] != expected:
            fail(f"epoch {number} was reported with '{found[1]}' and not '{expected}'", said)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--troupe", required=True, help="the program")
    troupe = str(pathlib.Path(parser.parse_args().troupe).resolve())
    with tempfile.TemporaryDirectory(prefix="troupe-order-") as name:
        folder = pathlib.Path(name)
        expect_ranks(play(troupe, folder, free_port()), {1: RANKS, 2: RANKS})

        port = free_port()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as holder:
            holder.bind(f"\0troupe-order-{port}")
            holder.listen()
            said = play(troupe, folder, port)
        expect_ranks(said, {1: 0, 2: 0})
        if "requests do not go through shared memory" not in said:
            fail("the controller did not say that it has no gate", said)
    return 0


if __name__ == "__main__":
    sys.exit(main())
