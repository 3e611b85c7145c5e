"""Uses of troupe that a strict type checker accepts: see test_typing.py."""
from __future__ import annotations

import datetime
from typing import List, Optional

import numpy as np
from numpy.typing import NDArray

import troupe
import troupe.testing


async def ask(world: troupe.World, mine: troupe.Rank[troupe.Reply], grads: List[NDArray[np.float32]]) -> int:
    sums = [np.empty_like(one) for one in grads]
    reply: troupe.Reply = world.all_reduce(grads, out=sums, op="avg", deadline=5.0)
    done: troupe.Completion = await reply
    world.all_reduce(grads, "pre_mul_sum", factor=[0.5, 0.25], deadline=datetime.timedelta(seconds=5)).result(timeout=1)
    world.broadcast(grads, 0, stream=None)
    world.scatter([grads[0], None], root=0, out=sums)
    world.all_gather_v(grads, sums, ([1, 2], [0, 1]))
    mine.lane("decode").reduce(grads[0], root=1, dtype="float8_e4m3fn")
    mine.all_to_all_v(grads[0], sums[0], [1, 2], [2, 1])
    mine.send(troupe.empty(world, 0, (2, 3)), peer=1, tag=7, lane="kv")
    mine.barrier()
    mine.lane("steps").commit(12, deadline=5.0)
    point: Optional[troupe.ResumePoint] = world.status.resume_point("steps")
    step: Optional[int] = point.commit if point is not None else None
    request: troupe.Request = world.prepare("all_reduce", grads, op="max")
    with world.group(deadline=1.0) as both:
        both.all_reduce(grads)
        both.transfer(0, grads[0], 1, sums[0])
        both.on(0, "broadcast", grads[0], root=0)
    asked: Optional[troupe.Reply] = both.reply
    failure: Optional[BaseException] = request.ask().exception()
    if isinstance(failure, troupe.Error) and failure.was_rejected and asked is not None:
        asked.result()
    return done.epoch if step is None else step


async def keep(world: troupe.World, weights: List[NDArray[np.float32]]) -> Optional[int]:
    mine = world.rank(0).lane("steps")
    saved = troupe.Checkpoints(mine, weights)
    at: troupe.Resumed = await saved.async_resume(world.status, weights)
    await world.write(0, weights[0], troupe.empty(world, 0, 4), deadline=1.0)
    seen: troupe.Reply = mine.read(weights[0])
    saved.commit(at.commit or 1)
    return at.received_from if seen.done() else saved.resume(world.status).commit


async def drive(driver: troupe.Driver, world: troupe.World) -> bytes:
    status: troupe.WorldEvent = await driver.ready()
    mine: troupe.RemoteBuffer = world.export_memory(0, troupe.empty(world, 0, 4), "mine")
    found = [await driver.find_memory(rank, "mine", "float32") for rank in range(status.world_size)]
    scratch: troupe.RemoteBuffer = driver.allocate(1, 64).result(timeout=1)
    reply: troupe.Reply = driver.all_reduce(found, "max", deadline=5.0)
    await reply
    await world.all_reduce([mine, scratch.slice(0, 16), None])
    world.register_function("work", lambda rank, epoch, stream, memory, values: memory[rank].nbytes + len(values))
    await driver.call("work", [[one] for one in found], values=b"1", deadline=1.0)
    with driver.group() as both:
        both.broadcast(found, root=0)
        both.on(1, "copy", found[1], out=scratch)
    driver.transfer(0, found[0], 1, troupe.RemoteBuffer.parse(str(scratch), "float32"), tag=1).result()
    driver.events(lambda now: print(now.phase))
    with driver.events() as changes:
        phases: List[str] = [now.phase for now in changes]
    async for now in world.events():
        phases.append(now.phase)
    async with world, driver as same:
        await same.ready()
    driver.release(scratch)
    return await driver.read(found[0])


def pretend(values: List[NDArray[np.float32]]) -> bool:
    script = troupe.testing.FaultScript()
    script.on(1).operation(0).hang()
    with troupe.testing.VirtualWorld(2, script, recovery_policy="keep_size", limits_hang=0.1) as world:
        reply: troupe.testing.VirtualReply = world.rank(0).all_reduce(values[0])
        return world.run_until(reply.done, at_most=5.0) and world.wait_ready(5.0, after_epoch=1).epoch == 2


async def pretend_to_wait(world: troupe.testing.VirtualWorld) -> troupe.WorldEvent:
    return await world.ready(after_epoch=1)


def processes() -> str:
    with troupe.Controller(4, policy="shrink", smallest=2) as controller:
        environment = controller.environment(rank=0)
        return environment["TROUPE_CONTROL"] + troupe.program_path()


with troupe.Runtime(backend="mock", mock_devices=2, deadlines_form=10.0, config=None) as runtime:
    apart: troupe.World = runtime.form_world(devices=(1,))
    parts = runtime.form_world().split({"even": [0], "odd": [1]})
