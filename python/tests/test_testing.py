"""The test kit: scripted faults in real time, and virtual time."""
import asyncio

import numpy as np
import pytest

import troupe
import troupe.testing
from troupe.testing import FaultScript, MockWorld, VirtualWorld


def ones(ranks):
    return [np.ones(4, "float32") for _ in range(ranks)]


def test_a_world_that_fails_to_form_by_a_script():
    script = FaultScript()
    script.on(1).forming(0).fail("communicator_failed")
    with pytest.raises(troupe.CommunicatorFailed):
        MockWorld(2, script=script)
    assert script.waiting() == []


def test_launches_are_recorded():
    with MockWorld(2) as mock:
        mock.world.all_reduce(ones(2)).result()
        for reply in [mock.world.rank(r).lane("decode").barrier() for r in range(2)]:
            reply.result()
        launches = mock.launches(1)
        assert [(one.operation, one.count, one.lane) for one in launches] == [("all_reduce", 4, None),
                                                                             ("barrier", 0, "decode")]
        assert all(one.fate == "launched" and one.rank == 1 for one in launches)


def test_memory_that_runs_out():
    with MockWorld(2) as mock:
        mock.script.on(0).out_of_memory_after(1024)
        with pytest.raises(troupe.OutOfMemory):
            troupe.empty(mock.world, 0, 1 << 20)
        troupe.empty(mock.world, 1, 1 << 20)


def test_a_lost_device_is_told_and_the_world_comes_back():
    with MockWorld(2, recovery_policy="keep_size") as mock:
        held = troupe.empty(mock.world, 1, 4)
        mock.script.on(1).operation(0).lose_device()
        with pytest.raises(troupe.DeviceFailed):
            mock.world.all_reduce(ones(2)).result(30)
        assert mock.world.wait_ready(60, after_epoch=1).phase == "ready"
        mock.world.rank(1).copy(held, np.zeros(4, "float32")).result()
        assert not held.is_stale


def test_a_world_is_awaited_until_it_serves_again():
    with MockWorld(2, recovery_policy="keep_size") as mock:
        world = mock.world
        assert world.wait_ready(60).epoch == 1
        assert world.wait_ready(0, after_epoch=1).epoch == 1  # its time passes
        mock.script.on(1).operation(0).fail()
        failure = world.barrier().exception(60)
        assert isinstance(failure, troupe.CommunicatorFailed)
        assert world.status.phase != "ready" or world.epoch == 2  # never ready in the epoch that has failed
        assert world.ready(after_epoch=failure.epoch).result(60).epoch == 2

        async def serves_again():
            mock.script.on(0).in_epoch(2).operation(0).fail()
            try:
                await world.barrier()
            except troupe.Error:
                return await world.ready(after_epoch=2)

        now = asyncio.run(serves_again())
        assert (now.phase, now.epoch) == ("ready", 3)
        waits = world.ready(after_epoch=3)
        assert not waits.done()
    assert waits.result(60).phase in ("stopping", "stopped")  # nothing to wait for any more


def test_faults_that_make_no_sense_are_refused():
    script = FaultScript()
    with pytest.raises(troupe.InvalidArgument, match="unknown error code"):
        script.on(0).operation(0).fail("misfortune")
    with pytest.raises(troupe.InvalidArgument):
        script.on(-1)
    with pytest.raises(troupe.InvalidArgument, match="cannot hang"):
        script.on(0).aborting(0).hang()


def test_virtual_time_stands_still_until_the_test_lets_it_pass():
    with VirtualWorld(3) as world:
        values = ones(3)
        reply = world.all_reduce(values)
        assert not reply.done()
        world.advance(0.005)
        assert reply.done()
        np.testing.assert_array_equal(values[1], np.full(4, 3))


def test_a_hang_takes_no_real_time_and_the_world_comes_back():
    with VirtualWorld(3, recovery_policy="keep_size") as world:
        world.script.on(2).operation(1).hang()
        first, second = world.all_reduce(ones(3)), world.all_reduce(ones(3))
        first.result()
        with pytest.raises(troupe.Error) as caught:
            second.result()
        assert caught.value.effect == "unknown_outcome"
        assert world.run_until_ready(2, 10)
        world.all_reduce(ones(3)).result()
        phases = [event.phase for _, event in world.events]
        assert phases == ["forming", "ready", "rebuilding", "forming", "ready"]
        assert 0.05 <= world.now < 10


def test_a_virtual_world_is_awaited_until_it_serves_again():
    with VirtualWorld(2, recovery_policy="keep_size") as world:
        assert world.wait_ready().epoch == 1 and world.now < 0.1
        assert world.wait_ready(0.5, after_epoch=1).epoch == 1  # its time passes
        assert 0.5 <= world.now < 0.6
        world.script.on(1).operation(0).fail()
        world.script.on(0).forming(1).delay(0.05)
        failure = world.barrier().exception()
        waits = world.ready(after_epoch=failure.epoch)
        assert not waits.done()
        with pytest.raises(TimeoutError):
            waits.result(0.02)
        world.script.on(0).in_epoch(2).operation(0).hang()
        assert world.run_until(waits.done, 10)

        async def asks_again():
            try:
                await world.barrier()
            except troupe.Error as failure:
                return await world.ready(after_epoch=failure.epoch)
        assert asyncio.run(asks_again()).epoch == 3
        assert (waits.result(0).phase, waits.result(0).epoch) == ("ready", 2)  # when it was reached
        last = world.ready(after_epoch=3)
        for rank in range(2):
            world.end_rank(rank)
        assert last.result(60).phase in ("ready", "failed")


def test_the_same_seed_gives_the_same_run():
    def run(seed):
        with VirtualWorld(3, seed=seed) as world:
            world.script.on(1).operation(2).fail()
            replies = [world.rank(r).lane(name).all_reduce(np.ones(2)) for name in "abc" for r in range(3)]
            kinds = [type(reply.exception()) for reply in replies]
            return kinds, [at for at, _ in world.events], [one.text for one in world.launches(0)]
    first = [run(seed) for seed in range(4)]
    assert first == [run(seed) for seed in range(4)]


def test_code_that_awaits_runs_in_virtual_time():
    async def serve(world, batches):
        for batch in batches:
            try:
                await world.all_reduce(batch)
            except troupe.Error as failure:
                return failure
    with VirtualWorld(2) as world:
        world.script.on(0).operation(1).fail()
        failure = asyncio.run(serve(world, [ones(2) for _ in range(3)]))
        assert isinstance(failure, troupe.CommunicatorFailed)


def test_deadlines_pass_in_virtual_time():
    with VirtualWorld(2) as world:
        reply = world.rank(0).all_reduce(np.ones(2), deadline=0.1)
        with pytest.raises(TimeoutError):
            reply.result(timeout=0.05)
        assert world.run_until(reply.done, 1)
        assert isinstance(reply.exception(), troupe.DeadlineExceeded)
        assert 0.1 <= world.now < 0.2


def test_a_rank_that_ends_and_a_jump_of_time():
    with VirtualWorld(2, recovery_policy="fail_fast") as world:
        reply = world.rank(0).barrier(deadline=0.2)
        world.jump(5)
        world.advance(0.001)
        assert isinstance(reply.exception(), troupe.DeadlineExceeded)
        world.end_rank(1)
        world.advance(0.1)
        assert world.status.phase == "failed"


def test_single_ranks_acknowledge_the_epoch_after_a_rebuild():
    with VirtualWorld(2) as world:
        world.script.on(0).operation(0).delay(0.02)
        steps = [world.rank(r).lane("steps") for r in range(2)]
        seen = steps[0].barrier()
        unknown = steps[1].barrier(deadline=0.005)
        seen.result()
        assert unknown.exception().effect == "unknown_outcome"
        world.end_rank(1)
        assert world.run_until_ready(2, 10)
        # One client continues with the next request, the other repeats its first one: neither is launched.
        for client in (*steps, world.rank(0), world.rank(1)):
            with pytest.raises(troupe.StaleEpoch) as caught:
                client.barrier().result()
            assert caught.value.was_rejected and "acknowledge" in str(caught.value)
        assert all(one.epoch == 1 for one in world.launches(0))
        for client in steps:
            client.acknowledge(2)
        for reply in [client.barrier() for client in steps]:
            assert reply.result().epoch == 2
        with pytest.raises(troupe.StaleEpoch):
            world.rank(0).barrier().result()  # without a lane, no client has acknowledged
        world.rank(0).copy(np.ones(2), np.zeros(2)).result()  # no peer takes part in it
        world.acknowledge(2)
        for reply in [world.rank(r).barrier() for r in range(2)]:
            assert reply.result().epoch == 2
        assert world.all_reduce(ones(2)).result().epoch == 2


def test_after_a_fault_every_rank_is_told_the_last_complete_commit():
    with VirtualWorld(2, recovery_policy="keep_size") as world:
        steps = [world.rank(r).lane("resumed") for r in range(2)]
        assert world.status.resume is None
        for reply in [client.commit(7) for client in steps]:
            reply.result()
        world.commit(1).result()
        world.script.on(1).operation(2).fail("communicator_failed")
        lost = [client.barrier() for client in steps]
        assert world.run_until_ready(2, 10)
        assert all(reply.exception().effect == "unknown_outcome" for reply in lost)
        point = world.status.resume_point("resumed")
        assert (point.complete, point.commit, point.incomplete) == (1, 7, 1)
        assert point.later == (troupe.IncompleteOperation(1, (), (0, 1)),)
        assert world.status.resume_point(None) == troupe.ResumePoint(None, 1, 1, 0, ())
        assert world.status.resume_point("unused") is None
        with pytest.raises(troupe.Mismatch):
            both = [client.acknowledge(2) or client.commit(8 + r) for r, client in enumerate(steps)]
            both[0].result()


def test_groups_and_buffers_in_virtual_time():
    with VirtualWorld(2) as world:
        values = [troupe.empty(world, r, 2, "int32") for r in range(2)]
        for r, value in enumerate(values):
            np.asarray(value)[:] = r + 1
        with world.group() as both:
            both.all_reduce(values)
            both.transfer(0, np.array([7], "int32"), 1, got := np.zeros(1, "int32"))
        both.reply.result()
        assert np.asarray(values[0]).tolist() == [3, 3] and got.tolist() == [7]
        del values


def test_memory_that_worlds_in_real_time_release_does_not_end_in_a_virtual_world():
    for _ in range(5):
        with MockWorld(2) as mock:
            outs = [troupe.empty(mock.world, r, 4) for r in range(2)]
            for _ in range(20):
                mock.world.all_reduce(ones(2), out=outs)
        del mock, outs  # threads of troupe may still hold the last references
        with VirtualWorld(2) as world:
            assert world.all_reduce(ones(2)).result().epoch == 1


def test_a_closed_world_says_so():
    mock = MockWorld(1)
    mock.close()
    assert mock.world.wait_ready(0).phase == "stopped"
    world = VirtualWorld(1)
    world.close()
    with pytest.raises(troupe.Stopping):
        world.advance(1)
