"""Worlds over processes, from Python: with a Controller in the program, and with the package's program `troupe`."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import troupe

WORKER = pathlib.Path(__file__).resolve().parent / "worker.py"
PATIENCE = 120


@pytest.fixture(scope="module")
def gloo():
    """Processes without GPUs communicate by Gloo."""
    try:
        troupe.Runtime(backend="gloo", log_level="off").close()
    except troupe.Missing as why:
        pytest.skip(str(why))


@pytest.fixture(scope="module")
def program():
    try:
        return troupe.program_path()
    except troupe.Missing as why:
        pytest.skip(str(why))


def sleeps_of(name):
    """How often threads of this process with that name have gone to sleep."""
    sleeps = 0
    for task in pathlib.Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            sleeps += int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", (task / "status").read_text(), re.MULTILINE)[1])
    return sleeps


def test_the_poller_of_a_world_by_gloo_sleeps_until_an_operation_ends(gloo):
    with troupe.Runtime(backend="gloo", profile="frugal", ordering="caller", log_level="off", **{"mock.devices": 2}) as runtime:
        world = runtime.form_world()
        values = [np.full(4, rank + 1, "float32") for rank in range(2)]
        waits = world.rank(0).all_reduce(values[0])
        before = sleeps_of("troupe/poll")
        time.sleep(0.5)
        slept = sleeps_of("troupe/poll") - before
        world.rank(1).all_reduce(values[1]).result(PATIENCE)
        waits.result(PATIENCE)
    assert 0 < slept < 600  # one a millisecond, for deadlines; naps of 50 us would be thousands
    assert values[0][0] == 3


def test_processes_join_a_controller_of_the_programs_own(gloo):
    with troupe.Controller(2) as controller:
        assert controller.address.startswith("127.0.0.1:")
        workers = [subprocess.Popen([sys.executable, str(WORKER)], env=controller.environment(rank),
                                    stdout=subprocess.PIPE, text=True) for rank in range(2)]
        said = sorted(one.communicate(timeout=PATIENCE)[0].strip() for one in workers)
        assert said == ["rank 0 of 2: 3", "rank 1 of 2: 3"]
        assert [one.returncode for one in workers] == [0, 0]
        assert controller.wait(PATIENCE)
        assert controller.reason is None


def said_by(worker: str, ranks: int):
    """Runs a process of the worker for each rank. Returns what each printed, sorted."""
    with troupe.Controller(ranks) as controller:
        workers = [subprocess.Popen([sys.executable, str(WORKER.with_name(worker))], env=controller.environment(rank),
                                    stdout=subprocess.PIPE, text=True) for rank in range(ranks)]
        said = sorted(one.communicate(timeout=PATIENCE)[0].strip() for one in workers)
        assert controller.wait(PATIENCE)
        return said


OTHER = """
import sys, troupe
with troupe.Runtime(backend="mock", log_level="off") as runtime:
    world = runtime.form_world()
    print("formed", flush=True)
    sys.stdin.readline()
"""


def test_the_process_of_the_controller_has_a_rank_and_the_controller_bounds_what_waits():
    with troupe.Controller(2, lead=1) as controller:
        other = subprocess.Popen([sys.executable, "-c", OTHER], env=controller.environment(1), stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
        with troupe.Runtime(backend="mock", log_level="off", environment=controller.environment(0)) as runtime:
            world = runtime.form_world()
            assert world.local_ranks == [0] and other.stdout.readline() == "formed\n"
            first, second = (world.rank(0).barrier(deadline=5.0) for _ in range(2))
            with pytest.raises(troupe.Busy):
                second.result(PATIENCE)
            assert not first.done()
            other.communicate("\n", timeout=PATIENCE)
            with pytest.raises(troupe.Stopping):
                first.result(PATIENCE)


ACTOR = """
import json, os, sys, types
import troupe, troupe.ray
joining, rank, was_restarted = json.loads(sys.argv[1])
context = types.SimpleNamespace(was_current_actor_reconstructed=was_restarted)
sys.modules["ray"] = types.SimpleNamespace(get_runtime_context=lambda: context)  # Ray's part
troupe.ray.take_rank(joining, rank, 2)
assert os.environ["TROUPE_ATTEMPT"] == str(int(was_restarted))
world = troupe.Runtime(backend="mock", log_level="off").form_world()
print(world.local_ranks, world.size, world.epoch, flush=True)
sys.stdin.readline()
world.stop()
"""


def test_an_actor_that_ray_restarts_takes_its_rank_again():
    def start(rank, was_restarted):
        return subprocess.Popen([sys.executable, "-c", ACTOR, json.dumps([controller.joining(), rank, was_restarted])],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with troupe.Controller(2) as controller:
        actors = [start(rank, False) for rank in range(2)]
        assert [one.stdout.readline() for one in actors] == ["[0] 2 1\n", "[1] 2 1\n"]
        actors[1].kill()
        actors[1].communicate()
        actors[1] = start(1, True)
        assert actors[1].stdout.readline() == "[1] 2 2\n"
        for one in actors:
            one.communicate("\n", timeout=PATIENCE)
        assert [one.returncode for one in actors] == [0, 0] and controller.wait(PATIENCE) and controller.reason is None


def test_processes_capture_and_replay_a_plan():
    # (1 + 2) * 2, and twice that again
    assert said_by("worker_with_plans.py", 2) == ["rank 0 of 2: 24", "rank 1 of 2: 24"]


def test_processes_ask_in_worlds_that_share_ranks():
    assert said_by("worker_with_split.py", 3) == ["rank 0: [(2, 3.0), (3, 6.0)]",
                                                  "rank 1: [(2, 3.0), (2, 5.0), (3, 6.0)]",
                                                  "rank 2: [(2, 5.0), (3, 6.0)]"]


def test_a_process_with_another_token_is_not_admitted(gloo):
    with troupe.Controller(1, token="a" * 64) as controller:
        environment = dict(controller.environment(0), TROUPE_JOIN_TOKEN="b" * 64)
        done = subprocess.run([sys.executable, str(WORKER)], env=environment, capture_output=True, text=True,
                              timeout=PATIENCE)
        assert done.returncode != 0 and "rank 0" not in done.stdout
        assert not controller.wait(0)


def test_a_controller_that_waits_can_be_told_to_stop_and_closed():
    controller = troupe.Controller(2, policy="shrink", smallest=1, rebuilds=3, gather=30.0, suspicion=5.0)
    assert not controller.wait(0.01)
    controller.stop()
    assert controller.wait(PATIENCE)
    controller.close()
    controller.close()
    with pytest.raises(troupe.Stopping, match="closed"):
        controller.wait(1)


@pytest.mark.parametrize("options, text", [
    ({"processes": 0}, "processes is 0 and must be a whole number from 1"),
    ({"processes": 2.5}, "processes is 2.5"),
    ({"processes": 2, "smallest": 3}, "smallest is 3 and must be a whole number from 1 to 2"),
    ({"processes": 2, "port": 70000}, "port is 70000 and must be a whole number from 0 to 65535"),
    ({"processes": 2, "rebuilds": -1}, "rebuilds is -1"),
    ({"processes": 2, "lead": 0}, "lead is 0 and must be a whole number from 1"),
    ({"processes": 2, "policy": "shrinks"}, "shrinks"),
    ({"processes": 2, "gather": -1}, "-1"),
    ({"processes": 2, "host": "0.0.0.0"}, "certificates")])
def test_terms_out_of_range_are_refused_with_their_limits(options, text):
    with pytest.raises(troupe.InvalidArgument) as caught:
        troupe.Controller(**options)
    assert text in str(caught.value)


def test_the_packages_program_launches_processes(gloo, program):
    done = subprocess.run([sys.executable, "-m", "troupe", "launch", "-n", "2", "--no-prefix", "--", sys.executable,
                           str(WORKER)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.split("\n"))[-2:] == ["rank 0 of 2: 3", "rank 1 of 2: 3"]


def test_the_program_replaces_the_process_that_runs_it(program):
    """Signals therefore reach the program, and its exit status is that of the process."""
    child = subprocess.Popen([sys.executable, "-m", "troupe", "launch", "-n", "1", "--no-prefix", "--", "sh", "-c",
                              "echo ready; exec sleep 600"], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n"
    assert pathlib.Path(f"/proc/{child.pid}/exe").resolve() == pathlib.Path(program).resolve()
    child.send_signal(signal.SIGINT)
    child.send_signal(signal.SIGINT)  # the second one kills at once
    child.communicate(timeout=PATIENCE)
    assert child.returncode != 0


def test_a_fork_may_drop_a_controller():
    controller = troupe.Controller(2)
    child = os.fork()
    if child == 0:
        del controller  # nothing of the parent's is ended here
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    controller.close()
