"""Every collective and transfer of torch.distributed on tensors of the CPU, with the backend troupe."""
import datetime

import pytest
from torch_ranks import dist, run_ranks, torch

import troupe.torch  # noqa: F401  registers the backend

BACKENDS = ["gloo", "mock"]
MOVED = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.int16, torch.int32,
         torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn]
REDUCED = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.int32, torch.int64]


@pytest.fixture(params=[(2, "gloo"), (3, "gloo"), (3, "mock")], ids=lambda given: f"{given[0]} ranks, {given[1]}")
def everywhere(request, tmp_path):
    """Runs a function at all ranks of a group, on a backend of troupe."""
    size, backend = request.param
    return lambda function: run_ranks(function, size, tmp_path, {"TROUPE_BACKEND": backend})


def same(one, other):
    assert one.dtype == other.dtype and one.shape == other.shape
    assert torch.equal(one.to(torch.complex128), other.to(torch.complex128)), f"{one} is not {other}"


def values(rank, count=6, dtype=torch.float32):
    """A tensor of small numbers that differ between ranks and places. Of bool: of both values."""
    return ((torch.arange(count) + 2 * rank) % 5).to(dtype)


def all_values(size, count=6, dtype=torch.float32):
    return [values(rank, count, dtype) for rank in range(size)]


def reductions(rank, size):
    for dtype in REDUCED:
        inputs = all_values(size, 6, dtype)
        wide = torch.stack([one.to(torch.float64) for one in inputs])
        for op, expected in ((dist.ReduceOp.SUM, wide.sum(0)), (dist.ReduceOp.PRODUCT, wide.prod(0)),
                             (dist.ReduceOp.MIN, wide.amin(0)), (dist.ReduceOp.MAX, wide.amax(0))):
            tensor = values(rank, 6, dtype)
            assert dist.all_reduce(tensor, op) is None
            same(tensor, expected.to(dtype))
            tensor = values(rank, 6, dtype)
            dist.reduce(tensor, 1, op)
            same(tensor, expected.to(dtype) if rank == 1 else values(rank, 6, dtype))
            output = torch.empty(2, dtype=dtype)
            dist.reduce_scatter_tensor(output, torch.cat([values(rank, 2, dtype)] * size), op)
            same(output, expected[:2].to(dtype))
            dist.reduce_scatter(output, [values(rank, 2, dtype) for _ in range(size)], op)
            same(output, expected[:2].to(dtype))
    average = values(rank)
    dist.all_reduce(average, dist.ReduceOp.AVG)
    assert torch.allclose(average, torch.stack(all_values(size)).mean(0))
    scaled = values(rank)
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(0.5))
    same(scaled, torch.stack(all_values(size)).sum(0) * 0.5)


def test_reductions_of_every_type(everywhere):
    everywhere(reductions)


def reductions_of_booleans(rank, size):
    inputs = torch.stack(all_values(size, 6, torch.bool))
    for op, expected in ((dist.ReduceOp.SUM, inputs.any(0)), (dist.ReduceOp.MAX, inputs.any(0)),
                         (dist.ReduceOp.PRODUCT, inputs.all(0)), (dist.ReduceOp.MIN, inputs.all(0))):
        tensor = values(rank, 6, torch.bool)
        dist.all_reduce(tensor, op)
        same(tensor, expected)
        assert set(tensor.view(torch.uint8).tolist()) <= {0, 1}


def test_sums_of_booleans_stay_booleans(everywhere):
    everywhere(reductions_of_booleans)


def sums_of_narrow_floats(rank, size):
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        tensor = values(rank, 6).to(dtype)
        dist.all_reduce(tensor)
        same(tensor, torch.stack(all_values(size)).sum(0).to(dtype))
    tensor = torch.complex(values(rank), -values(rank))
    dist.all_reduce(tensor)
    same(tensor, torch.stack([torch.complex(one, -one) for one in all_values(size)]).sum(0))


def test_sums_of_narrow_floats_and_of_complex_numbers(everywhere):
    everywhere(sums_of_narrow_floats)


def uneven_reduce_scatter(rank, size):
    counts = [rank + 1 for rank in range(size)]
    output = torch.empty(rank + 1)
    dist.reduce_scatter(output, [values(rank, count) for count in counts])
    same(output, torch.stack(all_values(size, rank + 1)).sum(0))


def test_a_reduce_scatter_of_different_sizes(everywhere):
    everywhere(uneven_reduce_scatter)


def moves(rank, size):
    for dtype in MOVED:
        everything = all_values(size, 6, dtype)
        tensor = values(rank, 6, dtype).view(2, 3)
        dist.broadcast(tensor, size - 1)
        same(tensor, everything[-1].view(2, 3))
        outputs = [torch.empty(6, dtype=dtype) for _ in range(size)]
        dist.all_gather(outputs, values(rank, 6, dtype))
        for output, expected in zip(outputs, everything):
            same(output, expected)
        flat = torch.empty(6 * size, dtype=dtype)
        dist.all_gather_into_tensor(flat, values(rank, 6, dtype))
        same(flat, torch.cat(everything))
        stacked = torch.empty(size, 6, dtype=dtype)
        dist.all_gather_into_tensor(stacked, values(rank, 6, dtype))
        same(stacked, torch.stack(everything))
        outputs = [torch.empty(6, dtype=dtype) for _ in range(size)] if rank == 1 else None
        dist.gather(values(rank, 6, dtype), outputs, dst=1)
        for output, expected in zip(outputs or [], everything):
            same(output, expected)
        flat = torch.empty(6 * size if rank == 1 else 0, dtype=dtype)
        dist.gather_single(values(rank, 6, dtype), flat, group_dst=1)
        same(flat, torch.cat(everything if rank == 1 else [flat]))
        output = torch.empty(6, dtype=dtype)
        dist.scatter(output, everything if rank == 1 else None, src=1)
        same(output, everything[rank])


def test_moves_of_every_type(everywhere):
    everywhere(moves)


def uneven_all_gather(rank, size):
    for dtype in (torch.float32, torch.int16):
        outputs = [torch.empty(other + 1, dtype=dtype) for other in range(size)]
        dist.all_gather(outputs, values(rank, rank + 1, dtype))
        for other, output in enumerate(outputs):
            same(output, values(other, other + 1, dtype))


def test_an_all_gather_of_different_sizes(everywhere):
    everywhere(uneven_all_gather)


def all_to_alls(rank, size):
    for dtype in (torch.float32, torch.int16, torch.bool):
        output = torch.empty(size, 2, dtype=dtype)
        dist.all_to_all_single(output, torch.stack([values(rank + other, 2, dtype) for other in range(size)]))
        same(output, torch.stack([values(rank + other, 2, dtype) for other in range(size)]))
        # rank r sends r + q + 1 rows of two to rank q
        sizes = [rank + other + 1 for other in range(size)]
        sent = torch.cat([torch.full((count, 2), 10 * rank + other) for other, count in enumerate(sizes)]).to(dtype)
        output = torch.empty(sum(sizes), 2, dtype=dtype)
        dist.all_to_all_single(output, sent, output_split_sizes=sizes, input_split_sizes=sizes)
        same(output, torch.cat([torch.full((count, 2), 10 * other + rank) for other, count in enumerate(sizes)]).to(dtype))
        outputs = [torch.empty(count, dtype=dtype) for count in sizes]
        dist.all_to_all(outputs, [torch.full((count,), 10 * rank + other).to(dtype) for other, count in enumerate(sizes)])
        for other, output in enumerate(outputs):
            same(output, torch.full((sizes[other],), 10 * other + rank).to(dtype))


def test_all_to_all_with_equal_and_different_parts(everywhere):
    everywhere(all_to_alls)


def coalesced(rank, size):
    group = dist.group.WORLD
    tensors = [values(rank, count) for count in (3, 5, 1)]
    with dist._coalescing_manager() as _:
        for one in tensors:
            dist.all_reduce(one)
    for one, count in zip(tensors, (3, 5, 1)):
        same(one, torch.stack(all_values(size, count)).sum(0))
    with dist._coalescing_manager(async_ops=True) as many:
        outputs = [torch.empty(size * count) for count in (3, 4)]
        for output, count in zip(outputs, (3, 4)):
            dist.all_gather_into_tensor(output, values(rank, count))
    many.wait()
    for output, count in zip(outputs, (3, 4)):
        same(output, torch.cat(all_values(size, count)))
    outputs = [torch.empty(count) for count in (3, 4)]
    with dist._coalescing_manager() as _:
        for output, count in zip(outputs, (3, 4)):
            dist.reduce_scatter_tensor(output, torch.cat([values(rank, count)] * size))
    for output, count in zip(outputs, (3, 4)):
        same(output, torch.stack(all_values(size, count)).sum(0))
    lists = [[torch.empty(count) for count in (3, 4)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [values(rank, count) for count in (3, 4)])
    for other, one in enumerate(lists):
        for output, count in zip(one, (3, 4)):
            same(output, values(other, count))
    with dist._coalescing_manager(group, torch.device("cpu"), async_ops=True) as many:  # each by its own call
        first, second = values(rank), values(rank)
        dist.broadcast(first, 0)
        dist.barrier()
        dist.broadcast(second, 1)
    many.wait()
    assert many.works[0].is_completed() and many.works[0].exception() is None
    same(first, values(0))
    same(second, values(1))


def test_coalesced_operations(everywhere):
    everywhere(coalesced)


def transfers(rank, size):
    if rank == 0:
        for tag in (7, 3):
            dist.send(torch.full((4,), tag), 1, tag=tag)
    elif rank == 1:  # in another order, and before anything else
        late, early = torch.empty(4, dtype=torch.int64), torch.empty(4, dtype=torch.int64)
        works = [dist.irecv(late, 0, tag=3), dist.irecv(early, 0, tag=7)]
        for work in works:
            work.wait()
        assert late.tolist() == [3] * 4 and early.tolist() == [7] * 4
    unmatched = dist.irecv(torch.empty(1), (rank - 1) % size, tag=9)  # waits while collectives run
    tensor = values(rank)
    dist.all_reduce(tensor)
    same(tensor, torch.stack(all_values(size)).sum(0))
    assert not unmatched.is_completed()
    dist.barrier()
    dist.send(torch.empty(1), (rank + 1) % size, tag=9)
    unmatched.wait()
    received = torch.empty(3, dtype=torch.bool)
    requests = dist.batch_isend_irecv([dist.P2POp(dist.irecv, received, (rank - 1) % size),
                                       dist.P2POp(dist.isend, values(rank, 3, torch.bool), (rank + 1) % size)])
    for request in requests:
        request.wait()
    same(received, values((rank - 1) % size, 3, torch.bool))


def test_transfers_wait_for_their_other_half_alone(everywhere):
    everywhere(transfers)


def objects(rank, size):
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank, "text": "x" * rank})
    assert gathered == [{"rank": other, "text": "x" * other} for other in range(size)]
    said = [rank, "from the root"] if rank == 0 else [None, None]
    dist.broadcast_object_list(said, 0)
    assert said == [0, "from the root"]
    gathered = [None] * size if rank == 1 else None
    dist.gather_object((rank,), gathered, dst=1)
    assert rank != 1 or gathered == [(other,) for other in range(size)]
    mine = [None]
    dist.scatter_object_list(mine, list(range(size)) if rank == 0 else None, src=0)
    assert mine == [rank]
    if rank == 0:
        dist.send_object_list([{"a": 1}, None], 1)
    elif rank == 1:
        received = [None, 2]
        dist.recv_object_list(received, 0)
        assert received == [{"a": 1}, None]


def test_objects(everywhere):
    everywhere(objects)


def works(rank, size):
    tensor = values(rank)
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait(datetime.timedelta(seconds=30)) is True
    assert work.is_completed() and work.is_success() and work.exception() is None
    same(work.result()[0], torch.stack(all_values(size)).sum(0))
    outputs = [torch.empty(6) for _ in range(size)]
    future = dist.all_gather(outputs, values(rank), async_op=True).get_future()
    doubled = future.then(lambda of: [2 * one for one in of.value()])
    for other, output in enumerate(doubled.wait()):
        same(output, 2 * values(other))
    assert dist.all_reduce(tensor, async_op=True).get_future().wait()[0] is tensor
    outputs = [torch.empty(6) for _ in range(size)]
    work = dist.all_gather(outputs, values(rank), async_op=True)
    while not work.is_completed():  # without a wait()
        pass
    for other, output in enumerate(outputs):
        same(output, values(other))
    work = dist.barrier(async_op=True)
    assert work.wait() and work.get_future_result().wait() == 0


def test_works_and_futures(everywhere):
    everywhere(works)


def shapes(rank, size):
    empty = torch.empty(0)
    dist.all_reduce(empty)
    output = torch.empty(0)
    dist.all_gather_into_tensor(output, torch.empty(0))
    scalar = torch.tensor(rank + 1)
    dist.all_reduce(scalar)
    assert scalar.shape == () and scalar.item() == size * (size + 1) // 2
    for memory_format, dimensions in ((torch.channels_last, (2, 3, 4, 5)), (torch.channels_last_3d, (1, 2, 3, 4, 5))):
        tensor = torch.full(dimensions, float(rank)).to(memory_format=memory_format)
        dist.broadcast(tensor, 1)
        same(tensor, torch.ones(dimensions))
    # lists have the elements in their order, whatever the memory of the tensor beside them
    mine = (torch.arange(24.) + rank * 100).view(1, 2, 3, 4)
    every = [(torch.arange(24.) + one * 100).view(1, 2, 3, 4) for one in range(size)]
    nhwc = mine.to(memory_format=torch.channels_last)
    gathered = [torch.empty_like(nhwc) for _ in range(size)]
    dist.all_gather(gathered, nhwc)
    same(torch.cat(gathered), torch.cat(every))
    gathered = [torch.empty(1, 2, 3, 4) for _ in range(size)] if rank == 0 else None
    dist.gather(nhwc, gathered, dst=0)
    if rank == 0:
        same(torch.cat(gathered), torch.cat(every))
    nhwc = torch.empty_like(nhwc)
    dist.scatter(nhwc, every if rank == 0 else None, src=0)
    same(nhwc, mine)
    dist.reduce_scatter(nhwc, every)
    same(nhwc, mine * size)
    with pytest.raises(ValueError, match="same memory format"):
        dist.all_gather_into_tensor(torch.empty(size, 2, 3, 4), nhwc)
    def again(_):  # a callback may wait for another future
        second = torch.ones(3)
        dist.all_reduce(second, async_op=True).get_future().wait()
        return second

    same(dist.all_reduce(torch.ones(2), async_op=True).get_future().then(again).wait(), torch.full((3,), float(size)))
    # each of many callbacks waits for the next one
    links = 100
    received = [dist.irecv(torch.empty(1), (rank + 1) % size, tag=tag) for tag in range(links)]
    waited = received[-1].get_future()
    for work in reversed(received[:-1]):
        waited = work.get_future().then(lambda _, then=waited: then.wait())
    dist.barrier()
    for tag in range(links):
        dist.send(torch.ones(1), (rank - 1) % size, tag=tag)
    same(waited.wait()[0], torch.ones(1))
    # parts of lists may have gaps
    columns = torch.zeros(6, size)
    dist.all_gather(list(columns.unbind(1)), values(rank))
    same(columns, torch.stack(all_values(size), 1))
    output = torch.empty(6)
    dist.scatter(output, list(torch.stack(all_values(size), 1).unbind(1)) if rank == 0 else None, src=0)
    same(output, values(rank))
    learned = [torch.zeros(6, requires_grad=True) for _ in range(size)]
    dist.all_gather(learned, values(rank).requires_grad_())
    assert all(one.grad_fn is None for one in learned)
    same(torch.stack([one.detach() for one in learned]), torch.stack(all_values(size)))
    output = torch.empty(6)
    dist.reduce_scatter(output, [values(rank).requires_grad_() for _ in range(size)])
    same(output, torch.stack(all_values(size)).sum(0))
    big = torch.full((3 << 20,), 1.0)  # several chunks
    dist.all_reduce(big)
    assert (big == size).all()
    parts = [torch.empty(1 << 18) for _ in range(size)]
    dist.all_gather(parts, torch.full((1 << 18,), float(rank)))
    assert all((part == other).all() for other, part in enumerate(parts))


def test_shapes_and_sizes(everywhere):
    everywhere(shapes)


def alone(rank, size):
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    outputs = [torch.empty(3)]
    dist.all_gather(outputs, tensor)
    dist.barrier()
    output = torch.empty(3)
    dist.all_to_all_single(output, tensor)
    assert tensor.tolist() == outputs[0].tolist() == output.tolist() == [1, 1, 1]


def test_a_group_of_one_rank(tmp_path):
    run_ranks(alone, 1, tmp_path)
