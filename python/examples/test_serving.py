"""How code that asks a world is tested without a GPU: with faults by a script."""
import asyncio
import pathlib
import sys

import numpy as np
import pytest

import troupe
from troupe.testing import MockWorld, VirtualWorld

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from serving import serve  # noqa: E402


def test_all_steps_are_answered() -> None:
    with MockWorld(2) as mock:
        assert asyncio.run(serve(mock.world, client=1, steps=5)) == 5


def test_a_rank_that_fails_is_told_to_who_waits() -> None:
    with MockWorld(2) as mock:
        mock.script.on(1).operation(3).fail("communicator_failed")
        with pytest.raises(troupe.CommunicatorFailed) as caught:
            asyncio.run(serve(mock.world, client=1, steps=5))
        assert caught.value.effect == "unknown_outcome"  # it may have run: the sums are undefined
        assert len(mock.launches(0)) >= 3


def test_a_hang_is_noticed_without_waiting_for_it() -> None:
    with VirtualWorld(2, recovery_policy="keep_size") as world:  # time passes when the test lets it
        world.script.on(1).operation(0).hang()
        reply = world.all_reduce([np.ones(4), np.ones(4)])
        assert isinstance(reply.exception(), troupe.Error)
        assert world.now < 1.0
        assert world.run_until_ready(epoch=2, at_most=10.0)
