"""Replies in asyncio, in threads, and with timeouts."""
import asyncio
import threading
import time

import numpy as np
import pytest

import troupe
import troupe.testing


@pytest.fixture(params=[0, 0.001], ids=["suspending", "spinning"])
def spin(request):
    troupe.set_await_spin(request.param)
    yield
    troupe.set_await_spin(50e-6)


def test_many_requests_are_gathered(world, spin):
    values = [[np.full(4, rank + turn, "int64") for rank in range(3)] for turn in range(300)]

    async def program():
        return await asyncio.gather(*(world.all_reduce(one) for one in values))
    completions = asyncio.run(program())
    assert len({one.ticket for one in completions}) == 300
    for turn, one in enumerate(values):
        np.testing.assert_array_equal(one[1], np.full(4, 3 + 3 * turn))


def test_tasks_go_on_while_others_wait(spin):
    with troupe.testing.MockWorld(2) as mock:
        mock.script.on(0).operation(0).delay(0.2)

        async def program():
            ticks = 0
            waiting = asyncio.ensure_future(asyncio.wait_for(mock.world.barrier(), 30))
            while not waiting.done():
                ticks += 1
                await asyncio.sleep(0.001)
            await waiting
            return ticks
        assert asyncio.run(program()) > 5


def test_several_tasks_wait_for_one_reply(world, spin):
    async def program():
        reply = world.barrier()

        async def wait():
            return (await reply).ticket
        tickets = await asyncio.gather(*(wait() for _ in range(5)))
        assert len(set(tickets)) == 1
    asyncio.run(program())


def test_a_task_that_is_cancelled_leaves_its_request_alone(spin):
    with troupe.testing.MockWorld(2) as mock:
        mock.script.on(0).operation(0).delay(0.3)

        async def program():
            reply = mock.world.all_reduce([np.ones(2), np.ones(2)])
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(_of(reply), 0.01)
            return await reply

        async def _of(reply):
            return await reply
        np.testing.assert_array_equal(asyncio.run(program()).out[0], [2, 2])


def test_loops_one_after_the_other_and_in_threads(world, spin):
    async def program():
        for _ in range(20):
            await world.barrier()
    for _ in range(3):
        asyncio.run(program())
    threads = [threading.Thread(target=lambda: asyncio.run(program())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_a_timeout_ends_the_waiting_and_not_the_request():
    with troupe.testing.MockWorld(2) as mock:
        mock.script.on(0).operation(0).delay(0.2)
        reply = mock.world.barrier()
        assert not reply.done()
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            reply.result(timeout=0.01)
        assert time.monotonic() - began < 0.19
        reply.result(30)
        assert reply.done()


def test_the_gil_is_free_while_a_thread_waits():
    with troupe.testing.MockWorld(2) as mock:
        mock.script.on(0).operation(0).delay(0.3)
        reply = mock.world.barrier()
        waiting = threading.Thread(target=reply.result)
        waiting.start()
        count, until = 0, time.monotonic() + 0.1
        while time.monotonic() < until:
            count += 1
        assert count > 1000
        waiting.join(30)


def test_threads_ask_and_wait_at_once(world):
    def ask():
        for turn in range(50):
            values = [np.full(3, turn, "int32") for _ in range(3)]
            world.all_reduce(values).result(30)
            assert values[2].tolist() == [3 * turn] * 3
            done.append(turn)
    done = []
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(done) == 200


def test_wrong_spins_are_refused():
    with pytest.raises(ValueError):
        troupe.set_await_spin(-1)
    with pytest.raises(ValueError):
        troupe.set_result_spin(-1)


def test_polling_stops_while_it_does_not_pay():
    troupe.set_result_spin(0.02)
    try:
        with troupe.testing.MockWorld(2) as mock:
            waits = mock.world.rank(0).lane("alone").barrier()  # for rank 1

            def wait():
                with pytest.raises(TimeoutError):
                    waits.result(0.02)
            for _ in range(10):
                wait()
            before = time.thread_time()
            for _ in range(30):
                wait()
            assert time.thread_time() - before < 0.1  # of 0.6 s; one in 64 waits polls
    finally:
        troupe.set_result_spin(50e-6)
