"""Wrong arguments raise InvalidArgument, which names the parameter and the value; whole numbers may be NumPy's."""
import pickle

import numpy as np
import pytest

import troupe
from troupe.testing import FaultScript, MockWorld, VirtualWorld

HUGE = 1 << 64


@pytest.fixture(scope="module")
def world():
    with MockWorld(2) as mock:
        yield mock.world


def arrays(count=2):
    return [np.ones(count, "float32") for _ in range(2)]


WRONG = {
    "root": [("1", "root is '1'"), (1 << 31, "root is 2147483648"), (-1, "root is -1"), (0.5, "root is 0.5")],
    "tag": [(1 << 40, "tag is 1099511627776"), (-1, "tag is -1"), ("a", "tag is 'a'")],
    "peer": [(1 << 31, "peer is 2147483648"), ("x", "peer is 'x'")],
    "counts": [([-1, 1], r"counts\[0\] is -1"), ([1.0, 1.0], r"counts\[0\] is 1.0"), (7, "counts is 7"),
               (["1", "1"], r"counts\[0\] is '1'"), (([1, 1], [0, HUGE]), r"counts\[1\]\[1\] is 18446744073709551616")],
    "deadline": [("5s", "deadline is '5s'"), (-1, "deadline is -1"), (float("nan"), "deadline is nan"), ([], r"deadline is \[\]")],
    "op": [(7, "op is 7"), ("SUM", "unknown reduction 'SUM'")],
    "number": [(-1, "commit is -1"), (1 << 63, "commit is 9223372036854775808"), ("1", "commit is '1'")],
    "shape": [((-1, 4), r"shape\[0\] is -1"), ("4", r"shape\[0\] is '4'"), (1.5, "shape is 1.5"),
              ((1 << 62) + 1, "no memory holds that many float32"), ((1 << 32, 1 << 32), "no memory holds that many"),
              (((1 << 63), 2), r"shape\[0\] is 9223372036854775808")],
    "rank": [(9, "rank is 9"), (-1, "rank is -1"), ("0", "rank is '0'")],
    "epoch": [(-1, "epoch is -1"), ("1", "epoch is '1'")],
    "nbytes": [(-1, "nbytes is -1"), (HUGE, "nbytes is 18446744073709551616")],
    "members": [([HUGE], r"groups\['a'\]\[0\] is 18446744073709551616"), (["0"], r"groups\['a'\]\[0\] is '0'")],
    "timeout": [("1s", "timeout is '1s'")],
}
CALLS = {
    "root": lambda world, value: world.broadcast(arrays(), root=value),
    "tag": lambda world, value: world.rank(0).send(arrays()[0], peer=1, tag=value),
    "peer": lambda world, value: world.rank(0).send(arrays()[0], peer=value),
    "counts": lambda world, value: world.all_gather_v(arrays(1), counts=value, out=arrays()),
    "deadline": lambda world, value: world.barrier(deadline=value),
    "op": lambda world, value: world.all_reduce(arrays(), op=value),
    "number": lambda world, value: world.commit(value),
    "shape": lambda world, value: troupe.empty(world, 0, value),
    "rank": lambda world, value: world.rank(value),
    "epoch": lambda world, value: world.rank(0).acknowledge(value),
    "nbytes": lambda world, value: world.register_memory(value),
    "members": lambda world, value: world.split({"a": value}),
    "timeout": lambda world, value: world.barrier().result(value),
}


@pytest.mark.parametrize("parameter, value, text",
                         [(parameter, value, text) for parameter, all_values in WRONG.items() for value, text in all_values])
def test_a_wrong_argument_is_refused_by_name_and_value(world, parameter, value, text):
    with pytest.raises(troupe.InvalidArgument, match=text) as refused:
        CALLS[parameter](world, value)
    assert refused.value.was_rejected
    assert world.barrier().exception(10) is None


@pytest.mark.parametrize("make", [troupe.empty_pinned, troupe.empty_all], ids=["empty_pinned", "empty_all"])
def test_every_allocation_checks_its_shape(world, make):
    with pytest.raises(troupe.InvalidArgument, match="no memory holds that many float32"):
        make(world, (1 << 62) + 1)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("kind", ["list", "tuple", "array", "list of NumPy's", "pair of lists", "pair of arrays"])
def test_counts_may_be_sequences_of_any_whole_numbers(size, kind):
    each = [3, 1, 2][:size]
    places = [sum(each[:rank]) for rank in range(size)]
    counts = {"list": each, "tuple": tuple(each), "array": np.array(each), "list of NumPy's": [np.int64(one) for one in each],
              "pair of lists": (each, places), "pair of arrays": (np.array(each), np.array(places))}[kind]
    with MockWorld(size) as mock:
        out = [np.zeros(sum(each), "float32") for _ in range(size)]
        mock.world.all_gather_v([np.full(count, rank + 1, "float32") for rank, count in enumerate(each)], counts=counts,
                                out=out).result(10)
    assert out[0].tolist() == [float(rank + 1) for rank, count in enumerate(each) for _ in range(count)]


def test_roots_ranks_and_shapes_may_be_numbers_of_numpy(world):
    world.broadcast(arrays(), root=np.uint8(1)).result(10)
    assert world.rank(np.int64(1)).number == 1
    assert troupe.empty(world, np.int32(0), np.int64(4)).shape == (4,)
    assert troupe.empty(world, 0, np.array([2, 3])).shape == (2, 3)


def test_a_script_of_faults_refuses_wrong_places():
    script = FaultScript()
    for call in (lambda: script.on("0"), lambda: script.on(0).operation(-1), lambda: script.on(0).in_epoch("1"),
                 lambda: script.on(0).out_of_memory_after(-1)):
        with pytest.raises(troupe.InvalidArgument):
            call()


def test_a_virtual_world_refuses_what_a_world_refuses():
    with VirtualWorld(2) as world:
        with pytest.raises(troupe.InvalidArgument, match="no memory holds that many"):
            troupe.empty(world, 0, (1 << 62) + 1)
        with pytest.raises(troupe.InvalidArgument, match="rank is 9"):
            world.rank(9)
        with pytest.raises(troupe.InvalidArgument, match="seconds is 'x'"):
            world.advance("x")
    with pytest.raises(troupe.InvalidArgument, match="ranks is 0"):
        VirtualWorld(0)


def test_a_completion_is_pickled_with_its_outputs(world):
    done = world.all_reduce(arrays()).result(10)
    again = pickle.loads(pickle.dumps(done))
    assert (again.ticket, again.epoch, again.launch, again.queued, again.launched, again.done) == (
        done.ticket, done.epoch, done.launch, done.queued, done.launched, done.done)
    assert [one.tolist() for one in again.out] == [one.tolist() for one in done.out]


def test_objects_describe_themselves(world):
    reply = world.barrier()
    reply.result(10)
    shown = {world: "World: ", world.rank(1): "Rank: 1 of 2", world.rank(1).lane("a"): "Rank: 1 of 2, lane 'a'",
             world.prepare("barrier"): "Request: barrier", world.group(): "Group: 0 operations", reply: "Reply: succeeded",
             world.capture([world.prepare("barrier")]): "Plan: "}
    for one, text in shown.items():
        assert repr(one).startswith(f"<troupe.{text}"), one
