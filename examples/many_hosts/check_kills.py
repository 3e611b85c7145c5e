#!/usr/bin/env python3
"""Kills processes of many_hosts at random while it trains in place, and checks that the final weights are those of an
undisturbed run, bit by bit: many_hosts compares them with the sums that it must find.

Usage: check_kills.py TROUPE MANY_HOSTS BACKEND KILLS [RANKS [SEED]]
"""
import collections
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time

PATIENCE_OF_A_KILL = 60  # seconds until all ranks serve again
STEPS_OF_A_KILL = {"nccl": 2000}  # by backend: more steps than run until the next kill; 200 for others
BEGINS = re.compile(r"process (\S+): rank (\d+) of (\d+) in epoch (\d+) begins at step (\d+)")


def children_of(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        found += [int(one) for one in (task / "children").read_text().split()]
    return found


def named(pids, names):
    """Returns the processes whose names are among `names`."""
    found = []
    for pid in pids:
        try:
            environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(one.startswith(b"TROUPE_PROCESS=") and one[15:].decode() in names for one in environment):
            found.append(pid)
    return found


class Job:
    """A launcher, and the state of its processes according to their output."""

    def __init__(self, words):
        self.launcher = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                         env={**os.environ, "TROUPE_LOG": "off"})
        self.changed = threading.Condition()
        self.begun = collections.defaultdict(dict)  # by epoch: the step at which each process began
        self.last_lines = collections.deque(maxlen=40)
        self.right = self.wrong = 0
        self.is_over = False
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.launcher.stdout:
            with self.changed:
                self.last_lines.append(line)
                if found := BEGINS.search(line):
                    self.begun[int(found[4])][found[1]] = int(found[5])
                self.right += "every weight is right" in line
                self.wrong += "WRONG" in line or "no process has the weights" in line
                self.changed.notify_all()
        with self.changed:
            self.is_over = True
            self.changed.notify_all()

    def await_epoch_after(self, epoch, ranks):
        """Waits until all ranks have begun in a later epoch. Returns it, or None if the job has ended."""
        def newest():
            return max((one for one, all_ranks in self.begun.items() if one > epoch and len(all_ranks) == ranks),
                       default=None)
        with self.changed:
            if not self.changed.wait_for(lambda: newest() or self.is_over, PATIENCE_OF_A_KILL):
                self.fail(f"no epoch after {epoch} within {PATIENCE_OF_A_KILL} s")
            return newest()

    def fail(self, why):
        self.launcher.kill()
        sys.exit(f"{why}; the last lines:\n{''.join(self.last_lines)}")


def main(troupe, many_hosts, backend, kills, ranks="4", seed=None):
    kills, ranks, seed = int(kills), int(ranks), int(seed or random.randrange(1 << 32))
    chance = random.Random(seed)
    steps_of_a_kill = STEPS_OF_A_KILL.get(backend, 200)
    steps = steps_of_a_kill * (kills + 1)
    job = Job([troupe, "launch", "-n", str(ranks), "--spares", "1", "--respawns", "1000", "--respawn-window", "1s",
               "--grace", "60s", "--", many_hosts, "--backend", backend, "--steps", str(steps), "--commit-every", "7",
               "--elements", "512"])
    epoch, done, began = 0, 0, time.monotonic()
    while done < kills:
        epoch = job.await_epoch_after(epoch, ranks)
        if epoch is None:
            break
        started = set(job.begun[epoch].values())
        if len(started) != 1:
            job.fail(f"in epoch {epoch} the ranks began at different steps: {sorted(started)}")
        if started.pop() > steps - steps_of_a_kill:
            break  # the processes would end before the next kill
        time.sleep(chance.uniform(0, 0.05))
        victims = named(children_of(job.launcher.pid), job.begun[epoch])
        for victim in chance.sample(victims, min(len(victims) - 1, chance.choice([1, 1, 1, 2]))):  # a survivor has the weights
            try:
                os.kill(victim, signal.SIGKILL)
                done += 1
            except ProcessLookupError:
                pass
    with job.changed:
        if not job.changed.wait_for(lambda: job.is_over, 600):
            job.fail("the job does not end")
    status = job.launcher.wait()
    took = time.monotonic() - began
    print(f"seed {seed}: {done} kills in {took:.1f} s, {len(job.begun)} epochs, {job.right} processes with the right "
          f"weights, {job.wrong} without; status {status}")
    if status != 0 or job.wrong or job.right != ranks or done < kills:
        job.fail("not as expected")


if __name__ == "__main__":
    main(*sys.argv[1:])
