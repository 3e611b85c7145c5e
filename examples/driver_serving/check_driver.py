#!/usr/bin/env python3
"""Runs the example driver_serving with users, kills some of its processes at random, and checks the answers.

Usage: check_driver.py TROUPE DRIVER_SERVING ranks KILLS [SEED]
       check_driver.py TROUPE DRIVER_SERVING drivers KILLS [SEED]

`ranks`: kills processes of ranks, or stops them for longer than the suspicion time and then kills them; they are started
again. Each request of a user must be answered once and correctly, by the same driver.
`drivers`: kills the driver, also after it was stopped for longer than the suspicion time, with or without serving again in
between, and starts another one.
The ranks' own sums must go on meanwhile. Users repeat the requests that a driver has not answered. Each driver holds
a quarter of each rank's memory, so the last ones can serve only if the memory of the first ones has been let go.

The environment may set RANKS (4) and BACKEND: mock, gloo or nccl, which needs a GPU for each rank.
"""
import collections
import http.client
import json
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

RANKS = int(os.environ.get("RANKS", "4"))
BACKEND = os.environ.get("BACKEND", "mock")
USERS = 6
NUMBERS = 4  # different requests of users, whose answers are computed beforehand
PATIENCE = 60  # seconds for anything that must happen
SUSPICION = 3.0  # long enough that a process on a busy machine does not count as lost
MODEL = ["--width", "24", "--layers", "2", "--batch", "4"]
MEMORY_BYTES = 64 << 20  # of a rank
SUMS = re.compile(r"rank (\d+): (\d+) own sums are right")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Process:
    """A process, and the lines that it has written."""

    def __init__(self, words, environment):
        self.lines = collections.deque(maxlen=30)
        self.popen = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                      env={**os.environ, **environment})

    @property
    def pid(self):
        return self.popen.pid

    def is_running(self):
        return self.popen.poll() is None

    def end(self, which):
        if self.is_running():
            self.popen.send_signal(which)


class World:
    """A controller and a process for each rank, which is started again when it ends."""

    def __init__(self, troupe, program, has_own_sums):
        self.program = program
        self.changed = threading.Condition()
        self.is_over = False
        self.failures = []
        self.sums = collections.Counter()  # number of own sums so far, by rank
        self.ranks = [None] * RANKS
        self.restarts = 0
        self.rank_words = [program, "rank", *MODEL, "--backend", BACKEND, "--mock-memory-bytes", str(MEMORY_BYTES),
                           "--own-sums", "1" if has_own_sums else "0"]
        port = free_port()
        self.variables = {"TROUPE_CONTROL": f"127.0.0.1:{port}", "TROUPE_JOIN_TOKEN": secrets.token_hex(32)}
        self.controller = self.start([troupe, "controller", "-n", str(RANKS), "--port", str(port), "--rebuilds", "1000000",
                                      "--suspicion", f"{round(1000 * SUSPICION)}ms", "--log", "warn"], {})
        for rank in range(RANKS):
            threading.Thread(target=self.keep, args=[rank], daemon=True).start()

    def start(self, words, environment):
        process = Process(words, {**self.variables, "TROUPE_LOG": "warn", **environment})
        threading.Thread(target=self.read, args=[process], daemon=True).start()
        return process

    def read(self, process):
        for line in process.popen.stdout:
            with self.changed:
                process.lines.append(line)
                if found := SUMS.search(line):
                    self.sums[int(found[1])] += 20
                if "WRONG" in line:
                    self.failures.append(line)
                self.changed.notify_all()

    def keep(self, rank):
        """Starts the process of a rank, and starts it again when it ends."""
        while not self.is_over:
            self.ranks[rank] = self.start(self.rank_words, {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank),
                                                            # Large blocks go back to the system when they are freed.
                                                            "MALLOC_MMAP_THRESHOLD_": "1048576"})
            self.ranks[rank].popen.wait()
            self.restarts += 1
            time.sleep(0.05)

    def start_driver(self, port, ballast=0):
        return self.start([self.program, "driver", *MODEL, "--port", str(port), "--ballast", str(ballast)], {})

    def await_sums(self, more):
        """Waits until each rank has run this many more sums."""
        with self.changed:
            targets = {rank: self.sums[rank] + more for rank in range(RANKS)}
            return self.changed.wait_for(lambda: all(self.sums[one] >= targets[one] for one in targets), PATIENCE)

    def count_files(self):
        """Counts the open files of the controller and of the ranks."""
        return sum(len(list(pathlib.Path(f"/proc/{one.pid}/fd").iterdir())) for one in [self.controller, *self.ranks])

    def count_memory(self):
        """Returns the resident memory of the rank that has the most."""
        status = [pathlib.Path(f"/proc/{one.pid}/status").read_text() for one in self.ranks]
        return max(int(re.search(r"RssAnon:\s+(\d+) kB", one)[1]) << 10 for one in status)

    def end(self):
        self.is_over = True
        for which in (signal.SIGTERM, signal.SIGKILL):
            for one in [*self.ranks, self.controller]:
                one.end(which)
            end = time.monotonic() + 20
            while time.monotonic() < end and any(one.is_running() for one in self.ranks):
                time.sleep(0.02)
        self.controller.end(signal.SIGKILL)


class Users:
    """Users who send one request after another, and compare the answers."""

    def __init__(self, port, answers, repeats):
        self.port, self.answers, self.repeats = port, answers, repeats
        self.changed = threading.Condition()
        self.is_over = False
        self.sent = self.answered = self.wrong = self.refused = self.again = 0
        self.longest = 0.0
        self.epochs = set()
        self.threads = [threading.Thread(target=self.run, args=[i], daemon=True) for i in range(USERS)]
        for one in self.threads:
            one.start()

    def run(self, which):
        chance = random.Random(which)
        while not self.is_over:
            self.ask(chance.randrange(NUMBERS))

    def ask(self, number):
        began = time.monotonic()
        with self.changed:
            self.sent += 1
        while True:
            try:
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
                connection.request("POST", "/v1/generate", json.dumps({"number": number}))
                response = connection.getresponse()
                if response.length is None:  # the driver was killed while it sent the head
                    raise http.client.IncompleteRead(b"")
                status, said = response.status, json.loads(response.read())
                connection.close()
                break
            except (OSError, http.client.HTTPException):  # the driver is gone, or stopped
                if not self.repeats or time.monotonic() - began > PATIENCE:
                    status, said = 0, {}
                    break
                with self.changed:
                    self.again += 1
                time.sleep(0.05)
        is_right = status == 200 and said["number"] == number and len(said["answer"]) == len(self.answers[number]) and all(
            abs(one - other) < 1e-3 for one, other in zip(said["answer"], self.answers[number]))
        with self.changed:
            self.longest = max(self.longest, time.monotonic() - began)
            self.answered += status == 200
            self.refused += status != 200
            self.wrong += status == 200 and not is_right
            self.epochs.add(said.get("epoch"))
            self.changed.notify_all()

    def await_answers(self, more):
        with self.changed:
            target = self.answered + more
            self.changed.wait_for(lambda: self.answered >= target or self.refused, PATIENCE)
            return self.answered >= target and not self.refused

    def end(self):
        self.is_over = True
        for one in self.threads:
            one.join(PATIENCE)


class Check:
    def __init__(self, troupe, program, kind, kills, seed):
        self.kind, self.kills, self.seed = kind, kills, seed
        self.chance = random.Random(seed)
        printed = subprocess.run([program, "answers", *MODEL, "--count", str(NUMBERS)], check=True, capture_output=True,
                                 text=True).stdout
        answers = [[float(one) for one in line.split()] for line in printed.splitlines()]
        self.world = World(troupe, program, has_own_sums=kind == "drivers")
        self.port = free_port()
        self.ballast = MEMORY_BYTES // 4 if kind == "drivers" else 0
        self.driver = self.world.start_driver(self.port, self.ballast)
        self.await_front()
        self.users = Users(self.port, answers, repeats=kind == "drivers")

    def status(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("GET", "/status")
        return json.loads(connection.getresponse().read())

    def await_front(self):
        end = time.monotonic() + PATIENCE
        while True:
            try:
                return self.status()
            except (OSError, http.client.HTTPException):
                if time.monotonic() > end or not self.driver.is_running():
                    self.fail("the driver does not listen")
                time.sleep(0.05)

    def fail(self, why):
        text = [f"{why} (seed {self.seed}; {self.world.restarts} processes of ranks were started again)"]
        try:
            text.append(f"the driver's status: {self.status()}")
        except (OSError, http.client.HTTPException) as failure:
            text.append(f"the driver's status: {failure}")
        if os.environ.get("CHECK_KEEP"):
            print(text, self.driver.pid, self.world.controller.pid, [one.pid for one in self.world.ranks], flush=True)
            time.sleep(1000)
        for name, one in [("controller", self.world.controller), ("driver", self.driver),
                          *((f"rank {i}", one) for i, one in enumerate(self.world.ranks))]:
            text += [f"--- {name}, {'running' if one.is_running() else one.popen.poll()}:\n", "".join(one.lines)]
        self.world.is_over = True
        for one in [self.driver, self.world.controller, *self.world.ranks]:
            one.end(signal.SIGKILL)
        sys.exit("\n".join(text))

    def kill_rank(self):
        before = self.status()["epoch"]
        victim = self.chance.randrange(RANKS)
        time.sleep(self.chance.uniform(0, 0.2))
        if self.chance.random() < 0.2:
            self.world.ranks[victim].end(signal.SIGSTOP)
            time.sleep(self.chance.uniform(1.2, 1.5) * SUSPICION)
            self.stops += 1
        self.world.ranks[victim].end(signal.SIGKILL)
        end = time.monotonic() + PATIENCE
        while not ((now := self.status())["epoch"] > before and now["ready"]):
            if time.monotonic() > end:
                self.fail(f"no epoch after {before} within {PATIENCE} s")
            time.sleep(0.02)

    def kill_driver(self, which):
        time.sleep(self.chance.uniform(0, 0.3))
        if which % 5 in (1, 3):
            self.driver.end(signal.SIGSTOP)
            if not self.world.await_sums(20):
                self.fail("a rank does not go on while the driver is stopped")
            time.sleep(self.chance.uniform(1.2, 1.5) * SUSPICION)
            self.stops += 1
            if which % 5 == 1:
                self.driver.end(signal.SIGCONT)
                if not self.users.await_answers(USERS):
                    self.fail("no answers from a driver that was stopped")
                self.continued += 1
        self.driver.end(signal.SIGKILL)
        self.driver.popen.wait()
        if not self.world.await_sums(20):
            self.fail("a rank does not go on without the driver")
        self.driver = self.world.start_driver(self.port, self.ballast)

    def run(self):
        began = time.monotonic()
        self.stops = self.continued = 0
        if not self.users.await_answers(2 * USERS):
            self.fail("no answers at the beginning")
        files, memory = self.world.count_files(), self.world.count_memory()
        for which in range(self.kills):
            self.kill_rank() if self.kind == "ranks" else self.kill_driver(which)
            if not self.users.await_answers(2 * USERS):
                self.fail("no answers after a kill")
        left = self.world.count_files() - files
        grown = self.world.count_memory() - memory
        restarts, last = self.world.restarts, self.status()
        self.users.end()
        self.driver.end(signal.SIGTERM)
        if self.driver.popen.wait(PATIENCE) != 0:
            self.fail("the driver's status is not 0")
        self.world.end()
        users = self.users
        print(f"seed {self.seed}: {self.kills} kills of {self.kind} ({self.stops} stopped before, {self.continued} of them continued) in "
              f"{time.monotonic() - began:.1f} s; {users.answered} of {users.sent} requests answered, {users.wrong} wrong, "
              f"{users.refused} refused, {users.again} sent again, the longest took {users.longest:.1f} s; "
              f"{sum(self.world.sums.values())} own sums; {len(users.epochs)} epochs; {left} more files open, {grown >> 20} MiB more memory; last "
              f"status {last}")
        if users.wrong or users.refused or users.answered != users.sent or self.world.failures:
            self.fail("not as expected")
        if self.kind == "ranks" and len(users.epochs) < 2:
            self.fail("no answer came in a later epoch")
        if self.kind == "drivers" and (last["epoch"] != 1 or restarts > 0 or left > 8 or grown > 2 * MEMORY_BYTES):
            self.fail("the ranks did not go on as before: another epoch, a rank that was started again, open files, or memory")


if __name__ == "__main__":
    troupe, program, kind, kills = sys.argv[1:5]
    Check(troupe, program, kind, int(kills), int(sys.argv[5]) if len(sys.argv) > 5 else random.randrange(1 << 32)).run()
