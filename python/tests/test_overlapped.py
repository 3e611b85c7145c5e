"""Requests in two steps, and captures whose kernels a thread of Python enqueues, with mock ranks."""
import threading

import numpy as np
import pytest

import troupe
import troupe.testing
from troupe import _troupe

PATIENCE = 60


@pytest.fixture
def streams(world):
    """Returns the handle of each rank's stream."""
    found = {}
    world.register_function("tell the stream", lambda rank, epoch, stream, memory, values: found.update({rank: stream}))
    world.call("tell the stream").result(PATIENCE)
    return found


def test_a_stream_is_ordered_behind_a_request_when_all_ranks_have_asked(world, streams):
    values = [np.full(4, rank + 1, "float32") for rank in range(3)]
    requests = [world.rank(rank).prepare("all_reduce", values[rank]) for rank in range(3)]
    first = requests[0].ask_overlapped()
    ordered = threading.Event()

    def order():
        first.order(streams[0], PATIENCE)
        ordered.set()

    waiting = threading.Thread(target=order)
    waiting.start()
    try:
        assert not ordered.wait(0.2)  # this thread runs meanwhile: the wait does not hold the GIL
        assert not first.launched() and not first.done()
        with pytest.raises(TimeoutError):
            first.order(streams[0], 0.05)
    finally:
        others = [one.ask_overlapped() for one in requests[1:]]
        waiting.join(PATIENCE)
    assert ordered.is_set() and first.launched()
    for one in (first, *others):
        one.result(PATIENCE)
        one.order(streams[0])  # nothing waits for a request that has ended
    np.testing.assert_array_equal(values[0], np.full(4, 6.0))


def test_a_request_that_fails_before_its_launch_raises_in_order():
    with troupe.testing.MockWorld(3) as own:  # the others' next request would be matched with it
        late = own.world.rank(0).prepare("all_reduce", np.ones(4, "float32"), deadline=0.1).ask_overlapped()
        with pytest.raises(troupe.DeadlineExceeded) as failure:
            late.order(0, PATIENCE)
        assert failure.value.missing_ranks == (1, 2)
        assert late.launched()  # it has ended


def test_a_loop_is_told_of_the_launch(world):
    requests = [world.rank(rank).prepare("barrier") for rank in range(3)]
    first, box = requests[0].ask_overlapped(), _troupe.LoopMailbox()
    assert first._tell_launch(box, 7)
    assert box.take() == []
    for reply in [first, *(one.ask() for one in requests[1:])]:
        reply.result(PATIENCE)
    assert box.take() == [7]  # before the outcome
    assert not first._tell_launch(box, 8)  # it has been launched


def test_requests_that_have_one_step_only(world, streams):
    replies = [world.rank(rank).prepare("barrier").ask() for rank in range(3)]
    with pytest.raises(troupe.InvalidArgument, match="asked in one step"):
        replies[0].order(streams[0])
    for one in replies:
        one.result(PATIENCE)
    with pytest.raises(troupe.Unsupported, match="ask one rank"):
        world.prepare("barrier").ask_overlapped()


@pytest.fixture
def alone():
    """A world of one rank, its stream, and a function that makes an operation that adds nothing."""
    with troupe.testing.MockWorld(1) as made:
        found = []
        made.world.register_function("tell", lambda rank, epoch, stream, memory, values: found.append(stream))
        made.world.call("tell").result(PATIENCE)
        yield made.world, found[0]


def troupe_buffer(world, count):
    return troupe.empty(world, 0, [count])


def copying(world, source, result):
    native = world._native
    operands = [native.operand(0, one, None, None, False) for one in (source, result)]
    return _troupe.operation("copy", *operands, 1, {})


def test_a_thread_captures_and_replays(alone):
    world, stream = alone
    source, result = (troupe_buffer(world, 4) for _ in range(2))
    relay = world._native.begin_capture(stream, "one", PATIENCE)
    relay.launch(copying(world, source, result))
    plan = relay.finish()
    with pytest.raises(troupe.InvalidArgument, match="capture has ended"):
        relay.launch(copying(world, source, result))
    np.asarray(source)[:] = 5
    request = world._native.prepare_replay(plan, PATIENCE, 0, None)
    request.ask_overlapped(stream).result(PATIENCE)
    np.testing.assert_array_equal(np.asarray(result), np.full(4, 5.0))
    np.asarray(source)[:] = 6
    request.ask_overlapped(stream).result(PATIENCE)
    np.testing.assert_array_equal(np.asarray(result), np.full(4, 6.0))


def test_a_capture_that_its_thread_gives_up_fails_with_its_text(alone):
    world, stream = alone
    relay = world._native.begin_capture(stream, "two", PATIENCE)
    relay.fail("the function has raised")
    with pytest.raises(troupe.Cancelled, match="the function has raised"):
        relay.finish()
    world.barrier().result(PATIENCE)  # the launcher goes on


def test_a_capture_that_its_thread_forgets_ends_at_its_deadline(alone):
    world, stream = alone
    relay = world._native.begin_capture(stream, "three", 0.2)
    with pytest.raises(troupe.InvalidArgument, match="capture has ended"):
        for _ in range(PATIENCE * 20):
            threading.Event().wait(0.05)
            relay.launch(copying(world, troupe_buffer(world, 4), troupe_buffer(world, 4)))
    with pytest.raises(troupe.DeadlineExceeded):
        relay.finish()
    world.barrier().result(PATIENCE)
