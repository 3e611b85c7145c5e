#!/usr/bin/env python3
"""Worlds over two hosts, each with an order service of its own, and a controller on a third.

Hosts are network namespaces. Two ranks on each host run on the mock. First the --cases of troupe conform; then clients in the
whole world and in sub-worlds at once (troupe stress order), whose logs are compared; then traffic while a process and an
order service are killed, and while an order service is stopped; then --losses faults drawn from --seed, of processes, order
services and the controller, while the clients agree: no two may hold different values for one position. Exits with 77 where
no namespaces can be made.
"""
import argparse
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

from virtual_network import Unavailable, VirtualNetwork

RANKS = 4
CONTROL = 0  # the hosts 1 and 2 have the ranks 0 and 1, and 2 and 3
PORT = 29777
SKIPPED = 77
SUSPICION = "2s"  # in the scenario in which a service is silent


class Failed(Exception):
    pass


def host_of(rank):
    return 1 + rank // 2


class Job:
    """A controller, an order service on each host, and the processes of a world."""

    def __init__(self, troupe, network, folder, words, policy="fail_fast", settings=()):
        self.troupe, self.network, self.folder, self.words = troupe, network, folder, words
        folder.mkdir()
        self.certificates = folder / "certificates"
        self.report = folder / "report"
        self.report.touch()
        subprocess.run([troupe, "certs", "--out", self.certificates, "--hosts", network.address(CONTROL)], check=True,
                       capture_output=True)
        self.environment = {**os.environ, "TROUPE_JOIN_TOKEN": "a secret of this job", "TROUPE_LOG": "info",
                            "TROUPE_PROFILE": "frugal", "TROUPE_BENCH_REPORT": str(self.report),
                            "TROUPE_CONTROL": f"{network.address(CONTROL)}:{PORT}"}
        for name, file in (("CA", "ca.pem"), ("CERTIFICATE", "host.pem"), ("KEY", "host.key")):
            self.environment[f"TROUPE_CONTROL_{name}"] = str(self.certificates / file)
        self.all = {}
        self.controller = [troupe, "controller", "-n", str(RANKS), "--bind", network.address(CONTROL), "--port", str(PORT),
                           "--certs", self.certificates, "--policy", policy, *settings]
        self.start_controller()
        for host in (1, 2):
            self.start_service(host)
        self.await_text("controller", "order service of host", 20, count=2)
        for rank in range(RANKS):
            self.start(rank)

    def start_controller(self):
        self.begin("controller", CONTROL, self.controller)
        self.await_text("controller", "TROUPE_CONTROL=", 20)

    def start_service(self, host):
        self.begin(f"service-{host}", host, [self.troupe, "order-service"])
        self.await_text(f"service-{host}", "ready", 20)

    def start(self, rank, attempt=0):
        self.begin(f"rank-{rank}-{attempt}", host_of(rank), [self.troupe, *self.words],
                   {"TROUPE_PROCESS": str(rank), "TROUPE_PLACE": str(rank), "TROUPE_ATTEMPT": str(attempt)})

    def begin(self, name, host, words, variables=None):
        with open(self.folder / name, "wb") as said:
            self.all[name] = subprocess.Popen(["ip", "netns", "exec", self.network.name(host), *map(str, words)],
                                              stdout=said, stderr=subprocess.STDOUT,
                                              env={**self.environment, **(variables or {})})

    def said(self, name):
        return (self.folder / name).read_text(errors="replace")

    def await_text(self, name, text, patience, count=1):
        until = time.monotonic() + patience
        while self.said(name).count(text) < count:
            if time.monotonic() > until or self.all[name].poll() is not None:
                raise Failed(f"{name} does not say '{text}'")
            time.sleep(0.02)

    def await_end(self, patience):
        """Until all have ended by themselves, with success."""
        until = time.monotonic() + patience
        running = dict(self.all)
        while running:
            for name, process in list(running.items()):
                status = process.poll()
                if status is None:
                    continue
                if status != 0:
                    raise Failed(f"{name} has ended with {status}")
                del running[name]
            if running and time.monotonic() > until:
                raise Failed(f"{', '.join(running)} does not end")
            time.sleep(0.02)

    def await_epoch(self, number, patience=60):
        """Until every rank has verified a result in that epoch."""
        until = time.monotonic() + patience
        while True:
            lines = [line.split() for line in self.report.read_text().splitlines()]
            if len({line[3] for line in lines if line[0] == "good" and line[2] == str(number)}) == RANKS:
                return
            if time.monotonic() > until:
                raise Failed(f"no results of all ranks in epoch {number}")
            time.sleep(0.02)

    def expect_served(self, epoch, hosts):
        """Checks which hosts' services serve in an epoch."""
        for host in (1, 2):
            served = re.findall(rf"epoch {epoch}: the requests of (\d) ranks", self.said(f"service-{host}"))
            if served != (["2"] if host in hosts else []):
                raise Failed(f"the service of host {host} serves {served} ranks in epoch {epoch}")

    def end(self):
        """Ends the world while all its ranks work, and checks their results."""
        self.all["controller"].send_signal(signal.SIGTERM)
        self.await_end(60)
        bad = [line for line in self.report.read_text().splitlines() if line.split()[0] in ("wrong", "hung")]
        if bad:
            raise Failed(f"wrong or hung: {bad}")

    def remove(self, name):
        """Kills a process, which is then not expected to end with success."""
        one = self.all.pop(name)
        one.kill()
        one.wait()

    def kill(self):
        for one in self.all.values():
            if one.poll() is None:
                one.kill()
                one.wait()


def conform(job):
    job.await_end(300)
    job.expect_served(1, (1, 2))
    for rank in range(RANKS):
        if "are ordered through shared memory" not in job.said(f"rank-{rank}-0"):
            raise Failed(f"the requests of rank {rank} do not go through shared memory")
    return "the cases passed in each process"


def stress(job, troupe, logs, options):
    job.await_end(300)
    job.expect_served(1, (1, 2))
    judged = subprocess.run([troupe, "stress", "order", f"--judge={logs}", f"--ranks={RANKS}", *options],
                            capture_output=True, text=True)
    if judged.returncode != 0:
        raise Failed(f"the orders differ: {judged.stdout}{judged.stderr}")
    return judged.stdout.strip().splitlines()[-1]


def faults(job):
    job.await_epoch(1)
    job.expect_served(1, (1, 2))
    job.remove("rank-1-0")
    job.start(1, attempt=1)
    job.await_epoch(2)
    job.expect_served(2, (1, 2))
    job.remove("service-1")
    job.await_epoch(3)
    job.expect_served(3, (2,))  # the ranks of host 1 go on through their connections
    job.end()
    return "a killed process and a killed service cost an epoch each"


def silence(job):
    job.await_epoch(1)
    job.expect_served(1, (1, 2))
    job.all["service-1"].send_signal(signal.SIGSTOP)
    job.await_epoch(2)
    job.expect_served(2, (2,))
    job.all["service-1"].send_signal(signal.SIGCONT)
    job.await_text("controller", "order service of host", 60, count=3)  # it has joined again
    job.remove("rank-3-0")
    job.start(3, attempt=1)
    job.await_epoch(3)
    if "epoch 3: the requests of 2 ranks" not in job.said("service-1"):
        raise Failed("a service that was given up does not serve again when it goes on")
    job.end()
    return "a service that is silent costs an epoch, and serves again when it goes on"


class Losses:
    """Faults of a job whose clients go on after each."""

    KINDS = ("kill_rank", "kill_rank", "kill_service", "kill_service", "stop_rank", "stop_service", "stop_controller",
             "restart_controller", "kill_rank_and_service", "kill_host", "restart_controller_and_service")

    def __init__(self, job, logs, seed):
        self.job, self.logs, self.draw = job, logs, random.Random(seed)
        self.attempts = [0] * RANKS
        self.counts = {}

    def process(self, rank):
        return self.job.all[f"rank-{rank}-{self.attempts[rank]}"]

    def received(self, rank):
        """The bytes of what the clients of a rank's process have received."""
        file = self.logs / f"{rank}-{self.process(rank).pid}"
        return file.stat().st_size if file.exists() else 0

    def restart_ended(self):
        for rank in range(RANKS):
            if self.process(rank).poll() is not None:
                del self.job.all[f"rank-{rank}-{self.attempts[rank]}"]
                self.attempts[rank] += 1
                self.job.start(rank, self.attempts[rank])

    def await_service(self, patience=60):
        """Until the clients of all ranks have received more, for a while."""
        until = time.monotonic() + patience
        for _ in range(2):
            before = None
            while before is None or any(self.received(rank) < size + 4096 for rank, size in enumerate(before)):
                if time.monotonic() > until:
                    raise Failed(f"the ranks have received {before}, and then {[self.received(r) for r in range(RANKS)]}")
                attempts = list(self.attempts)
                self.restart_ended()
                if before is None or attempts != self.attempts:
                    before = [self.received(rank) for rank in range(RANKS)]
                time.sleep(0.02)

    def kill_rank(self, rank=None):
        self.process(self.draw.randrange(RANKS) if rank is None else rank).kill()

    def kill_service(self, host=None):
        host = host or self.draw.choice((1, 2))
        self.job.remove(f"service-{host}")
        if self.draw.random() < 0.5:
            time.sleep(self.draw.uniform(0, 2))
        self.job.start_service(host)

    def stop(self, process):
        process.send_signal(signal.SIGSTOP)
        time.sleep(self.draw.choice((self.draw.uniform(0.05, 1), self.draw.uniform(2.2, 4))))
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)

    def stop_rank(self):
        self.stop(self.process(self.draw.randrange(RANKS)))

    def stop_service(self):
        self.stop(self.job.all[f"service-{self.draw.choice((1, 2))}"])

    def stop_controller(self):
        self.stop(self.job.all["controller"])

    def restart_controller(self):
        self.job.remove("controller")
        self.job.start_controller()

    def kill_rank_and_service(self):
        self.kill_rank()
        self.kill_service()

    def kill_host(self):
        host = self.draw.choice((1, 2))
        for rank in range(RANKS):
            if host_of(rank) == host:
                self.kill_rank(rank)
        self.kill_service(host)

    def restart_controller_and_service(self):
        self.job.remove("controller")
        self.kill_service()
        self.job.start_controller()

    def play(self, count):
        self.await_service()
        for _ in range(count):
            kind = self.draw.choice(self.KINDS)
            self.counts[kind] = self.counts.get(kind, 0) + 1
            time.sleep(self.draw.uniform(0, 0.3))
            getattr(self, kind)()
            self.await_service()


def losses(job, troupe, logs, seed, count):
    played = Losses(job, logs, seed)
    played.play(count)
    for host in (1, 2):  # one that was stopped may not have joined again, and then finds no controller
        job.remove(f"service-{host}")
    played.await_service()
    job.all["controller"].send_signal(signal.SIGTERM)
    job.await_end(60)
    judged = subprocess.run([troupe, "stress", "order", f"--judge={logs}", "--loses-processes"], capture_output=True, text=True)
    if judged.returncode != 0:
        raise Failed(f"{judged.stdout}{judged.stderr}")
    return f"{played.counts}: {' '.join(judged.stdout.split(chr(10)))}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--troupe", required=True, help="the program")
    parser.add_argument("--requests", type=int, default=20_000, help="of troupe stress order")
    parser.add_argument("--cases", default="", help="of troupe conform: those whose name contains this (default: all)")
    parser.add_argument("--losses", type=int, default=11, help="faults of processes, services and the controller")
    parser.add_argument("--seed", type=int, default=1, help="of these faults")
    parser.add_argument("--only", help="the name of one scenario")
    given = parser.parse_args()
    troupe = str(pathlib.Path(given.troupe).resolve())
    try:
        network = VirtualNetwork(3)
    except Unavailable as why:
        print(f"skipped: {why}")
        return SKIPPED
    mock = ["--backend", "mock", f"--mock-devices={RANKS}"]
    with tempfile.TemporaryDirectory(prefix="troupe-hosts-") as name:
        folder = pathlib.Path(name)
        logs, receipts = folder / "logs", folder / "receipts"
        logs.mkdir()
        receipts.mkdir()
        options = [f"--requests={given.requests}", "--clients=2", "--lanes=3", "--seed=5"]
        cases = ["--only", given.cases] if given.cases else []
        scenarios = [("conform", ["conform", "--seed=7", *cases, *mock], "fail_fast", (), conform),
                     ("stress", ["stress", "order", f"--logs={logs}", *options, *mock], "fail_fast", (),
                      lambda job: stress(job, troupe, logs, options)),
                     ("faults", ["bench", "process-member", "--pause", "5ms", *mock], "keep_size", (), faults),
                     ("silence", ["bench", "process-member", "--pause", "5ms", *mock], "keep_size", ("--suspicion", SUSPICION), silence),
                     ("losses", ["stress", "order", "--loses-processes", f"--logs={receipts}", "--clients=6", "--suspicion=2s",
                                 "--control-orphaned=rejoin", "--limits-hang=5s", "--deadlines-form=10s", *mock],
                      "keep_size", ("--suspicion", SUSPICION, "--rebuilds", "100000"),
                      lambda job: losses(job, troupe, receipts, given.seed, given.losses))]
        try:
            for what, words, policy, settings, play in scenarios:
                if given.only not in (None, what):
                    continue
                job = None
                try:
                    job = Job(troupe, network, folder / what, words, policy, settings)
                    print(f"{what}: {play(job)}", flush=True)
                except Failed as why:
                    print(f"FAILED: {what}: {why}")
                    for said in sorted((folder / what).iterdir()):
                        if said.is_file():
                            print(f"--- {said.name}\n{said.read_text(errors='replace')[-3000:]}")
                    return 1
                finally:
                    if job:
                        job.kill()
        finally:
            network.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
