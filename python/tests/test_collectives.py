"""Every operation against NumPy's own result."""
import numpy as np
import pytest

import troupe

RANKS = 3
DTYPES = ["uint8", "int8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]
COUNTS = [0, 1, 7, 1000]


def ranked(count, dtype="float32", scale=1):
    """Small whole numbers, different in every element and rank: every sum is exact in every dtype."""
    return [((np.arange(count) % 5 + rank + 1) * scale).astype(dtype) for rank in range(RANKS)]


def reduced(values, op):
    return {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max}[op](np.stack(values), axis=0).astype(
        values[0].dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
def test_all_reduce_in_place(world, dtype, op):
    values = ranked(100, dtype)
    expected = reduced(values, op)
    reply = world.all_reduce(values, op=op).result()
    assert reply.out[0] is values[0]
    for value in values:
        np.testing.assert_array_equal(value, expected)


@pytest.mark.parametrize("count", COUNTS)
def test_all_reduce_out_of_place_leaves_its_input(world, count):
    values, outs = ranked(count), [np.empty(count, "float32") for _ in range(RANKS)]
    world.all_reduce(values, out=outs).result()
    for rank in range(RANKS):
        np.testing.assert_array_equal(values[rank], ranked(count)[rank])
        np.testing.assert_array_equal(outs[rank], reduced(ranked(count), "sum"))


def test_all_reduce_by_average_and_by_factors(world):
    values = ranked(10, scale=3)
    world.all_reduce(values, op="avg").result()
    np.testing.assert_allclose(values[0], np.mean(ranked(10, scale=3), axis=0), rtol=1e-6)
    values = ranked(10)
    world.all_reduce(values, op="pre_mul_sum", factor=2).result()
    np.testing.assert_array_equal(values[1], 2 * reduced(ranked(10), "sum"))
    values = ranked(10, "int64")
    world.all_reduce(values, op="pre_mul_sum", factor=[1, 0, 10]).result()
    np.testing.assert_array_equal(values[2], ranked(10, "int64")[0] + 10 * ranked(10, "int64")[2])


@pytest.mark.parametrize("root", range(RANKS))
def test_reduce_writes_the_root_alone(world, root):
    values = ranked(9)
    world.reduce(values, root=root, op="max").result()
    for rank in range(RANKS):
        np.testing.assert_array_equal(values[rank], reduced(ranked(9), "max") if rank == root else ranked(9)[rank])
    values, out = ranked(9), np.empty(9, "float32")
    world.reduce(values, root=root, out=out).result()
    np.testing.assert_array_equal(out, reduced(ranked(9), "sum"))
    np.testing.assert_array_equal(values[root], ranked(9)[root])


@pytest.mark.parametrize("root", range(RANKS))
def test_broadcast(world, root):
    values = ranked(11)
    world.broadcast(values, root=root).result()
    for value in values:
        np.testing.assert_array_equal(value, ranked(11)[root])
    values, outs = ranked(11), [np.empty(11, "float32") for _ in range(RANKS)]
    world.broadcast(values, root=root, out=outs).result()
    for rank in range(RANKS):
        np.testing.assert_array_equal(outs[rank], ranked(11)[root])
        np.testing.assert_array_equal(values[rank], ranked(11)[rank])


@pytest.mark.parametrize("count", COUNTS)
def test_all_gather(world, count):
    values, outs = ranked(count), [np.empty((RANKS, count), "float32") for _ in range(RANKS)]
    world.all_gather(values, outs).result()
    for out in outs:
        np.testing.assert_array_equal(out, np.stack(ranked(count)))


@pytest.mark.parametrize("count", COUNTS)
def test_reduce_scatter(world, count):
    values = ranked(RANKS * count)
    outs = [np.empty(count, "float32") for _ in range(RANKS)]
    world.reduce_scatter(values, out=outs).result()
    for rank in range(RANKS):
        np.testing.assert_array_equal(outs[rank], reduced(ranked(RANKS * count), "sum").reshape(RANKS, count)[rank])


@pytest.mark.parametrize("count", COUNTS)
def test_all_to_all(world, count):
    values, outs = ranked(RANKS * count), [np.empty(RANKS * count, "float32") for _ in range(RANKS)]
    world.all_to_all(values, outs).result()
    sent = np.stack(ranked(RANKS * count)).reshape(RANKS, RANKS, count)
    for rank in range(RANKS):
        np.testing.assert_array_equal(outs[rank].reshape(RANKS, count), sent[:, rank])


@pytest.mark.parametrize("root", range(RANKS))
def test_gather_and_scatter(world, root):
    out = np.empty((RANKS, 6), "float32")
    world.gather(ranked(6), root=root, out=out).result()
    np.testing.assert_array_equal(out, np.stack(ranked(6)))
    outs = [np.empty(6, "float32") for _ in range(RANKS)]
    world.scatter(out, root=root, out=outs).result()
    for rank in range(RANKS):
        np.testing.assert_array_equal(outs[rank], ranked(6)[rank])


def test_results_without_out_are_in_troupes_memory(world):
    values = [troupe.empty(world, rank, 6, "int32") for rank in range(RANKS)]
    for rank, value in enumerate(values):
        np.asarray(value)[:] = ranked(6, "int32")[rank]
    made = world.all_gather(values).result().out
    assert [one.shape for one in made] == [(RANKS, 6)] * RANKS
    np.testing.assert_array_equal(np.asarray(made[1]), np.stack(ranked(6, "int32")))
    made = world.reduce_scatter(values).result().out
    assert made[0].shape == (2,)
    np.testing.assert_array_equal(np.asarray(made[2]), reduced(ranked(6, "int32"), "sum")[4:])
    made = world.gather(values, root=1).result().out
    assert made[0] is None and made[1].shape == (RANKS, 6)


def test_parts_of_any_size(world):
    counts = [2, 0, 3]
    values = [np.full(counts[rank], rank + 1, "float32") for rank in range(RANKS)]
    outs = [np.zeros(5, "float32") for _ in range(RANKS)]
    world.all_gather_v(values, outs, counts).result()
    for out in outs:
        np.testing.assert_array_equal(out, [1, 1, 3, 3, 3])
    outs = [np.zeros(9, "float32") for _ in range(RANKS)]
    world.all_gather_v(values, outs, (counts, [6, 0, 1])).result()
    np.testing.assert_array_equal(outs[0], [0, 3, 3, 3, 0, 0, 1, 1, 0])
    values, outs = ranked(5), [np.zeros(counts[rank], "float32") for rank in range(RANKS)]
    world.reduce_scatter_v(values, outs, counts).result()
    np.testing.assert_array_equal(np.concatenate(outs), reduced(ranked(5), "sum"))


def test_gather_and_scatter_in_parts_of_any_size(world):
    counts = [2, 0, 3]
    values = [np.full(counts[rank], rank + 1, "float32") for rank in range(RANKS)]
    gathered = np.zeros(5, "float32")
    world.gather_v(values, 1, gathered, counts).result()
    np.testing.assert_array_equal(gathered, [1, 1, 3, 3, 3])
    spread = np.zeros(7, "float32")
    world.gather_v(values, 0, spread, (counts, [5, 0, 1])).result()
    np.testing.assert_array_equal(spread, [0, 3, 3, 3, 0, 1, 1])
    outs = [np.zeros(counts[rank], "float32") for rank in range(RANKS)]
    world.scatter_v(np.arange(5, dtype="float32"), 2, outs, counts).result()
    np.testing.assert_array_equal(np.concatenate(outs), [0, 1, 2, 3, 4])
    with pytest.raises(troupe.InvalidArgument):
        world.gather_v(values, 1, np.zeros(4, "float32"), counts).result()


def test_all_to_all_v_by_ranks(world):
    counts = [[1, 2, 0], [0, 1, 3], [2, 0, 1]]  # a row for each sender, a column for each receiver
    outs, replies = [], []
    for rank in world:
        r = rank.number
        mine = [counts[sender][r] for sender in range(RANKS)]
        outs.append(np.zeros(sum(mine), "int32"))
        sent = np.arange(sum(counts[r]), dtype="int32") + 100 * r
        replies.append(rank.all_to_all_v(sent, outs[r], send_counts=counts[r], recv_counts=mine))
    for reply in replies:
        reply.result()
    np.testing.assert_array_equal(outs[0], [0, 200, 201])
    np.testing.assert_array_equal(outs[1], [1, 2, 100])
    np.testing.assert_array_equal(outs[2], [101, 102, 103, 202])


def test_sends_and_receives_and_copies_of_ranks(world):
    sent, got = np.arange(5, dtype="float64"), np.zeros(5)
    replies = [world.rank(0).send(sent, peer=2, tag=3), world.rank(2).recv(got, peer=0, tag=3)]
    for reply in replies:
        reply.result()
    np.testing.assert_array_equal(got, sent)
    device = troupe.empty(world, 1, 5, "float64")
    back = np.zeros(5)
    world.rank(1).copy(sent, device).result()
    world.rank(1).copy(device, back).result()
    np.testing.assert_array_equal(back, sent)


def test_ranks_in_lanes_are_matched_by_name(world):
    values = {lane: ranked(4) for lane in ("left", "right")}
    replies = []
    for rank in range(RANKS):
        for lane in ("left", "right") if rank % 2 else ("right", "left"):  # each rank in another order
            replies.append(world.rank(rank).lane(lane).all_reduce(values[lane][rank], op="sum" if lane == "left" else
                                                                  "max"))
    for reply in replies:
        reply.result()
    np.testing.assert_array_equal(values["left"][0], reduced(ranked(4), "sum"))
    np.testing.assert_array_equal(values["right"][2], reduced(ranked(4), "max"))


def test_a_group_is_one_request(world):
    values, sent, got = ranked(4), np.full(3, 7, "float32"), np.zeros(3, "float32")
    with world.group() as all_at_once:
        all_at_once.all_reduce(values)
        all_at_once.transfer(0, sent, 1, got)
    all_at_once.reply.result()
    np.testing.assert_array_equal(values[0], reduced(ranked(4), "sum"))
    np.testing.assert_array_equal(got, sent)


def test_barrier(world):
    assert world.barrier().result().epoch == world.epoch


def test_sub_worlds(world):
    halves = world.split({"first": [0, 1], "last": [2]})
    values = [np.full(3, 1, "float32"), np.full(3, 2, "float32")]
    assert halves["first"].size == 2
    halves["first"].all_reduce(values).result()
    np.testing.assert_array_equal(values[0], [3, 3, 3])
    for half in halves.values():
        half.stop()


def test_plans_replay_prepared_requests(world):
    values = [troupe.empty(world, rank, 4, "int64") for rank in range(RANKS)]
    for value in values:
        np.asarray(value)[:] = 1
    plan = world.capture([world.prepare("all_reduce", values), world.prepare("all_reduce", values)])
    world.replay(plan).result()
    np.testing.assert_array_equal(np.asarray(values[0]), [9, 9, 9, 9])
    world.replay(plan).result()
    np.testing.assert_array_equal(np.asarray(values[2]), [81, 81, 81, 81])


def test_registered_memory_is_given_out_by_empty_all(world):
    world.register_memory(1 << 16)
    values = troupe.empty_all(world, (2, 8), "float32")
    for rank, value in enumerate(values):
        np.asarray(value)[:] = rank
    world.all_reduce(values).result()
    np.testing.assert_array_equal(np.asarray(values[1]), np.full((2, 8), 3))
