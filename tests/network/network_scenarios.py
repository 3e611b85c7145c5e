#!/usr/bin/env python3
"""Worlds of Gloo over four hosts whose network is cut, slow, lossy, or works in one direction only.

Each host is a network namespace, a fifth has the launcher with the world's controller, behind mutual TLS. Each process
enters the namespace of its place. The processes verify all_reduces and report what they see: without pause, except where
a scenario waits for a hang or for a link that is tried again. The launcher can kill a process that it cannot reach; in the
scenario self-fencing there is no launcher.
Exits with 77 where no namespaces can be made.
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
HANG = 3  # seconds: limits.hang, where a scenario waits for it
CONTROL = HOSTS  # the host after them
SKIPPED = 77


class Failed(Exception):
    pass


def expect(holds, text):
    if not holds:
        raise Failed(text)


class Line:
    """One of a process's reports: see program/bench/bench_processes.cpp (traffic_line)."""

    def __init__(self, text):
        kind, process, epoch, rank, size, at, span, count = text.split()
        self.kind, self.process = kind, process
        self.epoch, self.rank, self.size = int(epoch), int(rank), int(size)
        self.at, self.span, self.count = int(at) / 1e9, int(span) / 1e9, int(count)


class Reports:
    """What the processes of a world say, and whether the program that they depend on still runs."""

    def __init__(self, troupe, network, folder, suspicion):
        self.suspicion = suspicion
        self.report = folder / "report"
        self.report.touch()
        self.said = folder / "said"
        self.certificates = folder / "certificates"
        self.environment = {**os.environ, "TROUPE_BENCH_REPORT": str(self.report), "TROUPE_PROFILE": "frugal"}
        self.launcher = None
        subprocess.run([troupe, "certs", "--out", self.certificates, "--hosts", network.address(CONTROL)], check=True,
                       capture_output=True)

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
        """Asks all to end; nothing may be wrong or unanswered. Returns how often a rank verified its first sum of an epoch."""
        self.launcher.send_signal(signal.SIGTERM)
        try:
            self.launcher.wait(40)
        except subprocess.TimeoutExpired:
            raise Failed("the launcher does not end") from None
        lines = self.lines()
        for bad in ("wrong", "hung"):
            expect(not [line for line in lines if line.kind == bad], f"a result was {bad}")
        return sum(line.kind == "good" for line in lines)

    def slowest_answer(self, since):
        """Of what was pending when a world was lost."""
        return max((line.span for line in self.lines() if line.kind == "answered" and line.at >= since), default=0.0)

    def kill(self):
        if self.launcher.poll() is None:
            self.launcher.kill()
            self.launcher.wait()


class Job(Reports):
    """troupe launch on the host of control; each of its processes moves to a host of its own."""

    def __init__(self, troupe, network, folder, suspicion, policy="shrink", options=(), traffic=("--pause", "5ms"), variables=None):
        super().__init__(troupe, network, folder, suspicion)
        prefix = network.name(0).removesuffix("0")
        member = (f"export TROUPE_HOST={prefix}$TROUPE_PLACE TROUPE_DEVICE=0 "
                  'TROUPE_GLOO_INTERFACE_ADDRESS=10.77.0.$((TROUPE_PLACE + 1)); '
                  'exec ip netns exec "$TROUPE_HOST" "$0" "$@"')
        with open(self.said, "wb") as said:
            self.launcher = subprocess.Popen(
                ["ip", "netns", "exec", network.name(CONTROL), troupe, "launch", "-n", str(HOSTS), "--bind",
                 network.address(CONTROL), "--certs", self.certificates, "--policy", policy, "--suspicion",
                 f"{int(suspicion * 1000)}ms", *options,
                 "--", "sh", "-c", member, troupe, "bench", "process-member", "--backend", "gloo", *traffic],
                stdout=said, stderr=subprocess.STDOUT, env={**self.environment, **(variables or {})})


class Unwatched(Reports):
    """troupe controller, and processes that nobody watches: what is cut off can only end by itself."""

    def __init__(self, troupe, network, folder, suspicion, policy="shrink", options=(), variables=None):
        super().__init__(troupe, network, folder, suspicion)
        self.troupe, self.network = troupe, network
        self.environment.update(TROUPE_JOIN_TOKEN="a secret of this job", **(variables or {}))
        self.processes = {}
        with open(self.said, "wb") as said:
            self.launcher = subprocess.Popen(
                ["ip", "netns", "exec", network.name(CONTROL), troupe, "controller", "-n", str(HOSTS), "--bind",
                 network.address(CONTROL), "--port", "29777", "--certs", self.certificates, "--policy", policy,
                 "--suspicion", f"{int(suspicion * 1000)}ms", *options], stdout=said, stderr=subprocess.STDOUT,
                env=self.environment)
        for host in range(HOSTS):
            self.start(host)

    def start(self, host):
        certificate = {name: str(self.certificates / file) for name, file in (
            ("TROUPE_CONTROL_CA", "ca.pem"), ("TROUPE_CONTROL_CERTIFICATE", "host.pem"),
            ("TROUPE_CONTROL_KEY", "host.key"))}
        with open(self.said, "ab") as said:
            self.processes[host] = subprocess.Popen(
                ["ip", "netns", "exec", self.network.name(host), self.troupe, "bench", "process-member", "--backend",
                 "gloo", "--pause", "5ms"], stdout=said, stderr=subprocess.STDOUT,
                env={**self.environment, **certificate, "TROUPE_PROCESS": str(host), "TROUPE_PLACE": str(host),
                     "TROUPE_HOST": self.network.name(host), "TROUPE_ATTEMPT": "1",
                     "TROUPE_CONTROL": f"{self.network.address(CONTROL)}:29777",
                     "TROUPE_GLOO_INTERFACE_ADDRESS": self.network.address(host)})

    def kill(self):
        for one in self.processes.values():
            if one.poll() is None:
                one.kill()
                one.wait()
        super().kill()


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


def cut_link(network, one, other):
    network.set([one], [other], cut=True)
    network.set([other], [one], cut=True)


def play_broken_link(job, network, size):
    """Hosts 2 and 3 cannot reach each other; both reach everybody else, the controller too."""
    first = job.await_world(HOSTS, 1, 60)
    began = time.monotonic()
    cut_link(network, 2, 3)
    epoch = job.await_world(size, first + 1, HANG + 10 + job.slack)
    return epoch, time.monotonic() - began


def play_large_loss(job, network, text, both=True, **what):
    """Small packets pass between hosts 2 and 3: a world forms, and its next large operation hangs."""
    first = job.await_world(HOSTS, 1, 60)
    began = time.monotonic()
    network.set([3], [2], **what)  # the direction of Gloo's ring
    if both:
        network.set([2], [3], **what)
    epoch = job.await_world(HOSTS - 1, first + 1, 2 * HANG + 10 + job.slack)
    resolved = time.monotonic() - began
    expect("bytes with rank" in job.said.read_text(errors="replace"), "the reason does not say that large packets are lost")
    network.heal()
    job.await_world(HOSTS, epoch + 1, 60)
    expect("started again" not in job.said.read_text(errors="replace"), "a healthy process was started again")
    return f"three went on {resolved:.2f} s after {text} (limits.hang {HANG} s), and four when it was healed"


def narrow_link(job, network):
    return play_large_loss(job, network, "the link between two of four lost packets over 400 bytes", most=400)


def narrow_one_way(job, network):
    return play_large_loss(job, network, "a link lost packets over 400 bytes in one direction", both=False, most=400)


def corrupting_link(job, network):
    return play_large_loss(job, network, "the link between two of four changed packets over 400 bytes", sound=400)


def crawling_link(job, network):
    return play_large_loss(job, network, "the link between two of four carried 500 bytes per second", rate=500)


def broken_link(job, network):
    epoch, resolved = play_broken_link(job, network, HOSTS - 1)
    began = time.monotonic()
    network.heal()
    job.await_world(HOSTS, epoch + 1, 60)
    grown = time.monotonic() - began
    expect("started again" not in job.said.read_text(errors="replace"), "a healthy process was started again")
    return (f"three went on {resolved:.2f} s after the link between two of four was cut (limits.hang {HANG} s), four "
            f"again {grown:.2f} s after it was healed, no process was started again")


def broken_link_spare(job, network):
    _, resolved = play_broken_link(job, network, HOSTS)
    good = [line for line in job.lines() if line.kind == "good" and line.epoch == job.latest_epoch()]
    expect("s0" in {line.process for line in good}, "the spare is not in the world")
    network.heal()
    return f"four with the spare went on {resolved:.2f} s after the link between two was cut (limits.hang {HANG} s)"


def flapping(job, network):
    """Cuts shorter than a second cost nothing."""
    first = job.await_world(HOSTS, 1, 60)
    others = [host for host in range(HOSTS + 1) if host != 3]
    for _ in range(10):
        network.set([3], others, cut=True)
        network.set(others, [3], cut=True)
        time.sleep(0.6)
        network.heal()
        time.sleep(1)
    expect(job.latest_epoch() == first, f"the world is in epoch {job.latest_epoch()}, and was in {first}")
    return "ten cuts of 0.6 s: the same epoch"


def controller_cut_off(job, network):
    """The ranks reach each other, and none of them the controller: none may serve on without it."""
    first = job.await_world(HOSTS, 1, 60)
    ranks = range(HOSTS)
    began = time.monotonic()
    network.set([CONTROL], ranks, cut=True)
    network.set(ranks, [CONTROL], cut=True)
    time.sleep(2 * job.suspicion + 2)
    network.heal()
    job.await_world(HOSTS, first + 1, 60)
    slowest = job.slowest_answer(began)
    expect(slowest < job.suspicion + 2 + job.slack, f"what was pending was answered after {slowest:.2f} s")
    return f"the controller was cut off for {2 * job.suspicion + 2:.0f} s, then four served again"


def self_fencing(job, network):
    """A process that is cut off ends by itself, about when the others take it for lost; nobody is there to kill it."""
    first = job.await_world(HOSTS, 1, 60)
    others = [host for host in range(HOSTS + 1) if host != 3]
    began = time.monotonic()
    network.set([3], others, cut=True)
    network.set(others, [3], cut=True)
    lost = job.processes[3]
    try:
        status = lost.wait(job.suspicion + 5 + job.slack)
    except subprocess.TimeoutExpired:
        raise Failed("the process that was cut off still runs") from None
    ended = time.monotonic() - began
    expect(status == 75, f"the process that was cut off ended with {status}")
    epoch = job.await_world(HOSTS - 1, first + 1, 20)
    late = [line for line in job.lines() if line.process == "3" and line.epoch > first]
    expect(not late, "the process that was cut off served on")
    network.heal()
    job.start(3)
    job.await_world(HOSTS, epoch + 1, 40)
    return f"it ended by itself after {ended:.2f} s (status 75), three went on, and four with its successor"


SCENARIOS = {"partition": partition, "one-way-loss": one_way_loss, "delay": delay, "loss": loss,
             "broken-link": broken_link, "broken-link-spare": broken_link_spare, "narrow-link": narrow_link,
             "narrow-one-way": narrow_one_way, "corrupting-link": corrupting_link, "crawling-link": crawling_link,
             "flapping": flapping,
             "controller-cut-off": controller_cut_off, "self-fencing": self_fencing}
AS_SHIPPED = 10.0  # seconds: the default of --suspicion
#: Elements of a sum that goes around Gloo's ring, so that it needs the link between hosts 2 and 3 (docs/gloo.md).
LARGE = 100_000
HANGS = {"variables": {"TROUPE_LIMITS_HANG": f"{HANG}s"}, "traffic": ("--pause", "50ms", "--elements", str(LARGE))}
# What differs from a launched job under the policy shrink.
SETUPS = {**{name: HANGS for name in ("broken-link", "narrow-link", "narrow-one-way", "corrupting-link", "crawling-link")},
          "broken-link-spare": {**HANGS, "policy": "keep_size", "options": ("--spares", "1")},
          "flapping": {"suspicion": AS_SHIPPED}}


def play(name, troupe, suspicion):
    """Whether the scenario held."""
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="troupe-network-")))
        network = VirtualNetwork(HOSTS + 1)
        stack.callback(network.close)
        kind = Unwatched if name == "self-fencing" else Job
        job = kind(troupe, network, folder, **{"suspicion": suspicion, **SETUPS.get(name, {})})
        job.slack = 5 * (suspicion - 1)  # where everything is slower, under sanitizers
        stack.callback(job.kill)
        try:
            text = SCENARIOS[name](job, network)
            print(f"{name}: {text}; ranks verified the first sum of an epoch {job.finish()} times, 0 wrong, 0 hung", flush=True)
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
