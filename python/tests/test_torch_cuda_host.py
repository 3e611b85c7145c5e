"""What the backend troupe decides about GPUs on the host: it runs where there is no GPU."""
import functools
import threading

import numpy as np
import pytest
from torch_ranks import PATIENCE, dist, run_ranks, torch

import troupe.testing
import troupe.torch
from troupe.torch import _cuda
from troupe.torch._work import GpuWork


def raised(kind, text, call, *given, **named):
    with pytest.raises(kind, match=text):
        call(*given, **named)


def tensors_of_a_gpu(rank, size):
    from torch._C._distributed_c10d import AllgatherOptions, AllreduceOptions, BroadcastOptions
    from torch._subclasses.fake_tensor import FakeTensorMode

    backend = dist.group.WORLD._get_backend(torch.device("cuda"))
    assert backend is dist.group.WORLD._get_backend(torch.device("cpu")) is dist.group.WORLD.backend
    with FakeTensorMode(allow_non_fake_inputs=True):
        given, parts = torch.empty(4, device="cuda:0"), [torch.empty(4, device="cuda:0") for _ in range(size)]
        says = r"on cuda:0, and the world of this process group moves memory of the CPU: use \.cpu\(\), or .*device_id"
        raised(ValueError, "all_reduce was given a tensor " + says, backend.allreduce, [given], AllreduceOptions())
        raised(ValueError, "broadcast was given a tensor " + says, backend.broadcast, [given], BroadcastOptions())
        raised(ValueError, "all_gather was given a tensor " + says, backend.allgather, [parts], [given], AllgatherOptions())
        raised(ValueError, "send was given a tensor " + says, backend.send, [given], 1 - rank)
        raised(ValueError, "tensors on cpu and cuda:0: give tensors of one device", backend.all_gather_single,
               torch.empty(8, device="cpu"), given, AllgatherOptions())
    raised(ValueError, "allocate_tensor.* no GPU", backend.allocate_tensor, 4, dtype=torch.float32, device=torch.device("cuda"))
    assert not backend.supports_tensor_alloc(torch.device("cuda"))
    raised(ValueError, "graph.. was given a group without GPUs", troupe.torch.graph, lambda: None)
    ones = torch.ones(2)
    dist.all_reduce(ones)  # nothing of the above has taken a place in the order
    assert ones.tolist() == [size] * 2
    gathered = [None] * size
    dist.all_gather_object(gathered, rank)  # by tensors of the CPU, though the group has a backend for GPUs
    assert gathered == list(range(size))


def test_tensors_of_a_gpu_are_refused_in_a_world_of_the_cpu(tmp_path):
    run_ranks(tensors_of_a_gpu, 2, tmp_path)


def groups_that_need_a_gpu(rank, size):
    with pytest.raises(ValueError, match="device_id asks for a world on GPUs, and PyTorch finds none.*'cpu:troupe'"):
        _cuda.gpu_of_rank(["cpu", "cuda"], torch.device("cuda", 0), {})
    for backend in ("cuda:troupe", "cpu:gloo,cuda:troupe"):
        with pytest.raises(ValueError, match="the backend 'cuda:troupe' asks for a world on GPUs, and PyTorch finds none"):
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are GPUs: the calls succeed")
def test_a_group_that_needs_a_gpu_says_so_where_there_is_none():
    run_ranks(groups_that_need_a_gpu, 1, None)


@pytest.fixture
def gpus(monkeypatch):
    """Lets PyTorch say that there are four GPUs, of which the program has chosen none. Returns a function that chooses one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)

    def choose(index):
        monkeypatch.setattr(torch.cuda, "current_device", lambda: index)

    choose(0)
    return choose


@pytest.mark.parametrize("devices, device_id, chosen, variables, expected", [
    (["cpu", "cuda"], None, 0, {}, 0),
    (["cpu", "cuda"], None, 0, {"LOCAL_RANK": "2"}, 2),
    (["cpu", "cuda"], None, 1, {"LOCAL_RANK": "2"}, 1),  # torch.cuda.set_device() comes first
    (["cpu", "cuda"], None, 0, {"LOCAL_RANK": "9"}, 0),  # each process sees GPUs of its own
    (["cpu", "cuda"], None, 0, {"LOCAL_RANK": "2", "TROUPE_DEVICE": "3"}, 3),
    (["cuda"], torch.device("cuda", 3), 1, {"LOCAL_RANK": "2"}, 3),
    (["cuda"], torch.device("cuda"), 1, {"LOCAL_RANK": "2"}, 1),
    (["cpu"], None, 0, {"LOCAL_RANK": "2"}, None),
    (["cpu", "cuda"], torch.device("cpu"), 0, {}, None),
    (["cpu", "cuda"], torch.device("cuda", 1), 0, {"TROUPE_BACKEND": "gloo"}, None),
    (["cpu", "cuda"], None, 0, {"TROUPE_BACKEND": "NCCL"}, 0),
])
def test_which_gpu_a_rank_has(gpus, devices, device_id, chosen, variables, expected):
    gpus(chosen)
    assert _cuda.gpu_of_rank(devices, device_id, variables) == expected


def test_a_gpu_that_the_process_does_not_see_is_refused(gpus):
    with pytest.raises(ValueError, match="cuda:4, and this process sees 4 GPUs: see CUDA_VISIBLE_DEVICES"):
        _cuda.gpu_of_rank(["cuda"], torch.device("cuda", 4), {})


class FakeGpu:
    """What a work asks its GPU. The stream is one of a mock's device."""

    blocks = False

    def __init__(self, stream):
        self.stream, self.captured = stream, False

    def current_stream(self):
        return self.stream

    def is_captured(self):
        return self.captured


@pytest.fixture
def mock():
    """A world of two mock ranks, and the GPU of rank 0."""
    with troupe.testing.MockWorld(2) as made:
        found = {}
        made.world.register_function("tell", lambda rank, epoch, stream, memory, values: found.update({rank: stream}))
        made.world.call("tell").result(PATIENCE)
        yield made.world, FakeGpu(found[0])


def work_of(world, gpu, values, **options):
    reply = world.rank(0).prepare("all_reduce", values, **options).ask_overlapped(gpu.stream)
    make_work = functools.partial(GpuWork, gpu, epochs=None)  # as the native part gets it
    return make_work(reply, "all_reduce", troupe.torch._backend._LATER, [values])


def test_wait_blocks_the_thread_until_the_launch_and_not_the_others(mock):
    world, gpu = mock
    values, ended = np.ones(4, "float32"), threading.Event()
    work = work_of(world, gpu, values)

    def wait():
        work.wait()
        ended.set()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        assert not ended.wait(0.2)
        assert not work.is_completed() and work.exception() is None
    finally:
        world.rank(1).all_reduce(np.ones(4, "float32")).result(PATIENCE)
        thread.join(PATIENCE)
    assert ended.is_set()
    work.synchronize()
    assert work.is_completed() and work.is_success()
    np.testing.assert_array_equal(values, np.full(4, 2.0))


def test_wait_raises_what_happens_before_the_launch(mock):
    world, gpu = mock
    work = work_of(world, gpu, np.ones(4, "float32"), deadline=0.2)
    with pytest.raises(dist.DistBackendError, match=r"all_reduce: Timed out waiting 1000ms.*rank 1"):
        work.wait()
    with pytest.raises(dist.DistBackendError, match="Timed out"):
        work.synchronize()
    assert isinstance(work.exception(), dist.DistBackendError)


def test_wait_with_a_timeout_ends_before_the_launch(mock):
    world, gpu = mock
    work = work_of(world, gpu, np.ones(4, "float32"))
    with pytest.raises(dist.DistBackendError, match="Timed out waiting 50ms in wait"):
        work.wait(troupe.torch._backend._MILLISECOND * 50)
    world.rank(1).all_reduce(np.ones(4, "float32")).result(PATIENCE)
    work.wait()


def test_wait_in_a_capture_is_refused_before_it_damages_the_capture(mock):
    world, gpu = mock
    work = work_of(world, gpu, np.ones(4, "float32"))
    gpu.captured = True
    with pytest.raises(RuntimeError, match=r"captured.*troupe\.torch\.graph\(\)"):
        work.wait()
    gpu.captured = False
    world.rank(1).all_reduce(np.ones(4, "float32")).result(PATIENCE)
    work.wait()


def test_calls_in_a_capture_of_another_are_refused_by_name(monkeypatch):
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0, raising=False)
    gpu = _cuda.Gpu(0)
    monkeypatch.setattr(gpu, "is_captured", lambda: False)
    assert gpu.capture_for("all_reduce") is None
    monkeypatch.setattr(gpu, "is_captured", lambda: True)
    with pytest.raises(RuntimeError, match=r"all_reduce cannot be called while the current stream is captured.*troupe\.torch\.graph\(\)"):
        gpu.capture_for("all_reduce")
