#!/usr/bin/env python3
"""Worlds of Gloo over four hosts whose network is cut, slow, lossy, or works in one direction only.

Each host is a network namespace, a fifth has the launcher with the world's controller, behind mutual TLS. The processes
verify all_reduces without pause and report what they see. Exits with 77 where no
namespaces can be made.
"""
import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from virtual_network import Unavailable, VirtualNetwork

HOSTS = 4
CONTROL = HOSTS  # the host after them
SKIPPED = 77


class Failed(Exception):
    pass


def expect(holds, text):
    if not holds:
        raise Failed(text)


class Line:
    """One of a process's reports: see runtime/program/process_traffic.hpp."""

    def __init__(self, text):
        kind, process, epoch, rank, size, at, span, count = text.split()
        self.kind, self.process = kind, process
        self.epoch, self.rank, self.size = int(epoch), int(rank), int(size)
        self.at, self.span, self.count = int(at) / 1e9, int(span) / 1e9, int(count)


class Job:
    """troupe launch over the hosts, from the host of control."""

    def __init__(self, troupe, network, folder, suspicion):
        self.suspicion = suspicion
        self.report = folder / "report"
        self.report.touch()
        self.said = folder / "said"
        certificates = folder / "certificates"
        subprocess.run([troupe, "certs", "--out", certificates, "--hosts", network.address(CONTROL)], check=True,
                       capture_output=True)
        hosts = ",".join(f"{network.name(host)}:1" for host in range(HOSTS))
        member = ('export TROUPE_GLOO_INTERFACE_ADDRESS=10.77.0.$((NODE_RANK + 1)); exec "$0" "$@"')
        environment = {**os.environ, "TROUPE_BENCH_REPORT": str(self.report), "TROUPE_PROFILE": "frugal"}
        with open(self.said, "wb") as said:
            self.launcher = subprocess.Popen(
                ["ip", "netns", "exec", network.name(CONTROL), troupe, "launch", "--hosts", hosts, "--rsh",
                 "ip netns exec", "--agent", troupe, "--bind", network.address(CONTROL), "--certs", certificates,
                 "--policy", "shrink", "--suspicion", f"{int(suspicion * 1000)}ms", "--export", "PATH",
                 "--", "sh", "-c", member, troupe, "bench", "process-member", "--backend", "gloo"],
                stdout=said, stderr=subprocess.STDOUT, env=environment)

    def lines(self):
        return [Line(text) for text in self.report.read_text().splitlines(keepends=True) if text.endswith("\n")]

    def await_world(self, size, epoch, patience):
        """Until all ranks of a world of this size, in this epoch or a later one, have verified an all_reduce; its epoch."""
        until = time.monotonic() + patience
        while time.monotonic() < until:
            expect(self.launcher.poll() is None, f"the launcher has ended with {self.launcher.returncode}")
            good = {}
            for line in self.lines():
                if line.kind == "good" and line.size == size and line.epoch >= epoch:
                    good.setdefault(line.epoch, set()).add(line.rank)
            whole = [of for of, ranks in good.items() if len(ranks) == size]
            if whole:
                return max(whole)
            time.sleep(0.02)
        raise Failed(f"no world of {size} served within {patience} s")

    def latest_epoch(self):
        return max((line.epoch for line in self.lines()), default=0)

    def finish(self):
        """Asks all to end; nothing may be wrong or unanswered. Returns how many all_reduces were verified."""
        self.launcher.send_signal(signal.SIGTERM)
        try:
            self.launcher.wait(40)
        except subprocess.TimeoutExpired:
            raise Failed("the launcher does not end") from None
        lines = self.lines()
        for bad in ("wrong", "hung"):
            expect(not [line for line in lines if line.kind == bad], f"a result was {bad}")
        return sum(line.count for line in lines if line.kind == "ended")

    def slowest_answer(self, since):
        """Of what was pending when a world was lost."""
        return max((line.span for line in self.lines() if line.kind == "answered" and line.at >= since), default=0.0)

    def kill(self):
        if self.launcher.poll() is None:
            self.launcher.kill()
            self.launcher.wait()


def play_loss(job, network, cut):
    """One host is lost as cut() has it: the others go on without it at once, and with it when it is back."""
    first = job.await_world(HOSTS, 1, 60)
    began = time.monotonic()
    cut()
    job.await_world(HOSTS - 1, first + 1, 20)
    without = time.monotonic() - began
    slowest = job.slowest_answer(began)
    expect(slowest < job.suspicion + 2, f"what was pending was answered after {slowest:.2f} s")
    time.sleep(2)  # nobody comes back through what is cut
    began = time.monotonic()
    network.heal()
    job.await_world(HOSTS, first + 2, 40)
    grown = time.monotonic() - began
    return f"three went on after {without:.2f} s, answers took {slowest:.2f} s at most, four again {grown:.2f} s after"


def partition(job, network):
    others = [host for host in range(HOSTS + 1) if host != 3]

    def cut():
        network.set([3], others, cut=True)
        network.set(others, [3], cut=True)

    return play_loss(job, network, cut)


def one_way_loss(job, network):
    """Host 2 hears everybody, and nobody hears it."""
    return play_loss(job, network, lambda: network.set([2], range(HOSTS + 1), cut=True))


def delay(job, network):
    """A slow network is no fault."""
    first = job.await_world(HOSTS, 1, 60)
    everybody = range(HOSTS + 1)
    network.set(everybody, everybody, delay=0.04)
    time.sleep(5)
    expect(job.latest_epoch() == first, "a world was lost though its network was only slow")
    network.heal()
    time.sleep(0.5)
    expect(job.latest_epoch() == first, "a world was lost when its network became fast again")
    return "80 ms there and back for 5 s: the same epoch"


def loss(job, network):
    """Packets that are lost are sent again by TCP."""
    first = job.await_world(HOSTS, 1, 60)
    everybody = range(HOSTS + 1)
    network.set(everybody, everybody, loss=0.02, delay=0.002)
    time.sleep(5)
    expect(job.latest_epoch() == first, "a world was lost though only packets were")
    network.heal()
    return "2 % of all packets lost for 5 s: the same epoch"


SCENARIOS = {"partition": partition, "one-way-loss": one_way_loss, "delay": delay, "loss": loss}


def play(name, troupe, suspicion):
    """Whether the scenario held."""
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="troupe-network-")))
        network = VirtualNetwork(HOSTS + 1)
        stack.callback(network.close)
        job = Job(troupe, network, folder, suspicion)
        stack.callback(job.kill)
        try:
            text = SCENARIOS[name](job, network)
            print(f"{name}: {text}; {job.finish()} all_reduces verified by those who ended, 0 wrong, 0 hung", flush=True)
            return True
        except Failed as failure:
            job.kill()
            print(f"{name}: FAILED: {failure}\n{job.report.read_text()}\n{job.said.read_text(errors='replace')}")
            return False


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--troupe", required=True, help="the program")
    parser.add_argument("--suspicion", type=float, default=1.0, metavar="SECONDS",
                        help="of silence, after which a process counts as lost (default 1)")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(SCENARIOS)} (default: all)")
    chosen = parser.parse_args()
    names = chosen.scenarios or list(SCENARIOS)
    if unknown := [name for name in names if name not in SCENARIOS]:
        parser.error(f"'{unknown[0]}' is no scenario: choose of {', '.join(SCENARIOS)}")
    try:
        troupe = str(pathlib.Path(chosen.troupe).resolve())
        return 0 if all([play(name, troupe, chosen.suspicion) for name in names]) else 1
    except Unavailable as reason:
        print(f"skipped: {reason}")
        return SKIPPED


if __name__ == "__main__":
    sys.exit(main())
