#!/usr/bin/env python3
"""Many faults in many jobs, drawn from a seed: processes killed, stopped and starved of descriptors, launchers and controllers
stopped and restarted, networks cut, one-way and with a small MTU, names that resolve late, output that nobody reads.

Each job runs verifying processes: `troupe bench process-member`, which checks each all_reduce, or the example many_hosts, which
resumes from commits. After each fault all ranks must serve again within --patience. The script fails if a result is wrong, a
request is not answered, a world does not come back, a commit that was reached is forgotten, or a program does not end.

  chaos.py --build build/dev --faults 500 --jobs 8

Jobs over a network need root and /dev/net/tun. Without them the script says so, and draws the other kinds only.
"""
import argparse
import collections
import contextlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from virtual_network import Unavailable, VirtualNetwork

SUSPICION = 2.0
HANG = 3.0


class Failed(Exception):
    pass


def children(pid):
    found = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                found += [int(child) for child in pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split()]
    return found


def variable_of(pid, name):
    with contextlib.suppress(OSError):
        for entry in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(name.encode() + b"="):
                return entry.split(b"=", 1)[1].decode()
    return None


def send(pid, which):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, which)


class Traffic:
    """The reports of process-member: which ranks have verified a sum in which epoch."""

    def __init__(self, folder):
        self.file = folder / "report"
        self.file.touch()
        self.variables = {"TROUPE_BENCH_REPORT": str(self.file)}

    def command(self, troupe, many_hosts):
        return [troupe, "bench", "process-member"]

    def lines(self):
        return [text.split() for text in self.file.read_text().splitlines(keepends=True) if text.endswith("\n")]

    def epochs(self):
        """Of each epoch that all its ranks serve: its size."""
        ranks, sizes = collections.defaultdict(set), {}
        for kind, _, epoch, rank, size, *_ in self.lines():
            if kind == "good":
                ranks[int(epoch)].add(rank)
                sizes[int(epoch)] = int(size)
        return {epoch: sizes[epoch] for epoch, found in ranks.items() if len(found) == sizes[epoch]}

    def faults(self):
        kinds = collections.Counter(line[0] for line in self.lines())
        return {kind: kinds[kind] for kind in ("wrong", "hung") if kinds[kind]}


class Training:
    """The output of many_hosts: the step at which each rank begins each epoch."""

    BEGINS = re.compile(r"rank (\d+) of (\d+) in epoch (\d+) begins at step (\d+)")

    def __init__(self, folder):
        self.file = folder / "said"
        self.variables = {}

    def command(self, troupe, many_hosts):
        return [many_hosts, "--steps", "1000000000", "--commit-every", "50"]

    def begun(self):
        steps, sizes = collections.defaultdict(dict), {}
        text = self.file.read_text(errors="replace") if self.file.exists() else ""
        for rank, size, epoch, step in self.BEGINS.findall(text):
            steps[int(epoch)][rank] = int(step)
            sizes[int(epoch)] = int(size)
        return steps, sizes

    def epochs(self):
        steps, sizes = self.begun()
        return {epoch: sizes[epoch] for epoch, ranks in steps.items() if len(ranks) == sizes[epoch]}

    def faults(self):
        steps, _ = self.begun()
        found = collections.Counter()
        before = 0
        for epoch in sorted(steps):
            if len(set(steps[epoch].values())) > 1:
                found["wrong"] += 1
            if min(steps[epoch].values()) < before:
                found["forgotten"] += 1
            before = max(before, *steps[epoch].values())
        text = self.file.read_text(errors="replace")
        found["wrong"] += text.count("WRONG")
        found["forgotten"] += text.count("no rank has the state of commit")
        return {kind: count for kind, count in found.items() if count}


class Job:
    """A world of processes, its faults, and its end."""

    kinds = ()
    sizes = (2, 3, 4)
    backends = ("mock", "gloo")

    def __init__(self, setup, draw, folder):
        self.setup, self.draw, self.folder = setup, draw, folder
        self.size = draw.choice(self.sizes)
        self.work = draw.choice((Traffic, Training))(folder)
        self.said = folder / "said"
        self.environment = {**os.environ, "TROUPE_PROFILE": "frugal", "TROUPE_MOCK_DEVICES": "8",
                            "TROUPE_BACKEND": draw.choice(self.backends), "TROUPE_LIMITS_HANG": f"{HANG:.0f}s",
                            "TROUPE_DEADLINES_FORM": "10s", "TROUPE_CONTROL_ORPHANED": "rejoin", **self.work.variables}
        self.wrap = []

    def describe(self):
        return f"{type(self).__name__.lower()} of {self.size}, {type(self.work).__name__.lower()}, {self.environment['TROUPE_BACKEND']}"

    def spawn(self, command, output=None, **variables):
        target = output if output is not None else open(self.said, "ab")
        try:
            return subprocess.Popen(command, stdout=target, stderr=subprocess.STDOUT, env={**self.environment, **variables})
        finally:
            if output is None:
                target.close()

    def latest(self):
        return max(self.work.epochs(), default=0)

    def await_world(self, after, size=None):
        """Until all ranks of an epoch later than \\p after serve."""
        until = time.monotonic() + self.setup.patience
        while time.monotonic() < until:
            found = [epoch for epoch, of in self.work.epochs().items() if epoch > after and of == (size or self.size)]
            if found:
                return max(found)
            self.check()
            time.sleep(0.05)
        raise Failed(f"no world of {size or self.size} served within {self.setup.patience} s after epoch {after}")

    def check(self):
        """Raises if a program that must live has ended."""

    def settle(self, before, must_change):
        """After a fault: a later epoch, if the fault must lead to one; otherwise whatever epoch is the last serves."""
        if must_change:
            self.await_world(before)
        else:
            time.sleep(SUSPICION + 1)
            if any(epoch > before for epoch in self.begun_epochs()):
                self.await_world(before)

    def begun_epochs(self):
        return self.work.epochs()

    def fault(self, kind):
        """Raises a fault of that kind, and waits until all serve again. Returns the seconds that it took."""
        before = self.latest()
        began = time.monotonic()
        getattr(self, kind)(before)
        return time.monotonic() - began

    def end(self, program, pids):
        """The program that the others depend on is told to end; all end within a bound."""
        for pid in pids:
            send(pid, signal.SIGCONT)
        send(program.pid, signal.SIGCONT)
        program.terminate()
        try:
            program.wait(60)
        except subprocess.TimeoutExpired:
            raise Failed("the program does not end within 60 s of SIGTERM") from None
        until = time.monotonic() + 20
        while left := [pid for pid in pids if variable_of(pid, "TROUPE_CHAOS") == str(self.folder)]:
            if time.monotonic() > until:
                raise Failed(f"{len(left)} processes have outlived their launcher")
            time.sleep(0.05)


class Launched(Job):
    """troupe launch."""

    kinds = ("kill", "kill", "kill", "kill_two", "pause", "stop", "stop_launcher", "descriptors")

    def __init__(self, setup, draw, folder):
        super().__init__(setup, draw, folder)
        self.environment["TROUPE_CHAOS"] = str(folder)
        self.unread = self.launcher = None

    def begin(self):
        setup, draw = self.setup, self.draw
        command = [setup.troupe, "launch", "-n", str(self.size), "--respawns", "100000", "--suspicion",
                   f"{int(SUSPICION * 1000)}ms", "--",
                   *self.work.command(setup.troupe, setup.many_hosts)]
        output = None
        if isinstance(self.work, Traffic) and draw.random() < 0.5:  # a stderr that nobody reads
            self.unread = os.pipe()
            output = self.unread[1]
            self.environment["TROUPE_LOG"] = "debug"
        self.launcher = self.spawn(command, output)
        self.await_world(0)

    def describe(self):
        return super().describe() + (", unread output" if self.unread else "")

    def check(self):
        if self.launcher.poll() is not None:
            raise Failed(f"the launcher has ended with {self.launcher.returncode}")

    def members(self):
        return {variable_of(pid, "TROUPE_PROCESS"): pid for pid in children(self.launcher.pid)
                if variable_of(pid, "TROUPE_PROCESS")}

    def victim(self):
        return self.draw.choice(sorted(self.members().values()))

    def kill(self, before):
        send(self.victim(), signal.SIGKILL)
        self.settle(before, True)

    def kill_two(self, before):
        pids = sorted(self.members().values())
        for pid in self.draw.sample(pids, min(2, len(pids) - 1)):
            send(pid, signal.SIGKILL)
        self.settle(before, True)

    def pause(self, before):
        """Shorter than the suspicion: no fault."""
        pid = self.victim()
        send(pid, signal.SIGSTOP)
        time.sleep(self.draw.uniform(0.05, SUSPICION / 2))
        send(pid, signal.SIGCONT)
        self.settle(before, False)

    def stop(self, before):
        """Longer than the suspicion: the process counts as lost and is replaced."""
        pid = self.victim()
        send(pid, signal.SIGSTOP)
        time.sleep(SUSPICION + 1)
        send(pid, signal.SIGCONT)
        self.settle(before, True)

    def stop_launcher(self, before):
        """A launcher that was asleep loses nobody for it."""
        pids = set(self.members().values())
        send(self.launcher.pid, signal.SIGSTOP)
        time.sleep(self.draw.uniform(0.5, 2 * SUSPICION))
        send(self.launcher.pid, signal.SIGCONT)
        self.settle(before, False)
        if lost := pids - set(self.members().values()):
            raise Failed(f"{len(lost)} processes were lost while their launcher was stopped")

    def descriptors(self, before):
        """A process has no free descriptors while another is replaced."""
        pids = sorted(self.members().values())
        starved = self.draw.choice(pids)
        subprocess.run(["prlimit", "--pid", str(starved), "--nofile=8:"], capture_output=True)
        send(self.draw.choice([pid for pid in pids if pid != starved] or pids), signal.SIGKILL)
        time.sleep(1)
        subprocess.run(["prlimit", "--pid", str(starved), "--nofile=1024:"], capture_output=True)
        self.settle(before, True)

    def finish(self):
        if self.unread:  # still unread while it ends
            os.set_blocking(self.unread[0], False)
        try:
            self.end(self.launcher, list(self.members().values()))
        finally:
            for descriptor in self.unread or ():
                os.close(descriptor)

    def kill_all(self):
        for pid in [*self.members().values(), self.launcher.pid]:
            send(pid, signal.SIGKILL)
        self.launcher.wait()


class Controlled(Job):
    """troupe controller, and processes that this script starts, and starts again when they end.

    Half of the jobs start their processes before the controller and, where mounts can be made, before its name resolves.
    """

    kinds = ("kill", "kill", "kill_two", "pause", "restart_controller", "restart_controller", "stop_controller",
             "restart_and_kill")
    policy = "keep_size"

    def __init__(self, setup, draw, folder, network=None):
        super().__init__(setup, draw, folder)
        self.network = network
        self.environment.update(TROUPE_CHAOS=str(folder), TROUPE_JOIN_TOKEN="a secret of this job")
        self.port = setup.port()
        self.attempts = collections.Counter()
        self.processes = {}
        self.over = False
        self.controller = self.watcher = None
        self.name_file = self.certificates = None

    def begin(self):
        draw, folder, network = self.draw, self.folder, self.network
        if network:
            self.make_certificates(network.address(self.size))
        late = network is None and draw.random() < 0.5
        if late and self.setup.has_mounts:
            self.name_file = folder / "hosts"
            self.name_file.write_text("127.0.0.1 localhost\n")
            (folder / "resolv.conf").write_text("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
            self.make_certificates("controller.test")
        if not late:
            self.controller = self.start_controller()
        for place in range(self.size):
            self.start(place)
        if late:
            time.sleep(draw.uniform(0.5, 2))
            self.controller = self.start_controller()
            if self.name_file:
                time.sleep(draw.uniform(0, 2))
                self.name_file.write_text("127.0.0.1 localhost controller.test\n")
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()
        self.await_world(0)

    def host(self, place):
        """The command that enters the host of a place; the controller's is the one after the last."""
        if self.name_file is None or place == self.size:
            return []
        enter = 'mount --bind "$0/hosts" /etc/hosts && mount --bind "$0/resolv.conf" /etc/resolv.conf && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", enter, str(self.folder)]

    def variables_of(self, place):
        name = "127.0.0.1" if self.name_file is None else "controller.test"
        return {"TROUPE_CONTROL": f"{name}:{self.port}", **self.certificates_of()}

    def make_certificates(self, host):
        self.certificates = self.folder / "certificates"
        subprocess.run([self.setup.troupe, "certs", "--out", self.certificates, "--hosts", host], check=True,
                       capture_output=True)

    def certificates_of(self):
        if self.certificates is None:
            return {}
        files = {"CA": "ca.pem", "CERTIFICATE": "host.pem", "KEY": "host.key"}
        return {f"TROUPE_CONTROL_{name}": str(self.certificates / file) for name, file in files.items()}

    def controller_options(self):
        return ["--port", str(self.port), *(["--certs", self.certificates] if self.certificates else [])]

    def start_controller(self):
        return self.spawn([*self.host(self.size), self.setup.troupe, "controller", "-n", str(self.size),
                           "--policy", self.policy, "--suspicion", f"{int(SUSPICION * 1000)}ms", "--rebuilds", "100000",
                           *self.controller_options()])

    def start(self, place):
        variables = {"TROUPE_PROCESS": str(place), "TROUPE_PLACE": str(place), "TROUPE_DEVICE": str(place),
                     "TROUPE_ATTEMPT": str(self.attempts[place]), **self.variables_of(place)}
        self.attempts[place] += 1
        self.processes[place] = self.spawn([*self.host(place), *self.work.command(self.setup.troupe, self.setup.many_hosts)],
                                           **variables)

    def watch(self):
        while not self.over:
            for place, process in list(self.processes.items()):
                if process.poll() is not None and not self.over:
                    self.start(place)
            time.sleep(0.1)

    def victim(self):
        return self.processes[self.draw.randrange(self.size)].pid

    kill, pause = Launched.kill, Launched.pause

    def kill_two(self, before):
        for place in self.draw.sample(range(self.size), min(2, self.size - 1)):
            send(self.processes[place].pid, signal.SIGKILL)
        self.settle(before, True)

    def restart_controller(self, before):
        self.controller.kill()
        self.controller.wait()
        time.sleep(self.draw.uniform(0, 1))
        self.controller = self.start_controller()
        self.settle(before, True)

    def stop_controller(self, before):
        send(self.controller.pid, signal.SIGSTOP)
        time.sleep(self.draw.uniform(0.5, 2 * SUSPICION))
        send(self.controller.pid, signal.SIGCONT)
        self.settle(before, False)

    def restart_and_kill(self, before):
        """The first epoch of a new controller is lost before its first commit."""
        self.restart_controller(before)
        after = self.latest()
        send(self.victim(), signal.SIGKILL)
        self.settle(after, True)

    def finish(self):
        self.over = True
        self.watcher.join()
        if self.network:
            self.network.heal()
        pids = [process.pid for process in self.processes.values()]
        for pid in pids:
            send(pid, signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                raise Failed("a process does not end within 60 s of SIGTERM") from None
        self.end(self.controller, pids)

    def kill_all(self):
        self.over = True
        if self.watcher:
            self.watcher.join()
        for process in [*self.processes.values(), self.controller]:
            if process:
                process.kill()
                process.wait()


class Networked(Controlled):
    """The same on hosts of a network of their own, with Gloo and mutual TLS."""

    kinds = ("cut_host", "one_way", "cut_link", "small_packets", "lossy", "kill", "restart_controller")
    policy = "shrink"
    sizes = (4,)
    backends = ("gloo",)

    def __init__(self, setup, draw, folder):
        self.hosts = VirtualNetwork(5, seed=draw.random())
        super().__init__(setup, draw, folder, self.hosts)

    def host(self, place):
        return ["ip", "netns", "exec", self.hosts.name(place)]

    def controller_options(self):
        return ["--bind", self.hosts.address(4), *super().controller_options()]

    def variables_of(self, place):
        return {"TROUPE_CONTROL": f"{self.hosts.address(4)}:{self.port}", "TROUPE_HOST": self.hosts.name(place),
                "TROUPE_DEVICE": "0", "TROUPE_GLOO_INTERFACE_ADDRESS": self.hosts.address(place),
                **self.certificates_of()}

    def without_one(self, before, both_ways, sources, targets, **what):
        self.hosts.set(sources, targets, **what)
        if both_ways:
            self.hosts.set(targets, sources, **what)
        after = self.await_world(before, self.size - 1)
        self.hosts.heal()
        self.await_world(after)

    def cut_host(self, before):
        lost = self.draw.randrange(self.size)
        self.without_one(before, True, [lost], [host for host in range(5) if host != lost], cut=True)

    def one_way(self, before):
        self.without_one(before, False, [self.draw.randrange(self.size)], range(5), cut=True)

    def cut_link(self, before):
        """Between neighbours in the ring of the sums: nobody misses another link while the epoch lasts."""
        one = self.draw.randrange(self.size)
        self.without_one(before, True, [one], [(one + 1) % self.size], cut=True)

    def small_packets(self, before):
        """Packets of more than 400 bytes, fewer than a part of a sum has, are lost between two hosts, which are neighbours in
        the ring of the sums."""
        one = self.draw.randrange(self.size)
        self.without_one(before, True, [one], [(one + 1) % self.size], most=400)

    def lossy(self, before):
        everybody = range(5)
        self.hosts.set(everybody, everybody, loss=0.02, delay=0.002)
        time.sleep(3)
        self.hosts.heal()
        self.settle(before, False)

    def finish(self):
        try:
            super().finish()
        finally:
            self.hosts.close()

    def kill_all(self):
        super().kill_all()
        self.hosts.close()


class Setup:
    def __init__(self, chosen):
        programs = pathlib.Path(chosen.build).resolve() / "bin"
        self.troupe, self.many_hosts = str(programs / "troupe"), str(programs / "many_hosts")
        self.patience = chosen.patience
        self.kinds = [Launched, Controlled, Networked]
        mounts = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
        self.has_mounts = mounts.returncode == 0
        if not self.has_mounts:
            print(f"no names that resolve late: {mounts.stderr.decode().strip()}", flush=True)
        self._lock = threading.Lock()
        self._ports = iter(range(21000, 60000))

    def port(self):
        with self._lock:
            return next(self._ports)


def play(setup, seed, faults, results):
    """One job with some faults. Appends each to \\p results."""
    draw = random.Random(seed)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="troupe-chaos-")))
        kind = draw.choice(setup.kinds)
        job = None
        doing = "start"
        try:
            job = kind(setup, draw, folder)
            job.begin()
            for _ in range(faults):
                doing = draw.choice(job.kinds)
                took = job.fault(doing)
                results.append((kind.__name__.lower(), doing, took, None))
            doing = "end"
            job.finish()
            if bad := job.work.faults():
                raise Failed(f"{bad}")
        except Unavailable as reason:
            if kind in setup.kinds:
                setup.kinds.remove(kind)
                print(f"no jobs over a network: {reason}", flush=True)
        except Failed as failure:
            text = (folder / "said").read_text(errors="replace") if (folder / "said").exists() else ""
            results.append((kind.__name__.lower(), doing, 0.0, str(failure)))
            print(f"seed {seed}: {job.describe() if job else kind.__name__}: {doing}: FAILED: {failure}\n{text[-4000:]}", flush=True)
            if job:
                job.kill_all()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, metavar="DIR", help="a build, whose bin has troupe and many_hosts")
    parser.add_argument("--faults", type=int, default=500, help="how many, over all jobs (default 500)")
    parser.add_argument("--each", type=int, default=10, metavar="N", help="faults of each job (default 10)")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="jobs at a time (default 2)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default="", metavar="KIND,…", help="of launched, controlled, networked (default: all)")
    parser.add_argument("--patience", type=float, default=60.0, metavar="S", help="for a world to serve again (default 60)")
    chosen = parser.parse_args()
    setup = Setup(chosen)
    if chosen.kinds:
        setup.kinds = [kind for kind in setup.kinds if kind.__name__.lower() in chosen.kinds.split(",")]
        if not setup.kinds:
            parser.error(f"'{chosen.kinds}' names no kind of job: choose of launched, controlled, networked")
    results, seeds, lock = [], iter(range(chosen.seed, sys.maxsize)), threading.Lock()
    jobs = (chosen.faults + chosen.each - 1) // chosen.each

    def worker():
        while True:
            with lock:
                seed = next(seeds)
            if seed >= chosen.seed + jobs or not setup.kinds:
                return
            play(setup, seed, chosen.each, results)

    workers = [threading.Thread(target=worker) for _ in range(chosen.jobs)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    table = collections.defaultdict(list)
    for job, kind, took, failure in results:
        table[job, kind].append((took, failure))
    print(f"{'job':<11}{'fault':<22}{'count':>6}{'failed':>8}{'p50 s':>8}{'max s':>8}")
    for (job, kind), entries in sorted(table.items()):
        times = sorted(took for took, failure in entries if failure is None) or [0.0]
        failed = sum(failure is not None for _, failure in entries)
        print(f"{job:<11}{kind:<22}{len(entries):>6}{failed:>8}{times[len(times) // 2]:>8.2f}{times[-1]:>8.2f}")
    failed = sum(failure is not None for *_, failure in results)
    print(f"{len(results) - failed} passed, {failed} failed")
    sys.exit(1 if failed or not results else 0)


if __name__ == "__main__":
    main()
