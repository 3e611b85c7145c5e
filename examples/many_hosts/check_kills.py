#!/usr/bin/env python3
"""Kills processes of many_hosts at random while it trains in place, and checks that the final weights are those of an
undisturbed run, bit by bit: many_hosts compares them with the sums that it must find. No epoch may begin at an earlier
step than the one before.

Usage: check_kills.py TROUPE MANY_HOSTS BACKEND KILLS [RANKS [SEED [KIND]]]
KIND: spare (default): a spare takes the place of a killed process; shrink: the others go on without it, down to one
rank, until another one has started; restarts: the controller is killed, too, and another one started.
"""
import collections
import os
import pathlib
import random
import re
import secrets
import signal
import socket
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

    def __init__(self):
        self.changed = threading.Condition()
        self.begun = collections.defaultdict(dict)  # by epoch: the step at which each process began
        self.last_lines = collections.deque(maxlen=40)
        self.right = self.wrong = 0
        self.is_over = False

    def listen(self, process):
        threading.Thread(target=self.read, args=(process,), daemon=True).start()

    def read(self, process):
        for line in process.stdout:
            with self.changed:
                self.last_lines.append(line)
                if found := BEGINS.search(line):
                    self.begun[int(found[4])][found[1]] = int(found[5])
                self.right += "every weight is right" in line
                self.wrong += any(one in line for one in ("WRONG", "no rank has the state of commit"))
                self.changed.notify_all()
        process.wait()
        with self.changed:
            self.is_over = self.has_ended()
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
        self.kill_all()
        sys.exit(f"{why}; the last lines:\n{''.join(self.last_lines)}")


class Launched(Job):
    """The processes of a launcher."""

    def __init__(self, words):
        super().__init__()
        self.launcher = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                         env={**os.environ, "TROUPE_LOG": "off"})
        self.listen(self.launcher)

    def has_ended(self):
        return True

    def kill_all(self):
        self.launcher.kill()

    def kill(self, names, chance):
        """Kills one or two processes of these names, but not all: a survivor has the weights. Returns their number."""
        victims = named(children_of(self.launcher.pid), names)
        done = 0
        for victim in chance.sample(victims, max(min(len(victims) - 1, chance.choice([1, 1, 1, 2])), 0)):
            try:
                os.kill(victim, signal.SIGKILL)
                done += 1
            except ProcessLookupError:
                pass
        return done

    def wait(self):
        return self.launcher.wait()


class Restarted(Job):
    """Processes that are started here, and a controller that is killed and started again."""

    def __init__(self, troupe, words, ranks):
        super().__init__()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.words, self.ranks = words, ranks
        self.environment = {**os.environ, "TROUPE_LOG": "off", "TROUPE_JOIN_TOKEN": secrets.token_hex(32),
                            "TROUPE_CONTROL": f"127.0.0.1:{port}", "TROUPE_CONTROL_ORPHANED": "rejoin"}
        self.controller_words = [troupe, "controller", "-n", str(ranks), "--port", str(port), "--rebuilds", "1000"]
        self.attempts = [0] * ranks
        self.controller = self.start_controller()
        self.processes = [self.start(place) for place in range(ranks)]

    def start_controller(self):
        return subprocess.Popen(self.controller_words, env=self.environment, stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL)

    def start(self, place):
        made = subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={**self.environment, "RANK": str(place), "WORLD_SIZE": str(self.ranks),
                                     "LOCAL_RANK": str(place), "TROUPE_PROCESS": str(place),
                                     "TROUPE_ATTEMPT": str(self.attempts[place])})
        self.attempts[place] += 1
        self.listen(made)
        return made

    def has_ended(self):
        return all(one.poll() is not None for one in self.processes)

    def kill_all(self):
        for one in (*self.processes, self.controller):
            one.kill()

    def kill(self, _, chance):
        """Kills the controller, or a process, or one after the other, and starts them again. Returns their number."""
        done = 0
        if chance.random() < 0.5:
            self.controller.kill()
            self.controller.wait()
            self.controller = self.start_controller()
            done += 1
            if chance.random() < 0.5:
                return done
            time.sleep(chance.uniform(0, 0.3))
        place = chance.randrange(self.ranks)
        with self.changed:  # its end is not that of the job
            self.processes[place].kill()
            self.processes[place].wait()
            self.processes[place] = self.start(place)
        return done + 1

    def wait(self):
        self.controller.terminate()
        self.controller.wait()
        return max(one.wait() for one in self.processes)


def main(troupe, many_hosts, backend, kills, ranks="4", seed=None, kind="spare"):
    kills, ranks, seed = int(kills), int(ranks), int(seed or random.randrange(1 << 32))
    chance = random.Random(seed)
    steps_of_a_kill = STEPS_OF_A_KILL.get(backend, 200)
    steps = steps_of_a_kill * (kills + 1)
    words = [many_hosts, "--backend", backend, "--steps", str(steps), "--commit-every", "7", "--elements", "512"]
    if kind == "shrink":  # a rank that is alone must not do all steps before another process has started
        words += ["--step-ms", "2"]
    if kind == "restarts":
        job = Restarted(troupe, words, ranks)
    else:
        rest = ["--policy", "shrink"] if kind == "shrink" else ["--spares", "1"]
        job = Launched([troupe, "launch", "-n", str(ranks), *rest, "--respawns", "1000", "--respawn-window", "1s",
                        "--grace", "60s", "--", *words])
    epoch, done, began = 0, 0, time.monotonic()
    step = 0
    while done < kills:
        epoch = job.await_epoch_after(epoch, ranks)
        if epoch is None:
            break
        with job.changed:
            started = [step for _, all_ranks in sorted(job.begun.items()) for step in set(all_ranks.values())]
            here = set(job.begun[epoch].values())
        if len(here) != 1:
            job.fail(f"in epoch {epoch} the ranks began at different steps: {sorted(here)}")
        if started != sorted(started):
            job.fail(f"an epoch began at an earlier step than the one before: {started}")
        step = here.pop()
        if step > steps - steps_of_a_kill:
            break  # the processes would end before the next kill
        time.sleep(chance.uniform(0, chance.choice([0.005, 0.05])))
        done += job.kill(job.begun[epoch], chance)
    with job.changed:
        if not job.changed.wait_for(lambda: job.is_over, 600):
            job.fail("the job does not end")
    status = job.wait()
    took = time.monotonic() - began
    print(f"seed {seed}, {kind}: {done} kills in {took:.1f} s, {len(job.begun)} epochs, {job.right} processes with the "
          f"right weights, {job.wrong} without; status {status}")
    if status != 0 or job.wrong or job.right != ranks or done < kills:
        job.fail("not as expected")


if __name__ == "__main__":
    main(*sys.argv[1:])
