"""A process of a world over three mock ranks that asks for nothing itself: it exports memory and registers functions, until
it is told to end. See test_drivers.py. With the argument "ask", rank 0 asks all ranks."""
import sys
import threading

import numpy as np

import troupe

COUNT = 8


def ask_all(world, mine):
    """Asks all ranks as the process of rank 0. Returns what was found."""
    values = [mine] + [wait_for(world, rank, "values") for rank in range(1, world.size)]
    world.all_reduce(values).result(60)
    said = [float(np.asarray(mine)[0])]
    with world.group() as both:
        both.broadcast(values, root=0)
        both.barrier()
    both.reply.result(60)
    np.asarray(mine)[:] = 5
    world.transfer(0, mine, 2, values[2]).result(60)
    world.reduce(values, root=0).result(60)  # 5 + 6 + 5
    said.append(float(np.asarray(mine)[0]))
    world.write(2, np.full(COUNT, 9, "float32"), values[2]).result(60)
    seen = world.read(2, values[2], dtype="float32")
    seen.result(60)
    said.append(float(np.asarray(seen.out)[COUNT - 1]))
    try:
        world.all_reduce(values[:2])
    except troupe.InvalidArgument as why:
        said.append("list of 2" in str(why))
    stale = troupe.RemoteBuffer.parse(str(values[1]).replace(f":{values[1].id}:", ":999:", 1), "float32")
    failure = world.all_reduce([mine, stale, values[2]]).exception(60)
    said.append(type(failure).__name__)
    world.call("end").result(60)
    return said


def wait_for(world, rank, name):
    """Asks until the process of rank has exported the memory."""
    pause = threading.Event()
    while True:
        try:
            return world.find_memory(rank, name).result(60)
        except troupe.Missing:
            pause.wait(0.01)


with troupe.Runtime(backend="mock", log_level="off") as runtime:
    world = runtime.form_world()
    rank, = world.local_ranks
    ended = threading.Event()
    values = troupe.empty(world, rank, COUNT, "float32")
    np.asarray(values)[:] = rank + 1
    report = troupe.empty_pinned(world, COUNT, "float32")  # what the functions write, for the driver to read
    big = troupe.empty_pinned(world, 1 << 18, "float32")
    np.asarray(big)[:] = rank
    world.register_function("end", lambda *_: ended.set())

    def fill(self, epoch, stream, memory, numbers):
        """Fills the memory with the number of this rank. Nothing else is in flight."""
        np.asarray(memory[0]).view("float32")[:] = np.frombuffer(numbers, "float32")[self]

    def show(self, epoch, stream, memory, numbers):
        shown = np.asarray(memory[0]).view("float32")
        np.asarray(report)[:len(shown)] = shown

    def fail(*_):
        raise ValueError("no such kernel")

    for name, function in (("fill", fill), ("show", show), ("fail", fail)):
        world.register_function(name, function)
    plan = world.capture([world.prepare("all_reduce", values)], name="sum")
    own = world.export_memory(rank, np.zeros(4, "float32"), "dropped")
    world.unexport(own)
    world.export_memory(rank, report, "report")
    world.export_memory(rank, big, "big")
    handle = world.export_memory(rank, values, "values")  # last: then everything is there
    assert handle.dtype == "float32" and handle.exporter == rank

    if sys.argv[1:] == ["ask"] and rank == 0:
        print(ask_all(world, values), flush=True)
    ended.wait(100)
    world.rank(rank).lane("end").barrier().result(60)  # a process that ends leaves its world
