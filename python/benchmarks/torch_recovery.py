"""Kills processes of a training script at random with SIGKILL, compares the final weights with those of an undisturbed run,
and times the recoveries, for troupe and for gloo with a rendezvous written by hand.

    PYTHONPATH=build/ci/python python3 python/benchmarks/torch_recovery.py --kills 20

A recovery begins with the kill and ends when all ranks have done a step in the next epoch. Processes that stand by have imported
PyTorch; --spares 0 includes the start of a process. See docs/guide/torch.md for an environment with PyTorch.
"""
import argparse
import math
import os
import pathlib
import queue
import random
import re
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
SCRIPTS = {"ddp": HERE.parent / "examples" / "training" / "ddp.py", "fsdp": HERE.parent / "examples" / "training" / "fsdp.py",
           "gloo": HERE / "torch_recovery_gloo.py"}
PATIENCE = 300  # seconds for anything
DID = re.compile(r"rank (\d+) \(pid (\d+)\) has done step (\d+) in epoch (\d+)")
ENDS = re.compile(r"rank \d+ ends with weights (\w+)")


def children_of(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return found


def stands_by(pid):
    """Whether a process without a rank has begun to wait for one: it has threads of troupe, or says so by its name."""
    try:
        return any("troupe" in (task / "comm").read_text() or "spare" in (task / "comm").read_text()
                   for task in pathlib.Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return False


class Job:
    """A launcher, and what its processes have printed."""

    def __init__(self, options, script, pause, steps, spares):
        words = [str(SCRIPTS[script]), "--steps", str(steps), "--pause", str(pause)]
        if script == "gloo":
            command = [sys.executable, *words, "--ranks", str(options.ranks), "--spares", str(spares)]
        else:
            command = [sys.executable, "-m", "troupe", "launch", "-n", str(options.ranks), "--spares", str(spares),
                       "--respawns", "1000", "--respawn-window", "1s", "--", sys.executable, *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                        env={**os.environ, "TROUPE_LOG": "off", "OMP_NUM_THREADS": "1"})
        self.lines, self.weights, self.last, self.pids, self.epoch = queue.Queue(), [], [], {}, 0
        self.ranks, self.spares = options.ranks, spares
        self.patience = PATIENCE + 2 * steps * pause  # the last steps print nothing
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put((time.monotonic(), line))
        self.lines.put(None)

    def next(self):
        """Returns the next line and when it came; None at the end."""
        said = self.lines.get(timeout=self.patience)
        if said is not None:
            self.last = [*self.last[-60:], said[1]]
            if found := ENDS.search(said[1]):
                self.weights.append(found[1])
        return said

    def await_epoch_after(self, epoch):
        """Waits until all ranks have done a step in a later epoch. Returns that step, and when it was done."""
        done = {}
        while (said := self.next()) is not None:
            if found := DID.search(said[1]):
                rank, pid, step, of = map(int, found.groups())
                if of > epoch:
                    done.setdefault(of, {})[rank] = pid
                    if len(done[of]) == self.ranks:
                        self.pids, self.epoch = done[of], of
                        return step, said[0]
        self.fail("it has ended")

    def await_spares(self):
        """Waits until as many processes stand by as there are spares."""
        until = time.monotonic() + PATIENCE
        while sum(stands_by(one) for one in children_of(self.process.pid) if one not in self.pids.values()) < self.spares:
            if time.monotonic() > until or self.process.poll() is not None:
                self.fail("no process stands by")
            time.sleep(0.02)

    def kill(self, chance):
        """Kills the process of a random rank. Returns when."""
        os.kill(self.pids[chance.randrange(self.ranks)], signal.SIGKILL)
        return time.monotonic()

    def finish(self):
        """Waits for the end. Returns the weights, which must be the same at all ranks."""
        while self.next() is not None:
            pass
        if self.process.wait() != 0 or len(self.weights) != self.ranks or len(set(self.weights)) != 1:
            self.fail(f"it ends with status {self.process.returncode} and weights {self.weights}")
        return self.weights[0]

    def fail(self, why):
        self.process.kill()
        sys.exit(f"{why}; the last lines:\n{''.join(self.last)}")


def percentile(times, fraction):
    return sorted(times)[math.ceil(fraction * len(times)) - 1]  # nearest rank


def run(options, script, chance):
    undisturbed = Job(options, script, 0, options.steps, 0)
    undisturbed.await_epoch_after(0)
    right = undisturbed.finish()
    job, times = Job(options, script, options.pause, options.steps, options.spares), []
    job.await_epoch_after(0)
    while len(times) < options.kills:
        job.await_spares()
        time.sleep(chance.uniform(0, 0.3))
        began = job.kill(chance)
        step, ended = job.await_epoch_after(job.epoch)
        times.append((ended - began) * 1e3)
        print(f"{script}: kill {len(times)}: {times[-1]:.0f} ms, step {step}", flush=True)
    job.await_spares()  # a process that is started at the end finds no world
    weights = job.finish()
    verdict = "bit-equal" if weights == right else f"WRONG: {weights} is not {right}"
    print(f"| {script} | {len(times)} | {percentile(times, 0.5):.0f} | {percentile(times, 0.95):.0f} | {verdict} |", flush=True)
    return weights == right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", nargs="+", choices=SCRIPTS, default=list(SCRIPTS), help="what to run (default: all)")
    parser.add_argument("--ranks", type=int, default=4, help="processes (default %(default)s)")
    parser.add_argument("--spares", type=int, default=1, help="processes that stand by (default %(default)s)")
    parser.add_argument("--kills", type=int, default=20, help="kills of each script (default %(default)s)")
    parser.add_argument("--steps", type=int, default=6000, help="steps of each run (default %(default)s)")
    parser.add_argument("--pause", type=float, default=0.05, help="seconds after each step of a disturbed run (default %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the kills (default: another one)")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    print(f"seed {options.seed}, {options.ranks} processes, {options.spares} spares, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print("| script | kills | p50 ms | p95 ms | final weights |\n| --- | --- | --- | --- | --- |", flush=True)
    raise SystemExit(0 if all([run(options, one, chance) for one in options.scripts]) else 1)


if __name__ == "__main__":
    main()
