#!/usr/bin/env python3
"""Sends SIGUSR1 and then SIGTERM to a launcher of many_hosts. Checks that a flight record is written and that the
process then prints why it ends.

Usage: check_signals.py TROUPE MANY_HOSTS
"""
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading

PATIENCE = 60


def await_line(lines, part):
    for line in lines:
        print(line, end="")
        if part in line:
            return
    sys.exit(f"the output ended without a line that contains '{part}'")


def main(troupe, many_hosts):
    with tempfile.TemporaryDirectory() as folder:
        launcher = subprocess.Popen(
            [troupe, "launch", "-n", "1", "--grace", "10min", "--", many_hosts, "--backend", "mock", "--steps", "1000000000",
             "--recorder-signal", "USR1", "--report-folder", folder],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        watchdog = threading.Timer(PATIENCE, launcher.kill)  # also ends the output, so that no read blocks
        watchdog.start()
        await_line(launcher.stdout, "begins at step 0")
        launcher.send_signal(signal.SIGUSR1)
        await_line(launcher.stdout, "the flight record is in")
        if not list(pathlib.Path(folder).iterdir()):
            sys.exit("the report folder has no flight record")
        launcher.send_signal(signal.SIGTERM)
        await_line(launcher.stdout, "told to end by signal 15")
        rest = launcher.stdout.read()
        status = launcher.wait()
        watchdog.cancel()
        print(rest, end="")
        if status != 128 + signal.SIGTERM:
            sys.exit(f"the launcher ended with status {status} instead of {128 + signal.SIGTERM}")


if __name__ == "__main__":
    main(*sys.argv[1:])
