"""DLPack's two forms, with and without a version: which one is requested, imported and exported, and the flags."""
import ctypes
import gc
import importlib.util
import os
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import troupe
import troupe.testing

READ_ONLY, IS_COPIED = 1, 2
VERSIONED, USED = b"dltensor_versioned", b"used_dltensor_versioned"


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", Device), ("ndim", ctypes.c_int32), ("dtype", DataType),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned, as DLPack's C API documents it."""


Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(Versioned))
Versioned._fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("manager_ctx", ctypes.c_void_p),
                      ("deleter", Deleter), ("flags", ctypes.c_uint64), ("tensor", Tensor)]

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
name_of = ctypes.pythonapi.PyCapsule_GetName
name_of.restype, name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


KEPT = []  # exported tensors live until they are deleted, even without their producer; here indefinitely


class Producer:
    """A library with DLPack 1.0, which exports NumPy's float32 arrays with a version."""

    def __init__(self, values, flags=0, version=(1, 0)):
        self.values, self.flags, self.version = values, flags, version
        self.asked, self.capsules, self.deleted = [], [], 0

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self.asked.append({"stream": stream, "max_version": max_version})
        shape = (ctypes.c_int64 * self.values.ndim)(*self.values.shape)
        made = Versioned(self.version[0], self.version[1], None, Deleter(self.delete), self.flags,
                         Tensor(self.values.ctypes.data, Device(1, 0), self.values.ndim, DataType(2, 32, 1), shape,
                                None, 0))
        KEPT.append((self, made, shape))
        self.capsules.append(new_capsule(ctypes.addressof(made), VERSIONED, None))
        return self.capsules[-1]

    def delete(self, _):
        self.deleted += 1


def producers(world, flags=0, version=(1, 0)):
    return [Producer(np.full(4, rank + 1, "float32"), flags, version) for rank in range(world.size)]


def outs(world):
    return [np.zeros(4, "float32") for _ in range(world.size)]


def is_deleted(producer, times=1, seconds=10):
    """Waits for the deletion: objects that threads of troupe release are deleted later by a thread of Python."""
    until = time.monotonic() + seconds
    while producer.deleted < times and time.monotonic() < until:
        gc.collect()
        time.sleep(0.001)
    return producer.deleted == times


def test_a_tensor_with_a_version_is_written_in_place_and_deleted_once(world):
    values = producers(world)
    reply = world.all_reduce(values).result()
    assert reply.out[0] is values[0]
    for value in values:
        np.testing.assert_array_equal(value.values, np.full(4, 6))
        assert value.asked == [{"stream": None, "max_version": (1, 0)}]
        assert name_of(value.capsules[0]) == USED
        assert is_deleted(value)


def test_a_producer_of_the_older_form_is_asked_again_without_a_version(world):
    class Older:
        def __init__(self, rank):
            self.rank, self.lent = rank, troupe.empty(world, rank, 4, "float32")
            np.asarray(self.lent)[:] = rank + 1

        def __dlpack_device__(self):
            return self.lent.__dlpack_device__()

        def __dlpack__(self, stream=None):
            return self.lent.__dlpack__()

    values = [Older(rank) for rank in range(3)]
    for sum in (6, 18):  # the second time its type is known
        world.all_reduce(values).result()
        np.testing.assert_array_equal(np.asarray(values[2].lent), np.full(4, sum))


def test_a_type_error_of_the_producers_own_is_raised(world):
    class Broken:
        def __dlpack_device__(self):
            return (1, 0)

        def __dlpack__(self, **_):
            raise TypeError("a broken producer")

    for _ in range(2):
        with pytest.raises(TypeError, match="a broken producer"):
            world.all_reduce([Broken() for _ in range(3)])


def test_a_read_only_tensor_is_a_source(world):
    values, sums = producers(world, READ_ONLY), outs(world)
    world.all_reduce(values, out=sums).result()
    np.testing.assert_array_equal(sums[1], np.full(4, 6))
    made = world.all_gather([value for value in values], [np.zeros(12, "float32") for _ in range(3)]).result()
    np.testing.assert_array_equal(made.out[2], np.repeat([1, 2, 3], 4))
    with world.group() as both:
        both.transfer(0, values[0], 1, sums[1])
    both.reply.result()
    np.testing.assert_array_equal(sums[1], np.ones(4))
    for rank, value in enumerate(values):
        np.testing.assert_array_equal(value.values, np.full(4, rank + 1))


def test_a_read_only_tensor_is_no_destination(world):
    values, sums = producers(world, READ_ONLY), outs(world)
    for ask in (lambda: world.all_reduce(values),
                lambda: world.all_reduce(sums, out=values),
                lambda: world.all_reduce(values, out=values),
                lambda: world.reduce(values, root=1),
                lambda: world.broadcast(values, root=0),
                lambda: world.prepare("all_reduce", values),
                lambda: world.rank(0).recv(values[0], peer=1),
                lambda: world.rank(0).copy(sums[0], values[0])):
        with pytest.raises(troupe.InvalidArgument, match="read-only.*make a copy"):
            ask()
    for rank, value in enumerate(values):
        np.testing.assert_array_equal(value.values, np.full(4, rank + 1))
        assert is_deleted(value, len(value.asked))


def test_only_the_roots_tensor_of_a_reduce_is_written(world):
    values = producers(world, READ_ONLY)
    values[1] = Producer(np.full(4, 2, "float32"))
    world.reduce(values, root=1).result()
    np.testing.assert_array_equal(values[1].values, np.full(4, 6))
    world.broadcast(values[:1] + outs(world)[1:], root=0, out=outs(world)).result()


def test_a_copy_is_a_source_and_no_destination(world):
    values, sums = producers(world, IS_COPIED), outs(world)
    world.all_reduce(values, out=sums).result()
    np.testing.assert_array_equal(sums[0], np.full(4, 6))
    with pytest.raises(troupe.InvalidArgument, match="exported a copy"):
        world.all_reduce(sums, out=values)


def test_another_major_version_is_refused_and_stays_its_producers(world):
    values = producers(world, version=(2, 0))
    with pytest.raises(troupe.Unsupported, match=r"2\.0.*max_version"):
        world.all_reduce(values)
    assert name_of(values[0].capsules[0]) == VERSIONED and values[0].deleted == 0


def test_arrays_that_may_only_be_read_are_sources_where_their_library_can_say_so(world):
    fixed = np.ones(4, "float32")
    fixed.flags.writeable = False
    try:
        fixed.__dlpack__(max_version=(1, 0))
    except (BufferError, TypeError) as why:
        pytest.skip(f"this NumPy ({np.__version__}) does not export them: {why}")
    sums = outs(world)
    world.all_reduce([fixed] * 3, out=sums).result()
    np.testing.assert_array_equal(sums[0], np.full(4, 3))


def test_a_virtual_world_reads_what_may_only_be_read():
    fixed = np.ones(4, "float32")
    fixed.flags.writeable = False
    with troupe.testing.VirtualWorld(2) as world:
        sums = [np.zeros(4, "float32") for _ in range(2)]
        world.all_reduce([fixed, fixed], out=sums).result()
        np.testing.assert_array_equal(sums[0], [2, 2, 2, 2])
        with pytest.raises((BufferError, ValueError)):
            world.all_reduce([fixed, fixed])


@pytest.mark.parametrize("asked, name", [({}, b"dltensor"), ({"max_version": None}, b"dltensor"),
                                         ({"max_version": (0, 8)}, b"dltensor"), ({"max_version": (1, 0)}, VERSIONED),
                                         ({"max_version": (1, 3)}, VERSIONED), ({"max_version": (2, 0)}, VERSIONED),
                                         ({"stream": -1, "copy": False, "dl_device": (1, 0)}, b"dltensor")])
def test_a_buffer_is_lent_in_the_form_that_its_reader_knows(world, asked, name):
    assert name_of(troupe.empty(world, 0, 4).__dlpack__(**asked)) == name


def test_a_buffer_is_exported_with_a_version(world):
    made = troupe.empty(world, 0, (2, 3), "int32")
    capsule = made.__dlpack__(max_version=(1, 0))
    shown = Versioned.from_address(pointer_of(capsule, VERSIONED))
    assert ((shown.major, shown.minor), shown.flags, shown.tensor.byte_offset) == ((1, 0), 0, 0)
    assert (shown.tensor.device.type, shown.tensor.device.id) == made.__dlpack_device__()
    assert shown.tensor.shape[:2] == [2, 3] and shown.tensor.strides[:2] == [3, 1]
    assert (shown.tensor.dtype.code, shown.tensor.dtype.bits, shown.tensor.dtype.lanes) == (0, 32, 1)
    assert shown.tensor.data == made.__array_interface__["data"][0]
    del capsule  # and with it the tensor, which no consumer has taken
    np.testing.assert_array_equal(np.from_dlpack(made).shape, (2, 3))


def test_a_buffer_that_is_lent_with_a_version_comes_back(world):
    class Lent:
        def __init__(self, what):
            self.what = what

        def __dlpack_device__(self):
            return self.what.__dlpack_device__()

        def __dlpack__(self, **asked):
            made = self.what.__dlpack__(**asked)
            assert name_of(made) == VERSIONED
            return made

    values = [troupe.empty(world, rank, 4, "float32") for rank in range(3)]
    for value in values:
        np.asarray(value)[:] = 2
    world.all_reduce([Lent(value) for value in values]).result()  # it is still device memory, which other ranks reject
    np.testing.assert_array_equal(np.asarray(values[1]), np.full(4, 6))
    with pytest.raises(troupe.WrongDevice):
        world.rank(0).copy(Lent(values[1]), np.zeros(4, "float32")).result()


def test_fp8_is_lent_to_readers_of_1_1(world):
    made = troupe.empty(world, 0, 4, "float8_e4m3fn")
    capsule = made.__dlpack__(max_version=(1, 1))
    shown = Versioned.from_address(pointer_of(capsule, VERSIONED))
    assert (shown.major, shown.minor, shown.tensor.dtype.code) == (1, 1, 10)
    for asked in ({}, {"max_version": (1, 0)}):
        with pytest.raises(troupe.Unsupported, match="dtype::u8"):
            made.__dlpack__(**asked)


def run(program):
    """Runs the program in its own process, because the imported libraries are determined once per process."""
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program)], timeout=120, capture_output=True, text=True,
                          env={**os.environ, "JAX_PLATFORMS": "cpu"})


# Imitates a library of GPU arrays: memory of a mock device, declared as CUDA memory.
GPU_LIBRARY = """
    import sys, types
    import numpy as np
    import troupe, troupe.testing

    mock = troupe.testing.MockWorld(2)
    asked, streams, handles = [], [], {}

    class Lent:
        knows_versions = True

        def __init__(self, rank):
            self.lent = troupe.empty(mock.world, rank, 4, "float32")
            self.device = types.SimpleNamespace(id=rank)
            np.asarray(self.lent)[:] = rank + 1

        def __dlpack_device__(self):
            return (2, self.device.id)

        def __dlpack__(self, **given):
            asked.append(given)
            handles[self.device.id] = given["stream"]
            if "max_version" in given and not self.knows_versions:
                raise TypeError("an unexpected keyword argument 'max_version'")
            return self.lent.__dlpack__(max_version=given.get("max_version"))

    class ndarray(Lent):
        pass

    def current(index):
        streams.append(index)
        return types.SimpleNamespace(ptr=mine[index])

    def check(values, sum):
        for value in values:
            np.testing.assert_array_equal(np.asarray(value.lent), np.full(4, sum))
"""


@pytest.mark.parametrize("knows_versions", [True, False])
def test_the_current_stream_of_each_arrays_device_is_asked_for_by_every_ask(knows_versions):
    done = run(GPU_LIBRARY + f"""
    Lent.knows_versions = {knows_versions}
    sys.modules["cupy"] = types.SimpleNamespace(
        ndarray=ndarray, cuda=types.SimpleNamespace(get_current_stream=current))
    mock.world.prepare("all_reduce", [Lent(0), Lent(1)])
    mine = dict(handles)  # live streams of the mock
    del asked[:]
    values = [ndarray(0), ndarray(1)]
    request = mock.world.prepare("all_reduce", values)
    assert all(one["stream"] == -1 for one in asked), asked  # otherwise it would use the current device's stream
    for sum in (3, 6):
        request.ask().result(30)
        check(values, sum)
    assert sorted(streams) == [0, 0, 1, 1], streams
    request = mock.world.prepare("all_reduce", values, stream=None)
    request.ask().result(30)
    assert len(streams) == 4
    mock.close()
    """)
    assert done.returncode == 0, done.stderr


def test_another_librarys_arrays_are_ordered_by_a_stream_of_troupes():
    done = run(GPU_LIBRARY + """
    values = [ndarray(0), ndarray(1)]
    mock.world.all_reduce(values).result(30)
    check(values, 3)
    assert [one["max_version"] for one in asked] == [(1, 0)] * 2, asked
    assert asked[0]["stream"] != asked[1]["stream"] and all(one["stream"] > 0 for one in asked), asked
    mock.world.all_reduce(values, stream=None).result(30)
    assert asked[2]["stream"] == -1
    mock.close()
    """)
    assert done.returncode == 0, done.stderr


def test_arrays_of_jax_are_sources_only():
    done = run(GPU_LIBRARY + """
    sys.modules["jax"] = types.SimpleNamespace(Array=ndarray)  # which does not tell that it is immutable
    values, outs = [ndarray(0), ndarray(1)], [troupe.empty(mock.world, rank, 4) for rank in range(2)]
    mock.world.all_reduce(values, out=outs).result(30)
    np.testing.assert_array_equal(np.asarray(outs[1]), np.full(4, 3))
    for given in ({"tensors": values}, {"tensors": outs, "out": values}):
        try:
            mock.world.all_reduce(**given)
        except troupe.InvalidArgument as why:
            assert "immutable" in str(why)
        else:
            raise AssertionError("not refused")
    check(values[:1], 1)
    mock.close()
    """)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_jax_itself_on_the_host():
    done = run("""
    import jax
    import numpy as np
    import troupe, troupe.testing

    with troupe.testing.MockWorld(2) as mock:
        values = [jax.numpy.full(8, rank + 1, "float32") for rank in range(2)]
        outs = [troupe.empty_pinned(mock.world, 8) for _ in range(2)]
        mock.world.all_reduce(values, out=outs).result(30)
        taken = jax.dlpack.from_dlpack(outs[1])
        del outs
        np.testing.assert_array_equal(np.asarray(taken), np.full(8, 3))
        np.testing.assert_array_equal(np.asarray(values[1]), np.full(8, 2))
        try:
            mock.world.all_reduce(values)
        except troupe.InvalidArgument as why:
            assert "immutable" in str(why)
        else:
            raise AssertionError("not refused")
    """)
    assert done.returncode == 0, done.stderr


def test_a_buffer_is_lent_neither_elsewhere_nor_as_a_copy(world):
    made = troupe.empty(world, 0, 4)
    with pytest.raises(BufferError, match="copy it to the other device"):
        made.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="without a copy"):
        made.__dlpack__(copy=True)
    with pytest.raises(TypeError):
        made.__dlpack__(colour="blue")
