"""What embedders need of every runtime: transfers from and to host memory, worlds on chosen devices, checkpoints."""
import asyncio
import threading

import numpy as np
import pytest

import troupe
import troupe.testing


def test_values_that_are_written_are_read_in_the_order_of_the_rank(world):
    memory = [troupe.empty(world, rank, 64) for rank in world.local_ranks]
    replies, seen = [], []
    for rank in world.local_ranks:
        values = np.full(64, rank + 1, "float32")
        replies.append(world.write(rank, values, memory[rank]))
        values[:] = -1  # it has been read
    replies.append(world.all_reduce(memory))
    for rank in world.local_ranks:
        seen.append(world.read(rank, memory[rank]))
    for reply in replies:
        reply.result()
    for reply in seen:
        reply.result()
        np.testing.assert_array_equal(np.asarray(reply.out), np.full(64, 6, "float32"))


def test_a_lane_writes_and_reads(world):
    memory = troupe.empty(world, 1, (2, 3), "int32")
    with world.rank(1).lane("transfers") as mine:
        mine.write(np.arange(6, dtype="int32").reshape(2, 3), memory)
        reply = mine.read(memory)
        reply.result()
        assert np.asarray(reply.out).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_write_that_does_not_fit_is_refused(world):
    memory = troupe.empty(world, 0, 2)
    with pytest.raises(troupe.InvalidArgument):
        world.write(0, np.zeros(3, "float32"), memory).result()
    with pytest.raises(troupe.InvalidArgument, match="host memory.*copy"):
        world.write(0, troupe.empty(world, 0, 1), memory)
    with troupe.testing.VirtualWorld(1) as other:
        with pytest.raises(troupe.InvalidArgument, match="copy"):
            other.read(0, np.zeros(1, "float32"))


def test_worlds_on_disjoint_devices_fail_by_themselves():
    script = troupe.testing.FaultScript()
    with troupe.Runtime(backend="mock", mock_devices=5, profile="frugal", log_level="off", limits_hang=2.0,
                        limits_launch=2.0, faults=script) as runtime:
        trainer, rollouts = runtime.form_world(devices=[0, 1, 2]), runtime.form_world(devices=(4, 3))
        assert (trainer.size, rollouts.size) == (3, 2)
        script.on(2).next_operation().hang()  # only the trainer has a rank 2
        hung = trainer.barrier()
        for _ in range(5):
            rollouts.barrier().result(60)
        with pytest.raises(troupe.Error):
            hung.result(60)
        assert trainer.wait_ready(60, after_epoch=1).epoch == 2
        assert rollouts.epoch == 1
        rollouts.barrier().result(60)


@pytest.mark.parametrize("devices, text", [([0, 2], "device 2.*devices 0 to 1"), ([1, 1], "device 1 twice"),
                                           ([], "empty"), ([-1], "devices"), ("x", "devices")])
def test_devices_that_cannot_be_used_are_refused(devices, text):
    with troupe.Runtime(backend="mock", mock_devices=2, profile="frugal", log_level="off") as runtime:
        with pytest.raises(troupe.InvalidArgument, match=text):
            runtime.form_world(devices=devices)


def each(world, work):
    """Calls work(rank) for all ranks at once. Returns their results."""
    results = [None] * world.size

    def run(rank):
        try:
            results[rank] = work(rank)
        except troupe.Error as failure:
            results[rank] = failure

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world.size)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return results


def test_after_a_fault_the_state_is_that_of_the_last_commit():
    with troupe.testing.MockWorld(3) as mock:
        world = mock.world
        state = [[np.full(8, 1.0, "float32"), np.full(2, rank, "int64")] for rank in range(3)]
        saved = [troupe.Checkpoints(world.rank(rank).lane("steps"), state[rank]) for rank in range(3)]
        first = world.status
        assert each(world, lambda rank: saved[rank].resume(first)) == [troupe.Resumed(None, None)] * 3
        for number in (1, 2, 3):
            for rank in range(3):
                state[rank][0][:] = number
            assert each(world, lambda rank: saved[rank].commit(number)) == [None] * 3
        assert all(isinstance(one, troupe.StaleEpoch) for one in each(world, lambda rank: saved[rank].resume(first)))
        for rank in range(3):
            state[rank][0][:] = 99
        mock.script.on(1).next_operation().fail()
        with pytest.raises(troupe.Error):
            world.barrier().result(60)
        now = world.wait_ready(60, after_epoch=1)
        saved[0] = troupe.Checkpoints(world.rank(0).lane("steps"), state[0])  # as in a process that has replaced rank 0's
        again = [[np.zeros(8, "float32"), np.zeros(2, "int64")] for _ in range(3)]
        assert each(world, lambda rank: saved[rank].resume(now, again[rank])) == [
            troupe.Resumed(3, 1), troupe.Resumed(3, None), troupe.Resumed(3, None)]
        assert [one[0][0] for one in again] == [3, 3, 3]
        assert [one[1][0] for one in again] == [1, 1, 2]

        async def commit_all():
            await asyncio.gather(*(one.async_commit(4) for one in saved))

        asyncio.run(commit_all())
        assert isinstance(each(world, lambda rank: saved[rank].resume(now, again[rank][:1]))[0], troupe.InvalidArgument)
