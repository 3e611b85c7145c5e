"""Keeps copies of a rank's state at its last commits, so that work that overwrites its state can go on after a fault."""
from __future__ import annotations

import ctypes
from typing import Any, Dict, Generator, List, NamedTuple, Optional, Sequence, Tuple

from . import _troupe
from ._collectives import Options
from ._errors import refuse
from ._types import Tensor
from ._world import Rank, Reply, WorldEvent

_KEPT = 2


class Resumed(NamedTuple):
    """Where a rank continues."""

    commit: Optional[int]  #: the commit whose state the tensors have; None: no commit is complete, and all begin anew
    received_from: Optional[int]  #: the rank whose state this rank has received; None: it had a copy of its own


_Steps = Generator[List[Reply], List[_troupe.Completion], Any]


class Checkpoints:
    """Copies of some tensors of a rank at the last two commits of a lane.

    After a fault all ranks agree on the last commit that is complete at every rank: each one restores its copy of it, and
    a rank without one, for example in a process that has replaced a lost one, receives the state of the lowest rank that
    has it. So the state must be the same at all ranks, or it must be acceptable that a replacement has another rank's.

    The copies are in page-locked host memory: at most three times the size of the tensors, during a commit. They end with
    this object and its process. Every rank calls the same methods at the same place among its requests in the lane.
    commit() and resume() wait; `await` async_commit() and async_resume() in an asyncio program.
    """

    def __init__(self, lane: Rank[Reply], state: Sequence[Tensor]) -> None:
        """lane: world.rank(r).lane(name). state: the tensors; at all ranks the same number of them, of the same sizes."""
        self._lane, self._state = lane, list(state)
        self._shapes = self._sizes(self._state)
        self._kept: List[Tuple[int, List[_troupe.Buffer]]] = []
        self._spare: List[List[_troupe.Buffer]] = []
        self._last_in = 0
        self._origin = self._numbers(lane._world.status)[lane.number]

    def commit(self, number: int) -> None:
        """Copies the state, after all earlier requests of the lane, and commits the number in the lane.

        Errors: those of a copy and of a commit. If only the outcome of the commit is unknown, resume() tells whether it
        counts.
        """
        _wait(self._commit(number))

    async def async_commit(self, number: int) -> None:
        """Does the same as commit()."""
        await _await(self._commit(number))

    def resume(self, now: WorldEvent, state: Optional[Sequence[Tensor]] = None) -> Resumed:
        """Acknowledges the epoch of now in the lane, and brings the state to the last complete commit.

        Call it first in each epoch, with the ready event of that epoch; in the first one it only returns None. state:
        tensors in place of those before, from now on. Name new ones after a fault: work of the failed epoch may write to
        the old ones until it has been aborted.
        After an error, wait for a later epoch: world.wait_ready(after_epoch=...).
        Errors: StaleEpoch if this rank has continued or committed in that epoch already; Missing, at all ranks alike, if
        no rank has the state; InvalidArgument if the tensors have other sizes; those of the lane's requests.
        """
        result: Resumed = _wait(self._resume(now, state))
        return result

    async def async_resume(self, now: WorldEvent, state: Optional[Sequence[Tensor]] = None) -> Resumed:
        """Does the same as resume()."""
        result: Resumed = await _await(self._resume(now, state))
        return result

    @staticmethod
    def _numbers(now: WorldEvent) -> Dict[int, int]:
        """Returns, by the number of each rank of this process, its number in the first epoch."""
        return dict(zip(now.local_ranks, now.origins))

    def _sizes(self, state: Sequence[Tensor]) -> List[Tuple[Tuple[int, ...], str]]:
        maker = self._lane._world._maker()
        seen = [maker.operand(self._lane.number, one, Options(stream=None), True) for one in state]
        return [(tuple(one.shape), one.dtype) for one in seen]

    def _copy(self, number: int) -> _Steps:
        """Makes a copy of the state. One that failed must not be committed, so its replies come first."""
        native = self._lane._world._native
        held = self._spare.pop() if self._spare else [native.empty_pinned(list(shape), dtype)
                                                      for shape, dtype in self._shapes]
        for done in (yield [self._lane.copy(one, to) for one, to in zip(self._state, held)]):
            self._last_in = max(self._last_in, done.epoch)
        return number, held

    def _commit(self, number: int) -> _Steps:
        # Kept before the outcome of the commit is known: other ranks may see it succeed although this one does not.
        self._kept.append((yield from self._copy(number)))
        yield [self._lane.commit(number)]
        while len(self._kept) > _KEPT:
            self._spare.append(self._kept.pop(0)[1])

    def _resume(self, now: WorldEvent, state: Optional[Sequence[Tensor]]) -> _Steps:
        if state is not None:
            sizes = self._sizes(state)
            if sizes != self._shapes:
                raise refuse("the tensors differ in number, shape or dtype from those of these checkpoints")
        # The resume points of an epoch do not count the commits in it, and its copies must not be given up for older ones.
        if now.epoch <= self._last_in:
            raise refuse(f"this rank has continued or committed in epoch {self._last_in} already: resume with the event "
                         f"of a later one (world.wait_ready(after_epoch=...))", "stale_epoch")
        number_now = next((one for one, origin in self._numbers(now).items() if origin == self._origin), None)
        if number_now is None:
            raise refuse(f"rank {self._origin} (as numbered in the first epoch) has left the world", "rank_lost")
        if number_now != self._lane.number:  # ranks have been renumbered
            self._lane = self._lane._world.rank(number_now).lane(self._lane.lane_name)
        self._state = self._state if state is None else list(state)
        self._lane.acknowledge(now.epoch)
        point = now.resume_point(self._lane.lane_name)
        number = None if point is None else point.commit
        if number is None:
            self._kept, self._last_in = [], now.epoch
            return Resumed(None, None)
        mine = next((held for kept, held in self._kept if kept == number), None)
        native = self._lane._world._native
        flag, flags = native.empty_pinned([1], "uint8"), native.empty_pinned([now.world_size], "uint8")
        _bytes_of(flag)[0] = int(mine is not None)
        yield [self._lane.all_gather(flag, flags)]
        holders = [bool(one) for one in _bytes_of(flags)]
        if True not in holders:
            raise refuse(f"no rank has the state of commit {number} of lane {self._lane.lane_name}: all processes that kept "
                         f"it have ended. Load a checkpoint of your own, or begin anew", "missing")
        source = holders.index(True)
        if mine is None:
            yield [self._lane.recv(one, source) for one in self._state]
            self._kept = [(yield from self._copy(number))]
        else:
            replies = [self._lane.copy(one, to) for one, to in zip(mine, self._state)]
            if source == self._lane.number:
                replies += [self._lane.send(one, to) for to, has in enumerate(holders) if not has
                            for one in self._state]
            yield replies
            self._kept = [(number, mine)]  # other copies' memory is not used again: work of a failed epoch may write to it
        self._last_in = now.epoch
        return Resumed(number, source if mine is None else None)


def _bytes_of(held: _troupe.Buffer) -> "ctypes.Array[ctypes.c_uint8]":
    """Returns a view of host memory."""
    return (ctypes.c_uint8 * held.nbytes).from_address(held.__array_interface__["data"][0])


def _wait(steps: _Steps) -> Any:
    """Runs the steps, each of which yields replies and is sent their completions."""
    try:
        replies = next(steps)
        while True:
            replies = steps.send([reply.result() for reply in replies])
    except StopIteration as end:
        return end.value


async def _await(steps: _Steps) -> Any:
    try:
        replies = next(steps)
        while True:
            replies = steps.send([await reply for reply in replies])
    except StopIteration as end:
        return end.value
