"""Failures become exceptions, with the attributes that a program needs to react."""
import asyncio
import pathlib
import pickle
import re
import time

import numpy as np
import pytest

import troupe
import troupe.testing


def ones(ranks, count=4):
    return [np.ones(count, "float32") for _ in range(ranks)]


def test_every_code_has_a_class_of_its_own():
    from troupe._errors import classes
    assert len(classes) == 22
    assert classes["deadline_exceeded"] is troupe.DeadlineExceeded
    assert issubclass(troupe.InvalidArgument, ValueError)
    assert issubclass(troupe.OutOfMemory, MemoryError)


def test_only_a_world_that_has_failed_is_to_be_replaced():
    from troupe._errors import classes
    advice = {code: one.__doc__ for code, one in classes.items()}
    header = pathlib.Path(__file__).resolve().parent.parent.parent / "device" / "error.hpp"
    codes = header.read_text(encoding="utf-8").partition("enum class errc")[2].partition("};")[0]
    named = dict(re.findall(r"^  (\w+), +///< (.+)$", codes, re.M))
    assert named.keys() == advice.keys()
    for all_advice in (advice, named):
        assert [code for code, text in all_advice.items() if "new world" in text] == ["world_failed"]
    for code in ("rebuilding", "communicator_failed", "device_failed"):  # a world of the default policy comes back
        assert "wait_ready()" in advice[code] and "wait_ready()" in named[code]


def test_a_fault_has_an_unknown_outcome_and_names_rank_and_epoch():
    with troupe.testing.MockWorld(2, recovery_policy="fail_fast") as mock:
        mock.script.on(1).operation(1).fail("communicator_failed")
        mock.world.all_reduce(ones(2)).result()
        with pytest.raises(troupe.CommunicatorFailed) as caught:
            mock.world.all_reduce(ones(2)).result()
        failure = caught.value
        assert (failure.code, failure.effect, failure.was_rejected) == ("communicator_failed", "unknown_outcome", False)
        assert (failure.rank, failure.epoch) == (1, 1)
        assert failure.ticket is not None
        assert failure.text in str(failure)
        with pytest.raises(troupe.WorldFailed) as caught:
            mock.world.all_reduce(ones(2)).result()
        assert caught.value.was_rejected
        until = time.monotonic() + 10
        while mock.world.status.phase == "ready" and time.monotonic() < until:
            time.sleep(0.001)  # the caller gets the error before the status changes
        assert mock.world.status.phase == "failed"
        assert isinstance(mock.world.status.reason, troupe.Error)


def test_a_rank_that_is_not_asked_is_named_at_the_deadline():
    with troupe.testing.MockWorld(3) as mock:
        reply = mock.world.rank(0).all_reduce(np.ones(4), deadline=0.05)
        others = mock.world.rank(2).all_reduce(np.ones(4), deadline=0.05)
        with pytest.raises(troupe.DeadlineExceeded) as caught:
            reply.result()
        assert caught.value.missing_ranks == (1,)
        assert str(caught.value).count("rank 1 has not asked") == 1
        for failure in (caught.value, others.exception()):
            assert isinstance(failure, troupe.Error)
            assert str(failure).count("has waited") == 1, failure  # the report appears once
            assert "--" not in str(failure), failure  # a program has no command line to change


def test_exception_gives_what_result_raises():
    with troupe.testing.MockWorld(2) as mock:
        assert mock.world.barrier().exception() is None
        mock.script.on(0).operation(1).fail()
        reply = mock.world.barrier()
        assert isinstance(reply.exception(), troupe.CommunicatorFailed)
        with pytest.raises(troupe.CommunicatorFailed):
            reply.result()


def test_an_error_is_thrown_into_whoever_awaits():
    async def program(world):
        with pytest.raises(troupe.CommunicatorFailed):
            await world.barrier()
    with troupe.testing.MockWorld(2) as mock:
        mock.script.on(0).operation(0).fail()
        asyncio.run(program(mock.world))


def test_ranks_that_ask_for_different_things_are_told():
    with troupe.testing.MockWorld(2) as mock:
        replies = [mock.world.rank(0).all_reduce(np.ones(4)), mock.world.rank(1).all_reduce(np.ones(5))]
        assert {type(reply.exception()) for reply in replies} == {troupe.Mismatch}


def test_a_rank_that_is_not_there_is_refused():
    with troupe.testing.MockWorld(2) as mock:
        with pytest.raises(troupe.InvalidArgument, match="rank is 7 and must be a whole number from 0 to 1"):
            mock.world.rank(7).all_reduce(np.ones(4))


def test_errors_are_pickled_with_their_message():
    with troupe.testing.MockWorld(2) as mock:
        mock.script.on(0).operation(0).fail()
        failure = mock.world.barrier().exception()
    again = pickle.loads(pickle.dumps(failure))
    assert type(again) is type(failure) and str(again) == str(failure)
    assert (again.code, again.rank) == (failure.code, failure.rank)


def test_a_closed_runtime_says_so():
    runtime = troupe.Runtime(backend="mock", mock_devices=2, log_level="off")
    world = runtime.form_world()
    request = world.prepare("barrier")
    request.ask().result()
    runtime.close()
    runtime.close()
    with pytest.raises(troupe.Stopping, match="closed"):
        runtime.form_world()
    with pytest.raises(troupe.Error):
        world.barrier().result(10)
    with pytest.raises(troupe.Error):
        request.ask().result(10)
    with pytest.raises(troupe.Error):
        world.rank(1).lane("left").barrier().result(10)
