"""Misuses of troupe. Each line that ends in a comment is rejected by a strict type checker with that kind of error."""
from __future__ import annotations

from typing import List

import numpy as np
from numpy.typing import NDArray

import troupe
import troupe.testing


def ask(world: troupe.World, virtual: troupe.testing.VirtualWorld, x: List[NDArray[np.float32]],
        driver: troupe.Driver) -> None:
    world.all_reduce(x, opp="sum")  # call-arg
    world.all_reduce(x, op="summ")  # arg-type
    world.all_reduce(3)  # arg-type
    world.all_reduce(x, deadline="5s")  # arg-type
    world.broadcast(x)  # call-arg
    world.all_gather_v(x, x)  # call-arg
    world.barrier(stream=None)  # call-arg
    world.rank(0).all_reduce(x)  # arg-type
    world.rank("0")  # arg-type
    world.rank(0).send(x[0])  # call-arg
    world.rank(0).recv(x[0], peer=1, tags=3)  # call-arg
    world.prepare("all_redoce", x)  # arg-type
    world.prepare("all_reduce", x).result()  # attr-defined
    world.all_reduce(x).get()  # attr-defined
    world.group(lane="decode")  # call-arg
    world.events(3, 4)  # call-overload
    zero: troupe.WorldEvent = world.events()  # assignment
    world.split({"a": 0})  # dict-item
    world.replay(world.prepare("barrier"))  # arg-type
    one: troupe.Reply = virtual.all_reduce(x)  # assignment
    two = world.all_reduce(x) + 1  # operator
    three: str = world.epoch  # assignment
    world.write(0, x[0])  # call-arg
    troupe.Checkpoints(world, x)  # arg-type
    troupe.empty(world, 0)  # call-arg
    troupe.Runtime(config=3)  # arg-type
    troupe.Controller(policy="shrink")  # call-arg
    troupe.Controller(2, policy="shrinks")  # arg-type
    driver.all_reduce(x)  # arg-type
    driver.read("text")  # arg-type
    driver.allocate(0)  # call-arg
    driver.call("work", values=1, lane="x")  # call-arg
    driver.rank(0)  # attr-defined
    world.register_function("work", 3)  # arg-type
    four: str = driver.find_memory(0, "x").result()  # assignment
    print(one, two, three, four)


def names() -> None:
    troupe.Runtime(backend="mok")  # arg-type
    troupe.Runtime(backend="mock", profile="fast")  # arg-type
    with troupe.Runtime(backend="mock") as runtime:
        print(runtime.form_world().status.phase == "redy")  # comparison-overlap
