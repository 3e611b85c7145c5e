"""Defines worlds for your own tests, with scripted faults, on machines without a GPU.

MockWorld runs in real time, with troupe's own threads, for code that awaits replies. VirtualWorld runs in virtual time
on the test's own thread: it makes progress only while the test lets time pass, and the same calls give the same run.
"""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Generator, List, Optional, Tuple

from . import _troupe
from ._arguments import LARGEST_INT, LARGEST_SIZE, rank_number, whole
from ._collectives import Options
from ._errors import refuse
from ._troupe import FaultScript as FaultScript  # e.g. script.on(2).operation(5).hang()
from ._troupe import VirtualReply
from ._runtime import Closable
from ._types import Seconds, Setting
from ._world import RankRequests, Request, World, WorldEvent, event_of

__all__ = ["FaultScript", "Launch", "MockWorld", "VirtualReadiness", "VirtualReply", "VirtualWorld", "launches"]


@dataclass(frozen=True)
class Launch:
    """One launch of a rank of a mock world."""

    rank: int
    epoch: int
    number: int  #: the index among the rank's operations in the epoch, from 0
    call: int  #: the index of the launch call; operations launched together share it
    operation: str
    count: int
    fate: str  #: launched, withheld (by the script: it did not reach the device) or refused
    lane: Optional[str]  #: the lane of a request to the rank; None for a request to the world
    text: str


def launches(script: FaultScript, rank: int) -> List[Launch]:
    """Returns the launches of rank so far, in order."""
    return [Launch(**fields) for fields in script._launches(rank_number("rank", rank))]


class MockWorld(Closable):
    """A runtime over the mock backend and its world, which is ready. Both end with this object.

    Settings are those of troupe.Runtime. The defaults are few threads, which park at once, and no log.
    """

    def __init__(self, ranks: int, script: Optional[FaultScript] = None, **settings: Setting) -> None:
        self._native = _troupe.MockWorld(whole("ranks", ranks, 1, LARGEST_INT), settings, script)
        self.script: FaultScript = self._native.script()
        self.world = World(self._native.world(), self)

    def launches(self, rank: int) -> List[Launch]:
        """Returns the launches of rank so far, in order."""
        return launches(self.script, rank)

    def close(self) -> None:
        """Releases operations that hang by the script, answers pending requests and ends the world. Idempotent."""
        self._native.close()


class VirtualReadiness:
    """The reply of VirtualWorld.ready(). Waiting for it lets virtual time pass."""

    def __init__(self, world: "VirtualWorld", after_epoch: int) -> None:
        self._world = world
        self._after_epoch = whole("after_epoch", after_epoch, 0, LARGEST_SIZE)
        self._seen = len(world.events)
        self._found: Optional[WorldEvent] = None
        self._take(world.status)

    def _take(self, event: WorldEvent) -> None:
        is_ready = event.phase == "ready" and event.epoch > self._after_epoch
        if self._found is None and (is_ready or event.phase in ("failed", "stopping", "stopped")):
            self._found = event

    def done(self) -> bool:
        """Returns whether the status is there."""
        if self._found is None:
            for _, fields in self._world._native.events(self._seen):
                self._seen += 1
                self._take(event_of(fields))
        return self._found is not None

    def result(self, timeout: Optional[Seconds] = None) -> WorldEvent:
        """Lets virtual time pass until the status is there, for at most timeout seconds, or an hour."""
        self._world._native.run_until(self.done, 3600.0 if timeout is None else timeout)
        if self._found is None:
            raise TimeoutError("the world has not become ready within this virtual time")
        return self._found

    def __await__(self) -> Generator[Any, None, WorldEvent]:
        return self.result()
        yield


class VirtualWorld(RankRequests[VirtualReply], Closable):
    """A world in virtual time: deadlines, hangs and rebuilds cost no time.

    A request returns a reply at once; the answer arrives while time passes, in advance(), run_until(), reply.result()
    or await. Operands are troupe.Buffers and objects with Python's buffer protocol (NumPy arrays). A thread can have
    one virtual world at a time, and must not use or close a world or Buffer in real time meanwhile. If such objects
    lose their last reference meanwhile, they are destroyed when this world is closed.
    Settings: recovery, ordering, limits, deadlines, strategy, fusion and mock_memory_bytes. seed determines the order
    of steps that are possible at the same time.
    """

    def __init__(self, ranks: int, script: Optional[FaultScript] = None, seed: Optional[int] = None,
                 **settings: Setting) -> None:
        self._native = _troupe.VirtualWorld(
            whole("ranks", ranks, 1, LARGEST_INT), settings,
            None if seed is None else whole("seed", seed, 0, (1 << 64) - 1), script)
        self.script: FaultScript = self._native.script()

    def _request(self, operations: List[Any], rank: Optional[int], options: Options, out: Any) -> Request:
        raise refuse("virtual worlds cannot prepare requests: send each request directly")

    def _ask(self, operations: List[Any], rank: Optional[int], options: Options, out: Any) -> VirtualReply:
        reply: VirtualReply = self._native.ask(operations, rank, options.lane, options.deadline, out)
        return reply

    async def __aexit__(self, *_: Any) -> None:
        self.close()  # on this thread, to which the world belongs

    def ready(self, *, after_epoch: int = 0) -> VirtualReadiness:
        """Returns the status as soon as the world is ready in a later epoch than after_epoch, or has failed or stops.

        As World.ready(), for code that awaits it.
        """
        return VirtualReadiness(self, after_epoch)

    def wait_ready(self, timeout: Optional[Seconds] = None, *, after_epoch: int = 0) -> WorldEvent:
        """Waits as ready() does, but at most timeout seconds of virtual time. Returns the status."""
        try:
            return self.ready(after_epoch=after_epoch).result(timeout)
        except TimeoutError:
            return self.status

    @property
    def events(self) -> List[Tuple[float, WorldEvent]]:
        """All events so far, each with its time in seconds."""
        return [(at, event_of(fields)) for at, fields in self._native.events()]

    @property
    def now(self) -> float:
        """The virtual time since the world began, in seconds."""
        return float(self._native.now())

    def advance(self, seconds: float) -> None:
        """Lets virtual time pass."""
        self._native.advance(seconds)

    def run_until(self, enough: Callable[[], bool], at_most: float) -> bool:
        """Lets time pass until enough() returns true. It is called after each turn."""
        return bool(self._native.run_until(enough, at_most))

    def run_until_ready(self, epoch: int, at_most: float) -> bool:
        """Lets time pass until the world is ready in this epoch. Returns whether it is, within at_most seconds."""
        return bool(self._native.run_until_ready(whole("epoch", epoch, 0, LARGEST_SIZE), at_most))

    def jump(self, seconds: float) -> None:
        """Advances the clock at once, as after a suspended machine resumes."""
        self._native.jump(seconds)

    def end_rank(self, rank: int) -> None:
        """Ends the rank's actor, as if it had been killed."""
        self._native.end_rank(rank_number("rank", rank))

    def launches(self, rank: int) -> List[Launch]:
        """Returns the launches of rank so far, in order."""
        return launches(self.script, rank)

    def close(self) -> None:
        """Stops the world: hanging operations are released, and pending requests are answered. Idempotent."""
        self._native.close()
