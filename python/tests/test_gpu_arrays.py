"""Arrays of CuPy, JAX and PyTorch on all GPUs of this machine: results, stream order and ownership.

Skipped if there are fewer than two GPUs or a library is missing; with TROUPE_REQUIRE_GPU=1 missing GPUs are a failure.
"""
import contextlib
import gc
import importlib
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else JAX takes most of each GPU for itself

import numpy as np  # noqa: E402
import pytest  # noqa: E402

import troupe  # noqa: E402

PATIENCE = 120
COUNTS = [1, 7, 1000, 1 << 18]


def skip_or_fail(reason):
    if os.environ.get("TROUPE_REQUIRE_GPU") == "1":
        pytest.fail(f"TROUPE_REQUIRE_GPU=1, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def world():
    """A world of all GPUs, with one rank each."""
    with contextlib.suppress(ImportError):
        importlib.import_module("torch")  # before troupe loads NCCL, because torch needs its own NCCL
    try:
        runtime = troupe.Runtime(backend="nccl", log_level="off")
    except troupe.Missing as why:
        skip_or_fail(f"there are no GPUs with NCCL here: {why}")
    with runtime, runtime.form_world() as made:
        if made.size < 2:
            skip_or_fail(f"2 GPUs are needed and {made.size} found")
        made.barrier().result(PATIENCE)  # the first request includes one-time work
        yield made


@pytest.fixture(scope="module")
def devices(world):
    """The CUDA device of each rank."""
    return [troupe.empty(world, rank, 1).__dlpack_device__()[1] for rank in world.local_ranks]


class Cupy:
    """A common interface of all libraries: arrays are made from NumPy arrays, and read as NumPy arrays."""

    def __init__(self):
        self.cupy = pytest.importorskip("cupy")

    def array(self, values, device):
        with self.on(device):
            return self.cupy.asarray(values)

    def numpy(self, array):
        with self.on(array.device.id):
            return self.cupy.asnumpy(array)

    def view(self, buffer):
        return self.cupy.from_dlpack(buffer)

    def on(self, device):
        """Makes the stream the current one."""
        return self.cupy.cuda.Device(device)


class Torch:
    def __init__(self):
        self.torch = pytest.importorskip("torch")
        if not self.torch.cuda.is_available():
            pytest.skip("this PyTorch sees no GPU")

    def array(self, values, device):
        return self.torch.from_numpy(values.copy()).to(f"cuda:{device}")

    def numpy(self, array):
        return array.cpu().numpy()

    def view(self, buffer):
        return self.torch.from_dlpack(buffer)

    def on(self, device):
        return self.torch.cuda.device(device)


LIBRARIES = {"cupy": Cupy, "torch": Torch}


@pytest.fixture(params=LIBRARIES)
def library(world, request):
    return LIBRARIES[request.param]()


class Jax:
    def __init__(self):
        self.jax = pytest.importorskip("jax")
        try:
            self.devices = {one.local_hardware_id: one for one in self.jax.local_devices(backend="cuda")}
        except RuntimeError as why:
            pytest.skip(f"this JAX sees no GPU: {why}")

    def array(self, values, device):
        return self.jax.device_put(values, self.devices[device])


@pytest.fixture
def jax(world, devices):
    made = Jax()
    missing = [device for device in devices if device not in made.devices]
    if missing:
        pytest.skip(f"this JAX sees no GPU {missing}")
    return made


def ranked(world, count, dtype="float32"):
    """Small whole numbers, different in every element and rank: every sum is exact in every dtype."""
    return [(np.arange(count) % 5 + rank + 1).astype(dtype) for rank in world.local_ranks]


def summed(world, count, dtype="float32"):
    return np.sum(np.stack(ranked(world, count, dtype)), axis=0).astype(dtype)


def place_all(library, values, devices):
    return [library.array(value, device) for value, device in zip(values, devices)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32", "int64", "uint8"])
@pytest.mark.parametrize("count", COUNTS)
def test_all_reduce_in_place(world, devices, library, count, dtype):
    values = place_all(library, ranked(world, count, dtype), devices)
    reply = world.all_reduce(values).result(PATIENCE)
    assert reply.out[0] is values[0]
    for value in values:
        np.testing.assert_array_equal(library.numpy(value), summed(world, count, dtype))


def test_all_gather_makes_troupes_memory_that_libraries_take(world, devices, library):
    values = place_all(library, ranked(world, 12), devices)
    reply = world.all_gather(values).result(PATIENCE)
    views = [library.view(one) for one in reply.out]
    del reply
    gc.collect()  # a view holds its memory
    for view in views:
        np.testing.assert_array_equal(library.numpy(view), np.stack(ranked(world, 12)))


def test_a_view_of_troupes_memory_is_an_operand_without_a_copy(world, devices, library):
    made = [troupe.empty(world, rank, 100) for rank in world.local_ranks]
    views = [library.view(one) for one in made]
    for rank, view in enumerate(views):
        with library.on(devices[rank]):
            view[:] = rank + 1
    world.all_reduce(views).result(PATIENCE)  # after the library's current streams, which fill the views
    expected = np.full(100, world.size * (world.size + 1) / 2, "float32")
    for one, view in zip(made, views):
        np.testing.assert_array_equal(library.numpy(view), expected)
        np.testing.assert_array_equal(library.numpy(library.view(one)), expected)


def test_a_prepared_request_waits_for_what_is_enqueued_by_each_ask(world, devices, library):
    values = place_all(library, [np.full(1 << 20, rank + 1, "float32") for rank in world.local_ranks], devices)
    request = world.prepare("all_reduce", values)
    total = world.size * (world.size + 1) / 2
    for _ in range(10):
        request.ask().result(PATIENCE)
        for device, value in zip(devices, values):
            with library.on(device):
                value /= world.size  # enqueued: the next request waits for it
    for value in values:
        np.testing.assert_array_equal(library.numpy(value), np.full(1 << 20, total / world.size, "float32"))


def test_arrays_of_two_libraries_meet(world, devices):
    both = [Cupy(), Torch()]
    mine = [both[rank % 2] for rank in world.local_ranks]
    values = [one.array(value, device) for one, value, device in zip(mine, ranked(world, 1000), devices)]
    world.all_reduce(values).result(PATIENCE)
    for one, value in zip(mine, values):
        np.testing.assert_array_equal(one.numpy(value), summed(world, 1000))


@pytest.fixture
def slow_fill(world, devices):
    """Fills a CuPy array after a kernel of some 100 ms, both in the current stream."""
    cupy = Cupy().cupy
    spin = cupy.RawKernel("""
        extern "C" __global__ void spin(long long cycles) {
          const long long began = clock64();
          while (clock64() - began < cycles) {}
        }""", "spin")
    fill = cupy.RawKernel("""
        extern "C" __global__ void fill(float* values, float value, int count) {
          const int i = blockIdx.x * blockDim.x + threadIdx.x;
          if (i < count) values[i] = value;
        }""", "fill")

    def filled(array, value, cycles=200_000_000):
        spin((1,), (1,), (np.int64(cycles),))
        fill(((array.size + 255) // 256,), (256,), (array, np.float32(value), np.int32(array.size)))

    for device in devices:  # compiled and loaded now: loading waits for the GPU
        with cupy.cuda.Device(device):
            filled(cupy.zeros(1, "float32"), 1, cycles=1)
            cupy.cuda.Device(device).synchronize()
    return filled


def waiting_arrays(cupy, devices):
    """Returns arrays of zeros, which are complete, and a stream for each device."""
    arrays, streams = [], []
    for device in devices:
        with cupy.cuda.Device(device):
            arrays.append(cupy.zeros(1 << 20, "float32"))
            streams.append(cupy.cuda.Stream(non_blocking=True))
            cupy.cuda.Device(device).synchronize()
    return arrays, streams


def check_sums(cupy, world, arrays, streams):
    expected = world.size * (world.size + 1) / 2
    for array, stream in zip(arrays, streams):
        with cupy.cuda.Device(array.device.id):
            stream.synchronize()
            np.testing.assert_array_equal(cupy.asnumpy(array), np.full(array.size, expected, "float32"))


def test_each_rank_waits_for_cupys_current_stream_and_the_cpu_does_not(world, devices, slow_fill):
    cupy = Cupy().cupy
    arrays, streams = waiting_arrays(cupy, devices)
    replies = []
    for rank, device in enumerate(devices):
        with cupy.cuda.Device(device), streams[rank]:
            slow_fill(arrays[rank], rank + 1)
            replies.append(world.rank(rank).all_reduce(arrays[rank]))
    assert not streams[-1].done  # the request was made while its kernels still ran
    for reply in replies:
        reply.result(PATIENCE)
    check_sums(cupy, world, arrays, streams)


def test_one_ask_waits_for_the_current_stream_of_every_arrays_device(world, devices, slow_fill):
    cupy = Cupy().cupy
    arrays, streams = waiting_arrays(cupy, devices)
    with contextlib.ExitStack() as current:  # CuPy has a current stream for each device
        for rank, device in enumerate(devices):
            current.enter_context(cupy.cuda.Device(device))
            current.enter_context(streams[rank])
            slow_fill(arrays[rank], rank + 1)
        reply = world.all_reduce(arrays)
        assert not streams[-1].done
    reply.result(PATIENCE)
    check_sums(cupy, world, arrays, streams)


def test_the_default_stream_is_one_too(world, devices, slow_fill):
    cupy = Cupy().cupy
    arrays, streams = waiting_arrays(cupy, devices)
    for rank, device in enumerate(devices):
        with cupy.cuda.Device(device):
            slow_fill(arrays[rank], rank + 1)
    world.all_reduce(arrays).result(PATIENCE)
    check_sums(cupy, world, arrays, streams)


def test_a_stream_can_be_named(world, devices, slow_fill):
    cupy = Cupy().cupy
    arrays, streams = waiting_arrays(cupy, devices)
    replies = []
    for rank, device in enumerate(devices):
        with cupy.cuda.Device(device), streams[rank]:
            slow_fill(arrays[rank], rank + 1)
    for rank in world.local_ranks:  # none of these streams is current any more
        replies.append(world.rank(rank).all_reduce(arrays[rank], stream=streams[rank]))
    for reply in replies:
        reply.result(PATIENCE)
    check_sums(cupy, world, arrays, streams)


def test_an_array_that_is_dropped_is_held_until_the_outcome(world, devices, slow_fill):
    cupy = Cupy().cupy
    arrays, streams = waiting_arrays(cupy, devices)
    outs = [troupe.empty(world, rank, 1 << 20) for rank in world.local_ranks]
    with contextlib.ExitStack() as current:
        for rank, device in enumerate(devices):
            current.enter_context(cupy.cuda.Device(device))
            current.enter_context(streams[rank])
            slow_fill(arrays[rank], rank + 1)
        reply = world.all_reduce(arrays, out=outs)
        del arrays[:]
        gc.collect()
        for device in devices:  # memory that was freed would be reused here
            with cupy.cuda.Device(device):
                cupy.full(1 << 20, -1, "float32")
    reply.result(PATIENCE)
    check_sums(cupy, world, [cupy.from_dlpack(one) for one in outs], streams)


@pytest.mark.parametrize("made_by", ["cupy", "torch", "troupe"])
def test_arrays_of_jax_are_sources(world, devices, jax, made_by):
    sources = place_all(jax, ranked(world, 1000), devices)
    if made_by == "troupe":
        outs = [troupe.empty(world, rank, 1000) for rank in world.local_ranks]
    else:
        library = LIBRARIES[made_by]()
        outs = place_all(library, [np.zeros(1000, "float32")] * world.size, devices)
    reply = world.all_reduce(sources, out=outs).result(PATIENCE)
    assert reply.out[0] is outs[0]
    for out in outs:
        sums = np.asarray(jax.jax.dlpack.from_dlpack(out)) if made_by == "troupe" else library.numpy(out)
        np.testing.assert_array_equal(sums, summed(world, 1000))
    for rank, source in enumerate(sources):
        np.testing.assert_array_equal(np.asarray(source), ranked(world, 1000)[rank])


def test_jax_takes_what_troupe_has_made(world, devices, jax):
    sources = place_all(jax, ranked(world, 64), devices)
    reply = world.all_gather(sources).result(PATIENCE)
    gathered = [jax.jax.dlpack.from_dlpack(one) for one in reply.out]
    del reply
    gc.collect()  # JAX's array holds the memory
    for device, one in zip(devices, gathered):
        assert one.devices() == {jax.devices[device]}
        np.testing.assert_array_equal(np.asarray(one), np.stack(ranked(world, 64)))
        np.testing.assert_array_equal(np.asarray(one * 2), 2 * np.stack(ranked(world, 64)))


def test_the_shards_of_one_array_of_jax_are_reduced_and_put_together_again(world, devices, jax):
    sharding = jax.jax.sharding
    mesh = sharding.Mesh(np.array([jax.devices[device] for device in devices]), ("ranks",))
    over_ranks = sharding.NamedSharding(mesh, sharding.PartitionSpec("ranks"))
    whole = jax.jax.device_put(np.concatenate(ranked(world, 100)), over_ranks)
    of = {shard.device: shard.data for shard in whole.addressable_shards}
    sources = [of[jax.devices[device]] for device in devices]
    outs = [troupe.empty(world, rank, 100) for rank in world.local_ranks]
    world.all_reduce(sources, out=outs).result(PATIENCE)
    sums = jax.jax.make_array_from_single_device_arrays(
        whole.shape, over_ranks, [jax.jax.dlpack.from_dlpack(out) for out in outs])
    np.testing.assert_array_equal(np.asarray(sums), np.tile(summed(world, 100), world.size))


def test_requests_wait_for_what_jax_computes(world, devices, jax):
    """JAX returns before its GPU has computed; its __dlpack__ makes a stream of troupe wait for the result."""
    size = 2048

    @jax.jax.jit
    def compute(x):  # some milliseconds, and the same values again: permutations are exact
        return jax.jax.lax.fori_loop(0, 64, lambda _, y: y @ permutation(x), x)

    def permutation(x):
        return jax.jax.numpy.roll(jax.jax.numpy.eye(size, dtype=x.dtype), 1, axis=0)

    given = [np.full((size, size), rank + 1, "float32") for rank in world.local_ranks]
    placed = place_all(jax, given, devices)
    for one in placed:
        compute(one).block_until_ready()  # compiled now
    outs = [troupe.empty(world, rank, (size, size)) for rank in world.local_ranks]
    world.all_reduce([compute(one) for one in placed], out=outs).result(PATIENCE)
    for out in outs:
        np.testing.assert_array_equal(np.asarray(jax.jax.dlpack.from_dlpack(out)),
                                      np.full((size, size), world.size * (world.size + 1) / 2, "float32"))


def test_an_array_of_jax_is_no_destination(world, devices, jax):
    values = place_all(jax, ranked(world, 8), devices)
    outs = [troupe.empty(world, rank, 8) for rank in world.local_ranks]
    for given in ({"tensors": values}, {"tensors": outs, "out": values}):
        with pytest.raises(troupe.InvalidArgument, match="immutable"):
            world.all_reduce(**given)
    np.testing.assert_array_equal(np.asarray(values[0]), ranked(world, 8)[0])


def test_bfloat16_of_jax_and_pytorch(world, devices, jax):
    torch = Torch().torch
    sources = [jax.jax.device_put(jax.jax.numpy.full(100, rank + 1, "bfloat16"), jax.devices[device])
               for rank, device in enumerate(devices)]
    outs = [torch.zeros(100, dtype=torch.bfloat16, device=f"cuda:{device}") for device in devices]
    world.all_reduce(sources, out=outs).result(PATIENCE)
    assert all(bool((out == world.size * (world.size + 1) / 2).all()) for out in outs)


def test_an_array_of_another_ranks_gpu_is_refused(world, devices, library):
    values = place_all(library, ranked(world, 8), devices)
    with pytest.raises(troupe.WrongDevice):
        world.all_reduce(values[1:] + values[:1]).result(PATIENCE)


def test_an_array_with_gaps_is_refused_with_what_to_do(world, devices, library):
    values = place_all(library, [np.ones((4, 4), "float32")] * world.size, devices)
    with pytest.raises(troupe.InvalidArgument, match="contiguous"):
        world.all_reduce([value[:, ::2] for value in values])
