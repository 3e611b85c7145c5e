"""The backend troupe with tensors on GPUs, one process for each. Skipped where there are fewer than two."""
import datetime
import functools
import os
import re
import threading
import time

import pytest
from torch_ranks import TIMEOUT, dist, run_ranks, torch

import troupe.torch

_GPUS = sum(1 for name in os.listdir("/dev") if re.fullmatch(r"nvidia\d+", name))
if _GPUS < 2 and os.environ.get("TROUPE_REQUIRE_GPU"):
    pytest.fail(f"TROUPE_REQUIRE_GPU is set, and this machine has {_GPUS} GPUs", pytrace=False)
if _GPUS < 2:  # not asked of CUDA: a process that has used it cannot fork ranks that use it
    pytest.skip(f"two GPUs are needed, and this machine has {_GPUS}", allow_module_level=True)

SIZE = 2


@pytest.fixture(autouse=True, params=["build", "off"], ids=["native", "python"])
def native_part(request, monkeypatch):
    monkeypatch.setenv("TROUPE_TORCH_NATIVE", request.param)


def run_on_gpus(function, folder, backend="troupe", settings=None, timeout=TIMEOUT):
    return run_ranks(_on_gpu, SIZE, None, settings, (function, str(folder / "store"), backend, timeout))


def _on_gpu(rank, size, function, store, backend, timeout):
    torch.cuda.set_device(rank)
    torch.backends.cuda.matmul.allow_tf32 = False
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=size, timeout=timeout,
                            device_id=torch.device("cuda", rank))
    return function(rank, size)


def gpu(*shape, value=1.0, dtype=torch.float32):
    return torch.full(shape, value, dtype=dtype, device="cuda")


def busy(milliseconds=50):
    """Keeps the current stream busy, so that work that is not ordered behind it would come too early."""
    torch.cuda._sleep(int(milliseconds * 1.5e6))


def collectives(rank, size):
    total, other = sum(range(1, size + 1)), 1 - rank
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.int64, torch.uint8):
        values = gpu(1025, value=rank + 1, dtype=dtype)
        dist.all_reduce(values)
        assert (values == total).all(), dtype
    values = gpu(4, value=rank + 1)
    dist.all_reduce(values, dist.ReduceOp.AVG)
    assert values.tolist() == [total / size] * 4
    flags = torch.tensor([rank == 0, False], device="cuda")
    dist.all_reduce(flags)
    assert flags.tolist() == [True, False]
    values = gpu(4, value=rank)
    dist.broadcast(values, 1)
    assert values.tolist() == [1] * 4
    values = gpu(4, value=rank + 1)
    dist.reduce(values, 0)
    assert rank != 0 or values.tolist() == [total] * 4
    parts = [gpu(3, value=-1) for _ in range(size)]
    dist.all_gather(parts, gpu(3, value=rank))
    assert [one.tolist() for one in parts] == [[0] * 3, [1] * 3]
    ragged = [gpu(one + 1, value=-1) for one in range(size)]
    dist.all_gather(ragged, gpu(rank + 1, value=rank))
    assert [one.tolist() for one in ragged] == [[0], [1, 1]]
    gathered = gpu(2 * size)
    dist.all_gather_into_tensor(gathered, gpu(2, value=rank))
    assert gathered.tolist() == [0, 0, 1, 1]
    parts = [gpu(2) for _ in range(size)] if rank == 0 else None
    dist.gather(gpu(2, value=rank), parts, 0)
    assert rank != 0 or [one.tolist() for one in parts] == [[0, 0], [1, 1]]
    values = gpu(2)
    dist.scatter(values, [gpu(2, value=5), gpu(2, value=6)] if rank == 0 else None, 0)
    assert values.tolist() == [5 + rank] * 2
    values = gpu(2)
    dist.reduce_scatter(values, [gpu(2, value=one + rank) for one in range(size)])
    assert values.tolist() == [2 * rank + 1] * 2
    values = gpu(2)
    dist.reduce_scatter_tensor(values, torch.arange(4.0, device="cuda"))
    assert values.tolist() == [4.0 * rank, 4.0 * rank + 2]
    values = gpu(4)
    dist.all_to_all_single(values, torch.arange(4.0, device="cuda") + 10 * rank)
    assert values.tolist() == [2 * rank, 2 * rank + 1, 10 + 2 * rank, 11 + 2 * rank]
    parts = [gpu(2) for _ in range(size)]
    dist.all_to_all(parts, [gpu(2, value=10 * rank + one) for one in range(size)])
    assert [one.tolist() for one in parts] == [[rank] * 2, [10 + rank] * 2]
    values = gpu(3, value=rank)
    if rank == 0:
        dist.send(values, 1, tag=3)
    else:
        dist.recv(values, 0, tag=3)
    assert values.tolist() == [0] * 3
    sent, received = gpu(3, value=rank), gpu(3)
    for one in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, other), dist.P2POp(dist.irecv, received, other)]):
        one.wait()
    assert received.tolist() == [other] * 3
    several = [gpu(2, value=rank), gpu(3, value=rank + 1)]
    with dist._coalescing_manager(async_ops=True) as all_of:
        for one in several:
            dist.all_reduce(one)
    all_of.wait()
    assert [one.tolist() for one in several] == [[1] * 2, [3] * 3]
    empty = gpu(0)
    dist.all_reduce(empty)
    host = torch.ones(8)  # through the GPU
    dist.all_reduce(host)
    assert host.tolist() == [size] * 8
    dist.barrier()
    dist.monitored_barrier()
    with pytest.raises(ValueError, match=rf"on cuda:{other}, and this rank's GPU is cuda:{rank}: call torch.cuda.set_device"):
        dist.all_reduce(torch.ones(2, device=f"cuda:{other}"))
    import torch.distributed._functional_collectives as functional
    made = functional.all_reduce(gpu(4, value=rank + 1), "sum", dist.group.WORLD)
    assert (made + 0).tolist() == [total] * 4
    compiled = torch.compile(lambda x: functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1, backend="aot_eager", fullgraph=True)
    assert compiled(gpu(4, value=rank + 1)).tolist() == [2 * total + 1] * 4
    half = dist.new_group([0]), dist.new_group([0, 1])
    values = gpu(2)
    dist.all_reduce(values, group=half[1])
    assert values.tolist() == [2, 2]
    if rank == 0:
        dist.all_reduce(values, group=half[0])
    assert values.tolist() == [2, 2]


def test_collectives_of_tensors_on_gpus(tmp_path):
    run_on_gpus(collectives, tmp_path)


def objects(rank, size):
    gathered = [None] * size
    dist.all_gather_object(gathered, {"rank": rank})
    assert gathered == [{"rank": 0}, {"rank": 1}]


def test_objects(tmp_path):
    pytest.importorskip("numpy", reason="PyTorch makes objects of tensors by NumPy, which is not installed")
    run_on_gpus(objects, tmp_path)


def test_a_group_with_gloo_for_the_cpu(tmp_path):
    run_on_gpus(both_devices, tmp_path, "cpu:gloo,cuda:troupe")


def both_devices(rank, size):
    assert isinstance(dist.group.WORLD, troupe.torch.TroupeGroup)
    for device in ("cpu", "cuda"):
        values = torch.full((3,), rank + 1.0, device=device)
        work = dist.all_reduce(values, async_op=True)
        work.wait()
        assert values.tolist() == [3] * 3
    pair = dist.new_group([0, 1])
    for device in ("cpu", "cuda"):
        values = torch.ones(3, device=device)
        dist.all_reduce(values, group=pair)
        assert values.tolist() == [2] * 3


def coalesced(tensor):
    """Returns the work of an all_reduce that is one of a batch."""
    with dist._coalescing_manager(async_ops=True) as all_of:
        dist.all_reduce(tensor)
    return all_of.works[0]


def order_of_streams(rank, size):
    side = torch.cuda.Stream()
    for turn in range(3):
        values = gpu(1 << 20, value=0)
        torch.cuda.synchronize()
        busy()
        values += rank + 1  # behind the long kernel
        began = time.monotonic()
        work = dist.all_reduce(values, async_op=True)
        work.wait()  # for the launch: not for the long kernel
        waited = time.monotonic() - began
        doubled = values * 2  # without a wait of the host
        assert not work.is_completed() or turn == 0
        assert doubled.sum().item() == 6 * (1 << 20)
        work.synchronize()
        assert work.is_completed() and work.is_success() and work.exception() is None
        assert turn == 0 or waited < 0.04, waited  # the first loads kernels
    values, work = gpu(1 << 20, value=rank + 1), None
    with torch.cuda.stream(side):  # another stream asks, another one waits
        busy()
        mine = gpu(1 << 20, value=rank + 1)
        work = dist.all_reduce(mine, async_op=True)
    work.wait()
    assert mine.sum().item() == 3 * (1 << 20)
    busy()
    values = gpu(1 << 20, value=rank + 1)
    parts, given = [gpu(1 << 20, value=-1) for _ in range(size)], gpu(1 << 20, value=rank + 1)
    for call in (lambda: dist.all_gather(parts, given, async_op=True), lambda: coalesced(given)):  # a work of Python's
        given.fill_(rank + 1)
        busy()
        future = call().get_future().then(lambda one: [each.clone() for each in one.value()])
        for each in future.wait():
            assert each.min().item() == each.max().item() and each[0].item() in (1, 2, 3)
    future = dist.all_reduce(values, async_op=True).get_future().then(lambda one: [each * 2 for each in one.value()])
    assert future.wait()[0].sum().item() == 6 * (1 << 20)
    busy()
    parts = [gpu(1 << 18) for _ in range(size)]
    work = dist.all_gather(parts, gpu(1 << 18, value=rank), async_op=True)
    del work  # the list is written by wait() alone
    work = dist.all_gather(parts, gpu(1 << 18, value=rank + 1), async_op=True)
    with torch.cuda.stream(side):
        work.wait()
    work.wait()
    assert [one.sum().item() for one in parts] == [1 << 18, 2 << 18]
    busy(200)
    began = time.monotonic()
    dist.barrier()  # waits for the GPU
    assert time.monotonic() - began > 0.05 and torch.cuda.current_stream().query()


def test_works_are_of_streams(tmp_path):
    run_on_gpus(order_of_streams, tmp_path)


def memory(rank, size):
    count = 1 << 22
    for _ in range(20):  # freed in flight, and its memory wanted by others
        busy(5)
        values = gpu(count, value=rank + 1)
        work = dist.all_reduce(values, async_op=True)
        result = torch.empty_like(values)
        work.wait()
        result.copy_(values)
        del values, work
        noise = [gpu(count, value=7) for _ in range(3)]
        assert result.sum().item() == 3 * count
        del noise
    for _ in range(20):
        busy(5)
        dist.all_reduce(gpu(count, value=rank), async_op=True)  # held by nobody else
    dist.barrier()
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    assert held < 3 * 4 * count, held
    backend = dist.group.WORLD.backend
    assert backend.supports_tensor_alloc(torch.device("cuda"))
    made = backend.allocate_tensor(1 << 16, dtype=torch.bfloat16, device=torch.device("cuda", rank))
    made.fill_(rank + 1)
    dist.all_reduce(made)
    assert made.dtype is torch.bfloat16 and made.float().sum().item() == 3 << 16


def test_memory_that_is_freed_in_flight(tmp_path):
    run_on_gpus(memory, tmp_path)


class TensorParallel(torch.nn.Module):
    """Column and row parallel layers, as serving engines have them: one all_reduce for each pair."""

    def __init__(self, rank, size, width=256, layers=4):
        super().__init__()
        torch.manual_seed(1)
        whole = [(torch.randn(4 * width, width), torch.randn(width, 4 * width)) for _ in range(layers)]
        self.columns = [one.chunk(size, 0)[rank].cuda() / width**0.5 for one, _ in whole]
        self.rows = [one.chunk(size, 1)[rank].cuda() / (2 * width**0.5) for _, one in whole]
        self.whole = [(one.cuda() / width**0.5, other.cuda() / (2 * width**0.5)) for one, other in whole]

    def forward(self, x):
        for column, row in zip(self.columns, self.rows):
            made = torch.nn.functional.gelu(x @ column.t()) @ row.t()
            dist.all_reduce(made)
            x = x + made
        return x

    def alone(self, x):
        for one, other in self.whole:
            x = x + torch.nn.functional.gelu(x @ one.t()) @ other.t()
        return x


@torch.inference_mode()
def graphs(rank, size):
    model = TensorParallel(rank, size)
    static = torch.zeros(8, 256, device="cuda")
    step = troupe.torch.graph(model, static)
    torch.manual_seed(2)
    for _ in range(5):
        given = torch.randn(8, 256, device="cuda")
        busy(5)
        static.copy_(given)
        made = step().clone()
        torch.testing.assert_close(made, model.alone(given), rtol=1e-4, atol=1e-4)
    work = step.replay(datetime.timedelta(seconds=20))
    dist.all_reduce(gpu(4))  # in the order of the replay
    work.synchronize()
    assert work.is_success()
    side = torch.cuda.Stream()

    def forks(x):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x + 1
            dist.all_reduce(y)
            y = y * 2
        torch.cuda.current_stream().wait_stream(side)
        parts = [torch.empty_like(x) for _ in range(size)]
        dist.all_gather(parts, y)
        return parts[1 - rank] + parts[rank]

    other = troupe.torch.graph(forks, gpu(4, value=rank))
    assert other().tolist() == [12] * 4  # (1 + 2) * 2, twice
    with pytest.raises(dist.DistBackendError if rank == 0 else ZeroDivisionError, match="division"):
        troupe.torch.graph((lambda: None) if rank == 0 else (lambda: 1 / 0), warmups=0)
    with pytest.raises((dist.DistBackendError, troupe.Error), match="(?s)all_reduce.*reduce"):
        troupe.torch.graph((lambda: dist.all_reduce(gpu(4))) if rank == 0 else (lambda: dist.all_reduce(gpu(8))), warmups=0)
    assert other().tolist() == [12] * 4
    values = gpu(4, value=rank + 1)
    plain = torch.cuda.CUDAGraph()
    doubled = None
    with torch.cuda.graph(plain):
        doubled = values * 2
        for call in (lambda: dist.all_reduce(values), dist.barrier, lambda: dist.send(values, 1 - rank), step.replay):
            with pytest.raises(RuntimeError, match=r"troupe\.torch\.graph\(\)"):
                call()
        doubled = doubled + 1
    plain.replay()
    assert doubled.tolist() == [2 * rank + 3] * 4  # the capture is whole
    other.drop()
    with pytest.raises(dist.DistBackendError, match="make another"):
        other()
    dist.all_reduce(values)
    assert values.tolist() == [3] * 4


def test_graphs(tmp_path):
    run_on_gpus(graphs, tmp_path)


def failures(rank, size):
    second = datetime.timedelta(seconds=1)
    values = gpu(4)
    if rank == 0:
        work = dist.group.WORLD.allreduce([values], options(second))
        began = time.monotonic()
        with pytest.raises(dist.DistBackendError, match="Timed out waiting 1000ms.*rank 1") as failure:
            work.wait()
        assert 0.5 < time.monotonic() - began < 10
        assert failure.value.__cause__.missing_ranks == (1,)
    else:
        time.sleep(2)
        with pytest.raises(dist.DistBackendError, match="rank 0 gave up"):  # its call is the same one's other half
            dist.all_reduce(values)
    dist.all_reduce(values)  # the group is usable
    assert values.tolist() == [2] * 4
    torch.cuda.synchronize()
    with pytest.raises((dist.DistBackendError, ValueError), match="(?s)rank"):
        dist.all_reduce(gpu(4 + rank))
    dist.all_reduce(values)
    assert values.tolist() == [4] * 4
    dist.barrier()
    ended, store = threading.Event(), dist.group.WORLD.get_group_store()
    if rank == 1:  # it does not come, and stays in the group
        store.wait(["aborted"], datetime.timedelta(seconds=60))
    else:  # abort() ends the wait
        work = dist.all_reduce(values, async_op=True)

        def wait():
            with pytest.raises(dist.DistBackendError):
                work.wait()
            ended.set()

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.3)
        assert not ended.is_set()
        dist.group.WORLD.abort()
        thread.join(30)
        assert ended.is_set()
        with pytest.raises(dist.DistBackendError, match=r"after abort\(\)"):
            dist.all_reduce(values)
        store.set("aborted", "yes")


def options(timeout):
    from torch._C._distributed_c10d import AllreduceOptions
    made = AllreduceOptions()
    made.timeout = timeout
    return made


def test_failures_are_told_by_wait_and_the_group_goes_on(tmp_path):
    run_on_gpus(failures, tmp_path)


def trained(rank, wrap, steps=5):
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(),
                                torch.nn.Linear(256, 8)).cuda()
    model = wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(steps):
        torch.manual_seed(100 * step + rank)
        loss = model(torch.randn(16, 64, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return [one.detach() for one in model.parameters()]


def training(rank, size):
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    nccl = dist.new_group(backend="nccl")
    theirs = trained(rank, functools.partial(DistributedDataParallel, device_ids=[rank], process_group=nccl, bucket_cap_mb=0.1))
    dist.barrier(group=nccl)
    mine = trained(rank, functools.partial(DistributedDataParallel, device_ids=[rank], bucket_cap_mb=0.1))
    assert all(torch.equal(*pair) for pair in zip(mine, theirs))

    def shard(model):
        for layer in model:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer)
        return fully_shard(model)

    sharded = [one.full_tensor() for one in trained(rank, shard)]
    for one, other in zip(sharded, theirs):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_training_gives_what_it_gives_with_nccl(tmp_path):
    run_on_gpus(training, tmp_path)
