"""Processes of a world join and leave as planned, while the clients of the others are served: asked for by `await world.leave()`,
by a driver, and by `troupe ctl`. Each rank is a process of its own."""
import asyncio
import json
import pathlib
import signal
import subprocess
import sys
import threading

import pytest

import troupe

WORKER = pathlib.Path(__file__).resolve().parent / "worker_with_changes.py"
PATIENCE = 60


class Member:
    """The process of a place."""

    def __init__(self, controller, place, attempt=0):
        environment = dict(controller.environment(place), TROUPE_ATTEMPT=str(attempt),
                           TROUPE_HOST="left" if place < 2 else "right")
        self.process = subprocess.Popen([sys.executable, str(WORKER)], env=environment, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def serves(self):
        assert self.process.stdout.readline() == "serves\n", self.process.communicate()

    def end(self, line="\n"):
        """Returns what it says at its end."""
        out, errors = self.process.communicate(line, timeout=PATIENCE)
        assert self.process.returncode == 0, errors
        return json.loads(out)


class Job:
    """Three processes with a controller and a driver in this one."""

    def __enter__(self):
        self.controller = troupe.Controller(3, policy="shrink")
        self.members = [Member(self.controller, place) for place in range(3)]
        self.gone = []
        for one in self.members:
            one.serves()
        self.driver = troupe.Driver(control_address=self.controller.address,
                                    token=self.controller.environment()["TROUPE_JOIN_TOKEN"])
        assert self.driver.wait_ready(PATIENCE).phase == "ready"
        return self

    def __exit__(self, *_):
        self.driver.close()
        self.controller.close()
        for one in self.members + self.gone:
            one.process.kill()
            one.process.communicate()

    def start_third(self, attempt):
        self.gone.append(self.members[2])
        self.members[2] = Member(self.controller, 2, attempt)

    def await_ranks(self, count):
        """Waits until the world serves with so many ranks."""
        pause = threading.Event()
        for _ in range(PATIENCE * 100):
            now = self.driver.status
            if now.phase == "ready" and now.world_size == count:
                return
            pause.wait(0.01)
        raise AssertionError(f"the world has {now.world_size} ranks ({now.phase}), not {count}")

    def stop(self):
        """Ends the world. Returns what the processes say, those that stayed all the time first."""
        self.controller.stop()
        said = [one.end() for one in self.members]
        for one in said:
            assert one["refused"] == ["stopping", "rejected"] and one["requests"] > 0
        return said


def sizes(said):
    """Returns the number of ranks in each epoch in which a client has had a sum. In one epoch all sums are the same."""
    assert all(len(sums) == 1 for sums in said["sums"].values()), said
    return [int(sums[0]) for _, sums in sorted(said["sums"].items(), key=lambda one: int(one[0]))]


def places(processes):
    return [(one.rank, one.place, one.host) for one in processes if one.rank is not None]


def test_a_driver_lets_processes_leave_and_join():
    with Job() as job:
        left = job.driver.leave(2).result(PATIENCE)
        assert places(left) == [(0, 0, "left"), (1, 1, "left")]
        said = job.members[2].end()
        assert said["refused"] == ["stopping", "rejected"] and sizes(said) in ([3], [])
        job.await_ranks(2)
        asked = job.driver.join(2)
        job.start_third(1)
        assert places(asked.result(PATIENCE)) == [(0, 0, "left"), (1, 1, "left"), (2, 2, "right")]
        job.members[2].serves()
        with pytest.raises(troupe.InvalidArgument, match="place 2 has"):
            job.driver.join(2).result(PATIENCE)
        stayed, other, came = job.stop()
        assert sizes(stayed) == sizes(other) and sizes(stayed)[-1] == 3 and set(sizes(stayed)) <= {2, 3}
        assert sizes(came) in ([3], []) and came["epoch"] == 3


def test_a_process_leaves_by_its_own_request_and_others_with_their_host():
    async def drain(driver):
        return await driver.drain("right")

    with Job() as job:
        said = job.members[2].end("leave\n")
        assert said["left"] and said["refused"] == ["stopping", "rejected"]
        job.await_ranks(2)
        asked = job.driver.join()
        job.start_third(1)
        asked.result(PATIENCE)
        job.members[2].serves()
        assert places(asyncio.run(drain(job.driver))) == [(0, 0, "left"), (1, 1, "left")]
        assert job.members[2].end()["refused"] == ["stopping", "rejected"]
        job.await_ranks(2)
        with pytest.raises(troupe.InvalidArgument, match="no rank would remain"):
            job.driver.drain("left").result(PATIENCE)
        job.members.pop()
        first, second = job.stop()
        assert first["epoch"] == second["epoch"] == 1 and sizes(first) == sizes(second)


def test_an_operator_changes_a_launched_world():
    try:
        program = troupe.program_path()
    except troupe.Missing as why:
        pytest.skip(str(why))
    job = subprocess.Popen([program, "launch", "-n", "3", "--policy", "shrink", "--no-prefix", "--grace", "5s", "--",
                            sys.executable, str(WORKER), "operate"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        operated = None
        while operated is None:
            line = job.stdout.readline()
            assert line, job.communicate()
            said = json.loads(line)
            if "ctl" in said:
                operated = said["ctl"]
            else:  # the process that left
                assert said["refused"] == ["stopping", "rejected"]
        job.send_signal(signal.SIGTERM)
        out, errors = job.communicate(timeout=PATIENCE)
    finally:
        job.kill()
        job.communicate()
    assert job.returncode == 0, errors
    assert [code for code, *_ in operated] == [0, 1, 0, 0, 0], operated
    before, refused, left, joined, after = (dict(enumerate(one)) for one in operated)
    assert "epoch 1, 3 ranks, ready" in before[1] and "epoch 3, 3 ranks, ready" in after[1]
    assert "rank 1 would become rank 0" in refused[2] and "--renumber" in refused[2]

    def pids(shown):
        rows = [line.split() for line in shown.splitlines() if line.strip() and not line.startswith(("#", "epoch"))]
        return {row[1]: row[3] for row in rows if row[0] != "-"}

    assert sorted(pids(left[1])) == ["0", "1"] and sorted(pids(joined[1])) == ["0", "1", "2"]
    assert pids(before[1])["0"] == pids(after[1])["0"] and pids(before[1])["2"] != pids(after[1])["2"]  # another process
    ended = [json.loads(line) for line in out.splitlines()]
    assert len(ended) == 3 and all(one["refused"] == ["stopping", "rejected"] for one in ended)
    assert sorted(one["epoch"] for one in ended) == [1, 1, 3]
    for one in ended:
        sizes(one)
    assert "process 2 is started: a process for its place was asked for" in errors
