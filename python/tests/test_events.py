"""Iteration over the events of a world, and asynchronous contexts."""
import asyncio
import gc
import threading

import pytest

import troupe
import troupe.testing
from troupe.testing import MockWorld, VirtualWorld


def faulty(mock):
    """Lets the world fail once, and come back as epoch 2."""
    mock.script.on(1).operation(0).fail()
    assert isinstance(mock.world.barrier().exception(60), troupe.CommunicatorFailed)
    assert mock.world.wait_ready(60, after_epoch=1).epoch == 2


def listeners():
    return [one for one in threading.enumerate() if one.name == "troupe.events"]


def test_a_loop_over_events_ends_with_the_world():
    with MockWorld(2, recovery_policy="keep_size") as mock:
        events = mock.world.events()
        faulty(mock)
        first = next(events)
        assert (first.phase, first.epoch) == ("rebuilding", 1) and isinstance(first.reason, troupe.CommunicatorFailed)
        stopper = threading.Timer(0.05, mock.world.stop)
        stopper.start()
        rest = [event.phase for event in events]
        stopper.join()
        assert rest[:2] == ["forming", "ready"] and rest[-1] == "stopped"
        assert list(mock.world.events()) == []  # a world that has stopped has no further events


def test_events_are_awaited_while_other_tasks_run():
    async def program(mock):
        events, ticks = mock.world.events(), 0

        async def until_ready():
            return [event.phase async for event in events if event.epoch == 2]

        waiting = asyncio.ensure_future(until_ready())
        await asyncio.sleep(0.01)
        assert not waiting.done()
        await asyncio.get_running_loop().run_in_executor(None, faulty, mock)
        while mock.world.status.phase != "ready":
            await asyncio.sleep(0.001)
        events.close()
        return await asyncio.wait_for(waiting, 60)

    with MockWorld(2, recovery_policy="keep_size") as mock:
        assert "ready" in asyncio.run(program(mock))


def test_a_cancelled_wait_loses_no_event():
    async def program(mock):
        events = mock.world.events()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(events.__anext__(), 0.01)
        await asyncio.get_running_loop().run_in_executor(None, faulty, mock)
        return [(await asyncio.wait_for(events.__anext__(), 60)).phase for _ in range(3)]

    with MockWorld(2, recovery_policy="keep_size") as mock:
        assert asyncio.run(program(mock)) == ["rebuilding", "forming", "ready"]


def test_an_iteration_that_is_left_ends_its_thread():
    before = len(listeners())
    with MockWorld(2, recovery_policy="keep_size") as mock:
        with mock.world.events():
            assert len(listeners()) == before + 1
        events = mock.world.events()
        iter(events)
        del events
        gc.collect()
        for thread in listeners():
            if len(listeners()) > before:
                thread.join(10)
        assert len(listeners()) == before
        faulty(mock)  # nobody listens


def test_contexts_of_asyncio_end_what_they_hold_while_the_loop_goes_on():
    async def program():
        async with troupe.Runtime(backend="mock", mock_devices=2, profile="frugal", log_level="off") as runtime:
            async with runtime.form_world() as world:
                assert (await world.ready()).phase == "ready"
                await world.barrier()
            assert world.status.phase == "stopped"
        with pytest.raises(troupe.Stopping):
            runtime.form_world()
        script = troupe.testing.FaultScript()
        script.on(0).operation(0).delay(0.2)
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0.001)

        ticking = asyncio.ensure_future(tick())
        async with troupe.Runtime(backend="mock", mock_devices=2, profile="frugal", log_level="off", faults=script) as runtime:
            late = runtime.form_world().barrier()
            ticks = 0
        ticking.cancel()  # the runtime has waited for the operation, and the loop has not
        return late.exception(60), ticks

    failure, ticks = asyncio.run(program())
    assert failure is None and ticks > 10


def test_a_virtual_world_ends_on_its_own_thread():
    async def program():
        async with VirtualWorld(2) as world:
            await world.barrier()
            return world

    with pytest.raises(troupe.Error):
        asyncio.run(program()).barrier().result()
