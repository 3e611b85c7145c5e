#!/usr/bin/env python3
"""What a job says at its most talkative never holds its join token (SEC-1).

Two processes and a spare log everything, one is killed, and a stranger asks to join with another token; then all output,
reports of faults and command lines are searched for the token and for parts of it.
"""
import argparse
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

PART = 12  # characters; a token has 64


def wait_for(what, seconds, text):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := what():
            return found
        time.sleep(0.05)
    raise SystemExit(f"FAILED: {text} within {seconds} s")


def command_lines():
    said = []
    for process in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            said.append(process.read_bytes())
        except OSError:  # it has ended
            pass
    return b"\n".join(said)


def play(troupe, folder):
    """The token, and everything that was said."""
    report, output = folder / "report", folder / "output"
    report.touch()
    member = f'echo "$TROUPE_JOIN_TOKEN $TROUPE_CONTROL $$ ${{TROUPE_SPARE:-0}}" >>"{folder}/seats"; exec "$0" "$@"'
    environment = {**os.environ, "TROUPE_LOG": "trace", "TROUPE_BENCH_REPORT": str(report),
                   "TROUPE_REPORT_FOLDER": str(folder / "faults"), "TROUPE_PROFILE": "frugal"}
    program = [troupe, "bench", "process-member", "--backend", "mock"]
    with open(output, "wb") as said:
        job = subprocess.Popen([troupe, "launch", "-n", "2", "--spares", "1", "--", "sh", "-c", member, *program],
                               stdout=said, stderr=subprocess.STDOUT, env=environment)
    try:
        def epochs():
            return {line.split()[2] for line in report.read_text().splitlines() if line.startswith("good ")}

        wait_for(lambda: "1" in epochs(), 60, "no world served")
        seats = [line.split() for line in (folder / "seats").read_text().splitlines()]
        token, control, pid = next(seat[:3] for seat in seats if seat[3] == "0")  # not the spare
        lines = command_lines()
        stranger = subprocess.run(program, capture_output=True, timeout=60, check=False,
                                  env={**environment, "TROUPE_JOIN_TOKEN": "f" * 64, "TROUPE_CONTROL": control})
        if stranger.returncode == 0:
            raise SystemExit("FAILED: a stranger was let in")
        os.kill(int(pid), signal.SIGKILL)
        wait_for(lambda: "2" in epochs(), 60, "no world served after a loss")
        job.send_signal(signal.SIGTERM)
        job.wait(60)
    finally:
        job.kill()
    said = [lines, stranger.stdout, stranger.stderr, output.read_bytes(), report.read_bytes()]
    said += [path.read_bytes() for path in folder.glob("faults/*")]
    return token, b"\n".join(said)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--troupe", required=True, help="the program")
    troupe = str(pathlib.Path(parser.parse_args().troupe).resolve())
    with tempfile.TemporaryDirectory(prefix="troupe-secrets-") as folder:
        token, said = play(troupe, pathlib.Path(folder))
    if len(token) != 64 or b"refused the join token" not in said or b"epoch 2" not in said:
        print("FAILED: the job did not say what it should", said[-4000:].decode(errors="replace"))
        return 1
    found = [at for at in range(0, len(token) - PART + 1) if token[at:at + PART].encode() in said]
    print(f"{len(said)} bytes of output, reports and command lines; parts of the token in them: {len(found)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
