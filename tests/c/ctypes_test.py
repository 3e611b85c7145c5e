#!/usr/bin/env -S python3 -B
"""Drives libtroupe_c from Python by ctypes alone, as a program in another language would, on the mock.

usage: ctypes_test.py LIBRARY HEADER
"""
import ctypes
import pathlib
import sys
import threading
import unittest

from header import Header

LIBRARY, HEADER = sys.argv[1], Header(pathlib.Path(sys.argv[2]))
RANKS, COUNT, PATIENCE_NS = 3, 8, 60 * 10**9
NUMBER = HEADER.numbers
DONE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
HEARD = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
FORGET = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
RANK_FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
known = {}
library = ctypes.CDLL(LIBRARY)
for name, (result, parameters) in HEADER.functions.items():
    function = getattr(library, name)
    function.restype = None if result == "void" else HEADER.ctype(result, known)
    function.argtypes = [HEADER.ctype(one, known) for one in parameters]


def struct(name, **fields):
    """Returns a struct of this name with its size and these fields."""
    made = HEADER.layout(f"troupe_{name}", known)(**fields)
    made.size = ctypes.sizeof(made)
    return made


def at(one):
    return ctypes.addressof(one)


class Failure(Exception):
    def __init__(self, code, info, error):
        super().__init__(f"{library.troupe_code_name(code).decode()}: {info.line}")
        self.code, self.info, self.error = code, info, error


def call(name, *arguments):
    """Calls a function whose last parameter receives the error. Returns its code, which is not a failure."""
    error = ctypes.c_void_p()
    code = getattr(library, f"troupe_{name}")(*arguments, at(error))
    if code > 0:
        info = struct("error_info")
        assert library.troupe_error_get(error, at(info)) == 0 and info.code == code
        raise Failure(code, info, error)
    assert not error.value
    return code


def make(name, *arguments):
    """Calls a function that makes a handle, and returns it."""
    handle = ctypes.c_void_p()
    call(name, *arguments, at(handle))
    assert handle.value
    return handle


def addresses(handles):
    return (ctypes.c_void_p * len(handles))(*[one.value for one in handles])


class World:
    def __init__(self):
        settings = make("settings_create", None)
        for key, value in (("backend", "mock"), ("mock.devices", str(RANKS)), ("log_level", "off")):
            call("settings_set", settings, key.encode(), value.encode())
        self.runtime = make("runtime_create", settings)
        library.troupe_settings_free(settings)
        self.world = make("runtime_form_world", self.runtime, None)

    def allocate(self):
        made = (ctypes.c_void_p * RANKS)()
        call("world_allocate_all", self.world, COUNT * 4, at(made), RANKS)
        return [ctypes.c_void_p(one) for one in made]

    def floats(self, buffer):
        """The mock's device memory is host memory."""
        return (ctypes.c_float * COUNT).from_address(library.troupe_buffer_address(buffer))

    def ask(self, kind, send=None, recv=None, options=None, made=True, **fields):
        what = struct("operation", kind=NUMBER[kind], type=NUMBER["TROUPE_F32"], count=COUNT, **fields)
        reply = ctypes.c_void_p()
        lists = [addresses(one) if one else None for one in (send, recv)]
        call("world_ask_each", self.world, at(what), *lists, RANKS, None if options is None else at(options),
             at(reply) if made else None)
        return reply

    def result(self, reply):
        completion = struct("completion")
        try:
            assert call("reply_wait", reply, PATIENCE_NS, at(completion)) == 0
        finally:
            library.troupe_reply_free(reply)
        return completion

    def close(self):
        library.troupe_world_free(self.world)
        library.troupe_runtime_free(self.runtime)


class Nulls(unittest.TestCase):
    def test_every_function_refuses_null(self):
        tried = 0
        for name, (result, parameters) in HEADER.functions.items():
            function = getattr(library, name)
            nothing = [0 if kind in (ctypes.c_size_t, ctypes.c_int32, ctypes.c_int64, ctypes.c_uint64) else None
                       for kind in function.argtypes]
            if result == "troupe_code" and parameters[-1] == "troupe_error**":
                error, info = ctypes.c_void_p(), struct("error_info")
                self.assertEqual(function(*nothing[:-1], at(error)), NUMBER["TROUPE_INVALID_ARGUMENT"], name)
                self.assertEqual(library.troupe_error_get(error, at(info)), 0)
                self.assertRegex(info.text.decode(), r"NULL|neither a reply nor a callback", name)
                library.troupe_error_free(error)
                tried += 1
            if result == "troupe_code":
                self.assertEqual(function(*nothing), NUMBER["TROUPE_INVALID_ARGUMENT"], name)
            elif parameters:
                function(*nothing)
        self.assertGreater(tried, 50)


class OnWorld(unittest.TestCase):
    """Tests with a world, and memory of each rank that holds its number + 1."""

    @classmethod
    def setUpClass(cls):
        cls.world = World()

    @classmethod
    def tearDownClass(cls):
        cls.world.close()

    def setUp(self):
        self.buffers = self.world.allocate()
        for rank, one in enumerate(self.buffers):
            self.world.floats(one)[:] = [rank + 1] * COUNT

    def tearDown(self):
        for one in self.buffers:
            library.troupe_buffer_free(one)


class Requests(OnWorld):
    def test_a_sum_is_right(self):
        done = self.world.result(self.world.ask("TROUPE_ALL_REDUCE", self.buffers, self.buffers))
        self.assertEqual((done.epoch, [self.world.floats(one)[0] for one in self.buffers]), (1, [6, 6, 6]))
        self.assertGreaterEqual(done.done_ns, done.queued_ns)

    def test_answers_reach_a_callback(self):
        told, arrived = [], threading.Event()

        @DONE
        def done(user, completed, failed):
            told.append((user, bool(completed), bool(failed)))
            arrived.set()

        options = struct("request_options", done=ctypes.cast(done, ctypes.c_void_p).value, user=7)
        self.world.ask("TROUPE_ALL_REDUCE", self.buffers, self.buffers, options, made=False)
        self.assertTrue(arrived.wait(60))
        self.assertEqual(told, [(7, True, False)])

    def test_an_error_has_its_fields(self):
        reply = self.world.ask("TROUPE_REDUCE", self.buffers, self.buffers, root=9)
        with self.assertRaises(Failure) as raised:
            self.world.result(reply)
        info = raised.exception.info
        self.assertEqual((info.code, info.effect, info.has_absence), (NUMBER["TROUPE_INVALID_ARGUMENT"], 0, 0))
        self.assertIn("9", info.text.decode())
        library.troupe_error_free(raised.exception.error)

    def test_threads_ask_at_once(self):
        wrong = []

        def work():
            mine = self.world.allocate()
            for _ in range(20):
                for rank, one in enumerate(mine):
                    self.world.floats(one)[:] = [rank + 1] * COUNT
                self.world.result(self.world.ask("TROUPE_ALL_REDUCE", mine, mine))
                wrong.extend(one for one in mine if list(self.world.floats(one)) != [6] * COUNT)
            for one in mine:
                library.troupe_buffer_free(one)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        self.assertEqual(wrong, [])

    def test_functions_of_python_run_at_ranks(self):
        layout = HEADER.layout("troupe_rank_call", known)

        @RANK_FUNCTION
        def scale(user, call):
            one = layout.from_address(call)
            values = (ctypes.c_float * COUNT).from_address(ctypes.c_void_p.from_address(one.addresses).value)
            values[:] = [10 * (one.rank + 1)] * COUNT
            return 0

        function = make("world_register_function", self.world.world, b"scale", ctypes.cast(scale, ctypes.c_void_p), None, None)
        operand = HEADER.layout("troupe_operand", known)
        arguments = [operand(memory=one.value) for one in self.buffers]
        parts = (HEADER.layout("troupe_operation", known) * RANKS)(*[
            struct("operation", kind=NUMBER["TROUPE_CALL"], function=function.value, arguments=at(one), argument_count=1)
            for one in arguments])
        reply = make("world_ask", self.world.world, at(parts), RANKS, None)
        self.world.result(reply)
        library.troupe_function_free(function)
        self.assertEqual([self.world.floats(one)[3] for one in self.buffers], [10, 20, 30])
        self.world.keep = scale  # the world holds it


class DLDevice(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", DLDevice), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class DLManagedTensor(ctypes.Structure):
    pass


DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(DLManagedTensor))
DLManagedTensor._fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", DELETER)]


class Tensors(OnWorld):
    def test_a_tensor_of_another_library_is_an_operand(self):
        deleted, gone = [], threading.Event()
        values, shape = (ctypes.c_float * COUNT)(*range(COUNT)), (ctypes.c_int64 * 2)(2, COUNT // 2)

        def delete(tensor):
            deleted.append(True)
            gone.set()

        deleter = DELETER(delete)
        tensor = DLManagedTensor(DLTensor(data=at(values), device=DLDevice(1, 0), ndim=2, code=2, bits=32, lanes=1, shape=shape),
                                 None, deleter)
        info, made = struct("tensor_info"), ctypes.c_void_p()
        try:
            call("world_import_dlpack", self.world.world, at(tensor), at(info), at(made))
        except Failure as failure:
            if failure.code == NUMBER["TROUPE_UNSUPPORTED"] and "DLPack" in str(failure):
                self.skipTest("troupe was built without DLPack")
            raise
        self.assertEqual((info.count, info.type, info.rank), (COUNT, NUMBER["TROUPE_F32"], -1))
        self.assertEqual(library.troupe_buffer_address(made), at(values))
        reply = ctypes.c_void_p()
        call("world_copy", self.world.world, 1, made, self.buffers[1], None, at(reply))
        library.troupe_buffer_free(made)
        self.world.result(reply)
        self.assertEqual(list(self.world.floats(self.buffers[1])), list(range(COUNT)))
        self.assertTrue(gone.wait(60))  # the request has gone a moment after its answer
        self.assertEqual(deleted, [True])

    def test_memory_is_exported_as_a_tensor(self):
        shape = (ctypes.c_int64 * 2)(4, 2)
        try:
            tensor = make("buffer_to_dlpack", self.buffers[2], NUMBER["TROUPE_F32"], at(shape), 2)
        except Failure as failure:
            self.skipTest(str(failure))
        shown = DLManagedTensor.from_address(tensor.value)
        self.assertEqual((shown.tensor.data, shown.tensor.ndim, shown.tensor.shape[0], shown.tensor.bits),
                         (library.troupe_buffer_address(self.buffers[2]), 2, 4, 32))
        shown.deleter(ctypes.pointer(shown))
        too_much = (ctypes.c_int64 * 1)(COUNT + 1)
        with self.assertRaises(Failure) as raised:
            make("buffer_to_dlpack", self.buffers[2], NUMBER["TROUPE_F32"], at(too_much), 1)
        library.troupe_error_free(raised.exception.error)
        versioned = make("buffer_to_dlpack_versioned", self.buffers[2], NUMBER["TROUPE_F8E4M3"], at(shape), 2)
        imported = make("world_import_dlpack_versioned", self.world.world, versioned, 0, None)
        self.assertEqual(library.troupe_buffer_size(imported), 8)
        library.troupe_buffer_free(imported)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
