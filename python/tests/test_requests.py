"""Requests that are prepared once, settings of single requests, and what tensors may be."""
import numpy as np
import pytest

import troupe
import troupe.testing


def test_a_prepared_request_is_asked_again_and_again(world):
    values = [np.ones(8, "float32") for _ in range(3)]
    request = world.prepare("all_reduce", values, op="sum")
    for turn in range(1, 4):
        completion = request.ask().result()
        assert completion.out[0] is values[0]
        np.testing.assert_array_equal(values[2], np.full(8, 3.0**turn))
    assert "all_reduce of 8 f32" in str(request)


def test_a_prepared_request_of_each_rank(world):
    values = [np.ones(2, "float64") for _ in range(3)]
    requests = [world.rank(rank).prepare("all_reduce", values[rank]) for rank in range(3)]
    for reply in [request.ask() for request in requests]:
        reply.result()
    np.testing.assert_array_equal(values[1], [3, 3])


def test_a_completion_says_when(world):
    completion = world.barrier().result()
    assert completion.queued <= completion.launched <= completion.done
    assert completion.ticket > 0


def test_arrays_with_gaps_are_refused_with_what_to_do(world):
    with pytest.raises(troupe.InvalidArgument, match="ascontiguousarray"):
        world.all_reduce([np.ones((4, 4), "float32")[:, ::2] for _ in range(3)])


def test_arrays_that_cannot_be_written_are_not_taken(world):
    fixed = np.ones(4, "float32")
    fixed.flags.writeable = False
    with pytest.raises((BufferError, TypeError, troupe.InvalidArgument)):  # the library refuses, or sets a flag
        world.all_reduce([fixed] * 3)


@pytest.mark.parametrize("dtype", ["complex64", "bool", "int16"])
def test_element_types_that_troupe_lacks_are_refused(world, dtype):
    # Older versions of NumPy refuse to export some of them.
    with pytest.raises((troupe.Unsupported, BufferError), match="not a dtype of troupe|DLPack only supports"):
        world.all_reduce([np.ones(4, dtype) for _ in range(3)])


def test_an_object_that_is_not_a_tensor_is_refused(world):
    with pytest.raises(troupe.InvalidArgument, match="__dlpack__"):
        world.all_reduce([[1, 2], [3, 4], [5, 6]])


def test_one_tensor_for_several_ranks_is_refused(world):
    with pytest.raises(troupe.InvalidArgument, match="one for each rank"):
        world.all_reduce(np.ones(4))
    with pytest.raises(troupe.InvalidArgument, match="2 tensors for 3 ranks"):
        world.all_reduce([np.ones(4), np.ones(4)])


def test_dtypes_of_tensor_and_out_must_agree(world):
    with pytest.raises(troupe.InvalidArgument, match="float32 and out is float64"):
        world.all_reduce([np.ones(4, "float32") for _ in range(3)], out=[np.ones(4) for _ in range(3)])


def test_an_out_that_is_too_short_is_refused_by_the_reply(world):
    reply = world.all_gather([np.ones(4) for _ in range(3)], [np.ones(4) for _ in range(3)])
    with pytest.raises(troupe.InvalidArgument) as caught:
        reply.result()
    assert caught.value.was_rejected


def test_elements_that_do_not_divide_are_refused(world):
    with pytest.raises(troupe.InvalidArgument, match="not a multiple"):
        world.all_to_all([np.ones(4) for _ in range(3)], [np.ones(4) for _ in range(3)])


def test_a_dtype_that_numpy_lacks_is_named(world):
    values = [np.array([0x3F80, 0x4000], "uint16").view("uint8") for _ in range(3)]
    with pytest.raises(troupe.InvalidArgument, match="2 bytes"):
        world.all_reduce(values, dtype="bfloat16")
    values = [troupe.empty(world, rank, 2, "bfloat16") for rank in range(3)]
    halves = [troupe.empty(world, rank, 4, "uint8") for rank in range(3)]
    for rank in range(3):
        np.asarray(halves[rank])[:] = [0x80, 0x3F, 0x00, 0x40]  # 1 and 2
        world.rank(rank).copy(halves[rank], values[rank]).result()
    world.all_reduce(values, op="pre_mul_sum", factor=2).result()
    world.rank(0).copy(values[0], halves[0]).result()
    np.testing.assert_array_equal(np.asarray(halves[0]), [0xC0, 0x40, 0x40, 0x41])  # 6 and 12
    with pytest.raises(AttributeError, match="NumPy has no bfloat16"):
        values[0].__array_interface__


def test_a_buffer_is_lent_by_dlpack_and_taken_back(world):
    made = troupe.empty(world, 1, (2, 3), "int32")
    assert (made.shape, made.dtype, made.nbytes, made.size) == ((2, 3), "int32", 24, 6)
    assert made.__dlpack_device__() == (1, 0)
    view = np.asarray(made)
    view[:] = 5
    np.testing.assert_array_equal(np.from_dlpack(made), np.full((2, 3), 5))
    back = np.zeros((2, 3), "int32")
    world.rank(1).copy(view, back).result()  # the view is still device memory
    np.testing.assert_array_equal(back, view)
    with pytest.raises(troupe.WrongDevice):
        world.rank(0).copy(view, np.zeros((2, 3), "int32")).result()


def test_pinned_memory_is_an_operand_of_every_rank(world):
    values = [troupe.empty_pinned(world, 4, "float32") for _ in range(3)]
    for value in values:
        np.asarray(value)[:] = 2
    world.all_reduce(values).result()
    np.testing.assert_array_equal(np.asarray(values[0]), np.full(4, 6))


def test_prepared_requests_of_single_ranks_acknowledge_the_epoch_after_a_rebuild():
    with troupe.testing.MockWorld(2) as mock:
        world = mock.world
        ranks = [world.rank(r).lane("steps") for r in range(2)]
        prepared = [rank.prepare("barrier") for rank in ranks]
        for reply in [one.ask() for one in prepared]:
            assert reply.result(30).epoch == 1
        mock.script.on(1).operation(1).fail()
        assert isinstance(world.barrier().exception(30), troupe.CommunicatorFailed)
        assert world.wait_ready(60, after_epoch=1).phase == "ready"
        for one in prepared:
            assert isinstance(one.ask().exception(30), troupe.StaleEpoch)
        for rank in ranks:
            rank.acknowledge(2)
        for reply in [one.ask() for one in prepared]:
            assert reply.result(30).epoch == 2
        ranks[0].leave()  # the next client of the lane has acknowledged nothing
        assert isinstance(ranks[0].barrier().exception(30), troupe.StaleEpoch)


def test_leaving_a_lane_frees_it_while_a_prepared_request_of_it_lives():
    with troupe.testing.MockWorld(2) as mock:
        mine = mock.world.rank(0).lane("decode")
        prepared = mine.prepare("barrier")
        waits = prepared.ask()  # for rank 1
        mine.leave()
        assert isinstance(waits.exception(30), troupe.Cancelled)
        with pytest.raises(troupe.InvalidArgument, match="prepare the request again"):
            prepared.ask()
        replies = [mock.world.rank(r).lane("decode").barrier() for r in range(2)]
        assert isinstance(replies[1].exception(30), troupe.Cancelled)  # the operation that rank 0 has withdrawn
        again = mock.world.rank(1).lane("decode").barrier()
        assert replies[0].result(30).epoch == again.result(30).epoch == 1


def test_a_lane_is_left_at_the_rank_that_has_its_number_after_a_loss():
    with troupe.testing.MockWorld(3, recovery_policy="shrink") as mock:
        world = mock.world
        lanes = [world.rank(r).lane("decode") for r in range(3)]
        for reply in [lane.barrier() for lane in lanes]:
            assert reply.result(30).epoch == 1
        mock.script.on(0).operation(1).lose_device()
        assert world.barrier().exception(30) is not None
        assert world.wait_ready(60, after_epoch=1).phase == "ready" and world.size == 2
        for lane in lanes[:2]:  # now the ranks that were 1 and 2
            lane.acknowledge(2)
        waits = lanes[0].barrier()
        lanes[0].leave()
        assert isinstance(waits.exception(30), troupe.Cancelled)
        assert isinstance(lanes[1].barrier().exception(30), troupe.Cancelled)  # the operation that rank 0 has withdrawn
        lanes[2].leave()  # no rank has this number any more
        lanes[0].acknowledge(2)
        for reply in [lane.barrier() for lane in lanes[:2]]:
            assert reply.result(30).epoch == 2


def test_half_a_transfer_to_oneself_is_refused(world):
    rank = world.rank(0)
    values, received = np.arange(4, dtype="float32"), np.zeros(4, "float32")
    for reply in rank.send(values, peer=0), rank.recv(received, peer=0):
        with pytest.raises(troupe.InvalidArgument, match="between rank 0 and itself.*one group"):
            reply.result(10)
    world.transfer(0, values, 0, received).result(10)
    assert received.tolist() == values.tolist()


def test_a_suspended_world_lets_requests_wait():
    with troupe.testing.MockWorld(2) as mock:
        assert len(mock.world.suspend()) == 2
        waits = mock.world.barrier()
        with pytest.raises(TimeoutError):
            waits.result(0.05)
        mock.world.resume()
        waits.result(30)
        mock.world.resume()


def test_parameters_that_an_operation_lacks_or_does_not_have_are_named(world):
    values = [np.ones(3, "float32") for _ in range(3)]
    for call, text in (
            (lambda: world.prepare("all_redoce", values), "unknown operation 'all_redoce': the operations are all_reduce"),
            (lambda: world.prepare("broadcast", values), "broadcast needs root="),
            (lambda: world.prepare("all_gather", values, op="max"), "all_gather takes no op: it takes no parameters"),
            (lambda: world.rank(0).prepare("send", values[0], peer=1, root=2), "send takes no root: it takes peer, tag"),
            (lambda: world.group().on(0, "recv", values[0], tag=1), "recv needs peer="),
            (lambda: world.group().all_reduce(values, deadline=1.0), "give the deadline to world.group()")):
        with pytest.raises(troupe.InvalidArgument) as caught:
            call()
        assert text in str(caught.value)
    for call in (lambda: world.all_reduce(values, opp="max"), lambda: world.group(dedline=1.0)):
        with pytest.raises(TypeError, match="opp|dedline"):
            call()


def test_a_prepared_broadcast_takes_its_root_and_counts_go_by_their_public_names(world):
    values = [np.full(2, rank, "float32") for rank in range(3)]
    world.prepare("broadcast", values, root=2).ask().result()
    assert [list(one) for one in values] == [[2, 2]] * 3
    outs = [np.zeros(6, "float32") for _ in range(3)]
    world.prepare("all_gather_v", values, outs, counts=[2, 2, 2]).ask().result()
    assert list(outs[1]) == [2] * 6
