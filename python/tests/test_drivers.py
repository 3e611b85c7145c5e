"""Requests to all ranks of a world over processes: by the process of a rank, and by a driver, which has no rank."""
import asyncio
import concurrent.futures
import json
import pathlib
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import troupe

WORKER = pathlib.Path(__file__).resolve().parent / "worker_with_exports.py"
PATIENCE = 120


def start(controller, ranks, *arguments):
    return [subprocess.Popen([sys.executable, str(WORKER), *arguments], env=controller.environment(rank),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(ranks)]


def attach(controller, **settings):
    return troupe.Driver(control_address=controller.address, token=controller.environment()["TROUPE_JOIN_TOKEN"],
                         **settings)


def test_the_process_of_a_rank_asks_all_ranks():
    with troupe.Controller(3) as controller:
        workers = start(controller, 3, "ask")
        said = [one.communicate(timeout=PATIENCE) for one in workers]
        assert [one.returncode for one in workers] == [0, 0, 0], said
        assert said[0][0].strip() == "[6.0, 16.0, 9.0, True, 'StaleBuffer']"


class Job:
    """A world of three processes that a driver asks."""

    def __init__(self):
        self.controller = troupe.Controller(3, policy="keep_size")
        self.workers = start(self.controller, 3)
        self.driver = attach(self.controller)
        self.events = []
        self.driver.events(self.events.append)
        self.status = self.driver.wait_ready(PATIENCE)
        assert self.status.phase == "ready", self.status

    def find(self, name, dtype="float32"):
        """Returns the memory of all ranks, as soon as they have exported it."""
        pause = threading.Event()
        for _ in range(PATIENCE * 100):
            try:
                return [self.driver.find_memory(rank, name, dtype).result(PATIENCE) for rank in range(3)]
            except troupe.Missing:
                pause.wait(0.01)
        raise AssertionError(f"the processes have not exported {name}")

    def shown(self, values):
        """Returns the first element of `values` at each rank."""
        self.driver.call("show", [[one] for one in values]).result(PATIENCE)
        return [float(np.frombuffer(self.driver.read(one).result(PATIENCE), "float32")[0]) for one in self.find("report")]

    def close(self):
        self.driver.close()
        self.controller.close()
        for one in self.workers:
            one.kill()
            one.communicate()


@pytest.fixture(scope="module")
def job():
    made = Job()
    yield made
    made.close()


@pytest.fixture
def driver(job):
    return job.driver


@pytest.fixture
def values(job, driver):
    """Memory of all ranks, of eight elements."""
    return job.find("values")


def set_values(job, values, numbers):
    """Fills the memory of each rank with its number."""
    job.driver.call("fill", [[one] for one in values], np.array(numbers, "float32").tobytes()).result(PATIENCE)


def test_a_driver_knows_its_world(job, driver):
    assert driver.size == 3 and driver.epoch == job.status.epoch == 1
    assert job.status.phase == "ready" and job.status.resume is None
    assert driver.status == driver.wait_ready(0)
    assert asyncio.run(awaited(driver.ready())).world_size == 3


async def awaited(reply):
    return await reply


def test_a_driver_asks_for_collectives(job, driver, values):
    set_values(job, values, [1, 2, 3])
    done = driver.all_reduce(values).result(PATIENCE)
    assert done.epoch == 1 and done.out == values
    assert job.shown(values) == [6, 6, 6]

    set_values(job, values, [1, 2, 3])
    untyped = [one.view("float32").slice(0, 16) for one in values]
    assert asyncio.run(awaited(driver.broadcast(untyped, root=1, deadline=60.0))).out == untyped
    assert job.shown(values) == [2, 2, 2]


def test_a_driver_asks_for_a_group_and_a_transfer(job, driver, values):
    set_values(job, values, [1, 2, 3])
    halves = [(one.slice(0, 16), one.slice(16, 16)) for one in values]
    with driver.group(deadline=60.0) as both:
        both.all_reduce([first for first, _ in halves], op="max")
        both.transfer(0, halves[0][1], 2, halves[2][1])
    both.reply.result(PATIENCE)
    assert job.shown(values) == [3, 3, 3]
    assert job.shown([second for _, second in halves]) == [1, 2, 1]
    with driver.group() as copies:
        copies.on(1, "copy", untyped(halves[1][0]), untyped(halves[1][1]))
    copies.reply.result(PATIENCE)
    assert job.shown([second for _, second in halves]) == [1, 3, 1]
    driver.transfer(1, values[1], 0, values[0]).result(PATIENCE)
    driver.barrier().result(PATIENCE)


def test_a_driver_replays_a_plan(job, driver, values):
    set_values(job, values, [1, 1, 1])
    driver.replay("sum").result(PATIENCE)
    assert job.shown(values) == [3, 3, 3]
    assert driver.replay("product").exception(PATIENCE).code == "invalid_argument"


def test_a_driver_captures_a_plan(job, driver, values):
    def steps(plan):
        with plan.group() as both:
            both.broadcast(values, root=1)
            both.barrier()
        plan.all_reduce(values)
        plan.transfer(0, values[0], 2, values[2])

    driver.capture("mine", steps).result(PATIENCE)
    set_values(job, values, [1, 2, 3])
    driver.replay("mine").result(PATIENCE)
    assert job.shown(values) == [6, 6, 6]
    asyncio.run(awaited(driver.capture("mine", lambda plan: plan.all_reduce(values, op="max"))))
    set_values(job, values, [1, 2, 3])
    driver.replay("mine").result(PATIENCE)
    assert job.shown(values) == [3, 3, 3]
    with pytest.raises(troupe.InvalidArgument, match="a step of a plan has no deadline"):
        driver.capture("mine", lambda plan: plan.all_reduce(values, deadline=1.0))
    stale = [values[0], troupe.RemoteBuffer.parse(str(values[1]).replace(f":{values[1].id}:", ":999:", 1), "float32"),
             values[2]]
    assert driver.capture("mine", lambda plan: plan.all_reduce(stale)).exception(PATIENCE).code == "stale_buffer"
    set_values(job, values, [1, 2, 3])
    driver.replay("mine").result(PATIENCE)
    assert job.shown(values) == [3, 3, 3]
    driver.drop_plan("mine")
    assert driver.replay("mine").exception(PATIENCE).code == "invalid_argument"


def test_a_driver_reads_metrics_and_flight_records(job, driver, values):
    driver.all_reduce(values).result(PATIENCE)
    record = json.loads(driver.flight_record(2).result(PATIENCE))
    assert "all_reduce" in json.dumps(record)
    try:
        assert b"troupe_" in driver.metrics(0).result(PATIENCE)
    except troupe.Missing as why:
        assert "prometheus-cpp" in str(why)
    assert driver.metrics(9).exception(PATIENCE).code == "invalid_argument"


def test_many_reads_at_one_time_are_answered(job, driver):
    big = job.find("big")
    with attach(job.controller) as other:
        assert other.wait_ready(PATIENCE).phase == "ready"
        replies = [(k % 3, one.read(big[k % 3], deadline=PATIENCE)) for k in range(64) for one in (driver, other)]
        driver.barrier().result(PATIENCE)
        for rank, reply in replies:
            assert reply.result(PATIENCE) == np.full(1 << 18, rank, "float32").tobytes()
    assert driver.epoch == 1


def test_drivers_come_and_go(job, driver):
    for _ in range(20):
        with attach(job.controller) as one:
            assert one.wait_ready(PATIENCE).phase == "ready"
            one.barrier().result(PATIENCE)
    assert driver.epoch == 1


def test_a_driver_allocates_memory_at_ranks(job, driver, values):
    set_values(job, values, [1, 2, 3])
    outs = [driver.allocate(rank, 3 * values[0].size_bytes, "float32").result(PATIENCE) for rank in range(3)]
    driver.all_gather(values, outs).result(PATIENCE)
    assert job.shown([one.slice(64, 32) for one in outs]) == [3, 3, 3]
    for one in outs:
        driver.release(one)
    assert driver.find_memory(7, "values").exception(PATIENCE).code == "invalid_argument"


def test_a_driver_is_told_of_unknown_names_and_of_memory_let_go(job, driver, values):
    with pytest.raises(troupe.Missing):
        driver.find_memory(1, "no such name").result(PATIENCE)
    with pytest.raises(troupe.Missing):
        driver.find_memory(1, "dropped").result(PATIENCE)
    lent = driver.allocate(1, values[1].size_bytes, "float32").result(PATIENCE)
    driver.release(lent)
    failure = driver.all_reduce([values[0], lent, values[2]]).exception(PATIENCE)
    assert type(failure) is troupe.StaleBuffer and failure.was_rejected
    assert driver.call("no such function").exception(PATIENCE).code == "invalid_argument"
    with pytest.raises(troupe.StaleBuffer):
        driver.read(never_exported(job.find("report")[0])).result(PATIENCE)
    assert driver.read(values[0]).exception(PATIENCE).code == "invalid_argument"  # device memory


@pytest.mark.parametrize("ask, text", [
    (lambda driver, values: driver.all_reduce(values[:2]), "2 tensors for 3 ranks"),
    (lambda driver, values: driver.all_reduce([np.ones(4)] * 3), "memory of this process"),
    (lambda driver, values: driver.all_reduce([one.view("int8").slice(0, 3) for one in values], dtype="float32"),
     "dtype is float32"),
    (lambda driver, values: driver.all_reduce([untyped(one) for one in values]), "has no element type: give dtype="),
    (lambda driver, values: driver.all_reduce([untyped(one).slice(0, 3) for one in values], dtype="float32"),
     "3 bytes, which is no multiple of 4"),
    (lambda driver, values: driver.all_gather(values), "needs out: the rank lives in another process"),
    (lambda driver, values: driver.all_reduce(values, lane="x"), "has no lane"),
    (lambda driver, values: driver.call("fill", [[]]), "arguments for 1 ranks, and the world has 3"),
    (lambda driver, values: driver.group().on(3, "barrier"), "rank 3 is not in this world"),
    (lambda driver, values: values[0].slice(16, 32), "")])
def test_a_wrong_request_is_refused_by_the_call(driver, values, ask, text):
    with pytest.raises(troupe.InvalidArgument) as caught:
        ask(driver, values)
    assert text in str(caught.value)


def never_exported(one):
    return troupe.RemoteBuffer.parse(str(one).replace(f":{one.id}:", ":999:", 1))


def untyped(one):
    return troupe.RemoteBuffer.parse(str(one))


def test_a_handle_is_sent_as_text_or_pickled(values):
    one = values[2].slice(4, 8)
    assert (one.exporter, one.offset_bytes, one.size_bytes, one.on_host, one.dtype) == (2, 4, 8, False, "float32")
    assert untyped(one) == one and untyped(one).dtype is None and hash(untyped(one)) == hash(one)
    assert troupe.RemoteBuffer.parse(str(one), "int8").dtype == "int8"
    again = pickle.loads(pickle.dumps(one))
    assert again == one and again.dtype == "float32" and again.session == one.session and again.id == one.id
    assert one != values[1] and one != 3
    with pytest.raises(troupe.InvalidArgument):
        troupe.RemoteBuffer.parse("2:3")


def test_remote_buffers_have_the_type_of_the_requests_other_operands(job, driver, values):
    set_values(job, values, [1, 2, 3])
    driver.all_reduce([untyped(values[0]), values[1], untyped(values[2])]).result(PATIENCE)
    assert job.shown(values) == [6, 6, 6]


def test_an_exception_in_a_function_ends_the_epoch(job, driver):
    failure = driver.call("fail").exception(PATIENCE)
    assert isinstance(failure, troupe.Error) and failure.effect == "unknown_outcome"
    assert "raised ValueError: no such kernel" in str(failure)
    assert driver.wait_ready(PATIENCE, after_epoch=1).epoch >= 2
    assert any(one.phase != "ready" for one in job.events) and job.events[-1].epoch >= 2
    driver.barrier().result(PATIENCE)
    found = job.find("values")
    driver.all_reduce(found).result(PATIENCE)


def test_a_closed_driver_says_so(job):
    other = attach(job.controller)
    assert other.wait_ready(PATIENCE).phase == "ready"
    other.close()
    other.close()
    with pytest.raises(troupe.Stopping, match="the driver has been closed"):
        other.barrier()


def test_a_driver_that_reaches_nobody_is_not_ready():
    with troupe.Driver(control_address="127.0.0.1:1", token="a" * 64) as driver:
        waiting = driver.ready()
        assert driver.wait_ready(0.01).phase != "ready"
        assert driver.size == 0 and driver.status.reason is not None
        with pytest.raises(troupe.Rebuilding):
            driver.barrier()
    assert waiting.exception(PATIENCE).code == "stopping"
    with pytest.raises(troupe.InvalidArgument):
        troupe.Driver(control_address="nowhere", token="a" * 64)
    with pytest.raises(troupe.InvalidArgument):
        troupe.Driver(no_such_setting=1)


def test_functions_are_called_in_a_world_of_one_process():
    with troupe.testing.MockWorld(2) as mock:
        world, seen = mock.world, []
        world.register_function("note", lambda rank, epoch, stream, memory, values: seen.append(
            (rank, epoch, isinstance(stream, int), [one.nbytes for one in memory], values)))
        memory = [troupe.empty(world, rank, 4) for rank in world.local_ranks]
        world.call("note", [[one] for one in memory], b"abc").result(PATIENCE)
        assert sorted(seen) == [(0, 1, True, [16], b"abc"), (1, 1, True, [16], b"abc")]
        for one in [world.rank(rank).call("note", lane="calls") for rank in world.local_ranks]:
            one.result(PATIENCE)
        assert len(seen) == 4
        assert world.call("other").exception(PATIENCE).code == "invalid_argument"
        with pytest.raises(troupe.InvalidArgument, match="cannot be called"):
            world.register_function("other", 3)
        own = [world.export_memory(rank, one, "memory") for rank, one in enumerate(memory)]
        assert world.find_memory(1, "memory").result(PATIENCE) == own[1]
        world.all_reduce(own).result(PATIENCE)
        world.unexport(own[1])
        assert world.all_reduce(own).exception(PATIENCE).code == "stale_buffer"


def test_a_world_of_one_process_cannot_be_left_as_planned():
    with troupe.Runtime(backend="mock", ranks=2, log_level="off") as runtime:
        with pytest.raises(troupe.Unsupported):
            runtime.form_world().leave().result(PATIENCE)
