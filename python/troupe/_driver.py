"""Defines Driver, by which a process without a rank or a GPU sends requests to the ranks of a world over processes."""
from __future__ import annotations

import os
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar, Union

from . import _troupe
from ._arguments import LARGEST_SIZE, rank_number, whole
from ._collectives import Collectives, Options
from ._errors import Error, refuse
from ._runtime import Closable
from ._types import DType, RemoteTensors, Seconds, Setting
from ._world import EventSource, FunctionCalls, RemoteBuffer, Reply, ValueReply, WorldEvent, WorldProcess, event_of


_Result = TypeVar("_Result")


class _ToAllRanks(FunctionCalls[_Result], Collectives[RemoteTensors, _Result]):
    """Requests to all ranks whose operands are RemoteBuffers."""

    def _maker(self) -> Any:
        maker = super()._maker()
        if maker.size == 0:
            raise refuse("the world has formed no epoch yet: wait_ready()", "rebuilding")
        return maker

    def _collective(self, kind: str, tensors: Any, out: Any, parameters: Dict[str, Any], options: Options) -> _Result:
        if options.lane is not None:
            raise refuse(f"a request to all ranks has no lane: leave lane={options.lane!r} out")
        maker = self._maker()
        parts = maker.parts(kind, range(maker.size), tensors, out, options, parameters)
        return self._ask([one.operation for one in parts], None, options, [one.out for one in parts])


class Steps(_ToAllRanks[None]):
    """Records the steps of a plan that a driver captures. Has the methods of Driver that send requests."""

    def __init__(self, native: Any) -> None:
        self._native = native
        self._all: List[List[Any]] = []

    def _ask(self, operations: List[Any], rank: Optional[int], options: Options, out: Any) -> None:
        if options.deadline is not None:
            raise refuse("a step of a plan has no deadline: give it to replay()")
        self._all.append(operations)


class Driver(_ToAllRanks[Reply], EventSource, Closable):
    """Joins a world over processes without a rank: its requests are to all ranks, and it needs no GPU.

    It reaches the controller that TROUPE_CONTROL names with the secret TROUPE_JOIN_TOKEN, as the world's processes do:

        with troupe.Driver() as driver:
            driver.wait_ready(60)
            values = [driver.find_memory(rank, "values", "float32").result() for rank in range(driver.size)]
            driver.all_reduce(values).result()

    Settings are those of troupe.Runtime: control_address="HOST:PORT" in place of TROUPE_CONTROL. token: the secret in
    place of TROUPE_JOIN_TOKEN.
    Operands are RemoteBuffers, one for each rank, with an element type (dtype=). Every operation needs its `out`, unless
    it is in place. The ranks validate, order and run requests as those of their own processes. A request belongs to the
    epoch in which it is sent; if that ends before the reply, its outcome is unknown.
    Requests before the first epoch raise Rebuilding. Errors that come with the reply are those of a World, and Busy (too
    many requests of this driver are pending).
    Lifetime: it leaves with close() or at the end of a with statement; pending requests are answered. Threads: any.
    Errors: InvalidArgument (the address; certificates or token missing), Missing (certificate files).
    """

    def __init__(self, *, config: Union[str, "os.PathLike[str]", None] = None, token: Optional[str] = None,
                 **settings: Setting) -> None:
        self._native = _troupe.Driver(settings, config, token)

    @property
    def status(self) -> WorldEvent:
        """The state of the world now, as far as the driver knows it: phase, epoch, world_size, reason and resume.

        The phase "stopped" is final: the world has ended, or the controller has refused the driver or was not reached.
        In phase "ready", reason is why the previous epoch ended.
        """
        return event_of(self._native.status())

    @property
    def has_rings(self) -> bool:
        """Whether requests go through shared memory in the current epoch."""
        return bool(self._native.has_rings())

    @property
    def size(self) -> int:
        """The number of ranks in the current epoch, 0 before the first."""
        return int(self._native.size())

    @property
    def epoch(self) -> int:
        """The number of the current epoch, 0 before the first."""
        return self.status.epoch

    def ready(self, *, after_epoch: int = 0) -> "ValueReply[WorldEvent]":
        """Returns the status as soon as the world is ready or has stopped: `status = await driver.ready()`.

        after_epoch: wait for a later epoch than this one, e.g. than that of a request that failed.
        """
        reply: "ValueReply[WorldEvent]" = self._native.ready(after_epoch)
        return reply

    def wait_ready(self, timeout: Optional[Seconds] = None, *, after_epoch: int = 0) -> WorldEvent:
        """Waits until the world is ready in a later epoch than after_epoch, has stopped, or timeout seconds have passed.

        Returns the status.
        """
        try:
            return self.ready(after_epoch=after_epoch).result(timeout)
        except TimeoutError:
            return self.status

    def find_memory(self, rank: int, name: str, dtype: DType = None, *,
                    deadline: Seconds = 10.0) -> "ValueReply[RemoteBuffer]":
        """Asks the process of rank for the memory that it has exported under name: World.export_memory().

        dtype: the element type that the result is used with.
        Errors: Missing (it has exported none), Rebuilding, DeadlineExceeded, InvalidArgument (not a rank).
        """
        reply: "ValueReply[RemoteBuffer]" = self._native.find_memory(rank_number("rank", rank), name, dtype, deadline)
        return reply

    def allocate(self, rank: int, nbytes: int, dtype: DType = None, *,
                 deadline: Seconds = 10.0) -> "ValueReply[RemoteBuffer]":
        """Allocates device memory at rank, not initialised.

        Its process holds it until release(), or until some seconds after the end of this driver.
        Errors: OutOfMemory, Rebuilding, DeadlineExceeded, InvalidArgument (not a rank).
        """
        reply: "ValueReply[RemoteBuffer]" = self._native.allocate(
            rank_number("rank", rank), whole("nbytes", nbytes, 0, LARGEST_SIZE), dtype, deadline)
        return reply

    def release(self, allocated: RemoteBuffer) -> None:
        """Releases memory of allocate(). Requests in flight still hold it."""
        self._native.release(allocated)

    def read(self, source: RemoteBuffer, *, deadline: Seconds = 10.0) -> "ValueReply[bytes]":
        """Returns the current contents of host memory that a rank has exported, at most 1 MiB.

        Reads at once, not in stream order: wait first for the reply of the request that writes the memory.
        Errors: StaleBuffer, InvalidArgument (device memory, or too much), Rebuilding, DeadlineExceeded.
        """
        reply: "ValueReply[bytes]" = self._native.read(source, deadline)
        return reply

    def metrics(self, rank: int, *, deadline: Seconds = 10.0) -> "ValueReply[bytes]":
        """Returns the metrics of rank's process in the text format of Prometheus.

        Errors: Missing (its troupe was built without prometheus-cpp), Rebuilding, DeadlineExceeded, InvalidArgument.
        """
        reply: "ValueReply[bytes]" = self._native.metrics(rank_number("rank", rank), deadline)
        return reply

    def flight_record(self, rank: int, *, deadline: Seconds = 10.0) -> "ValueReply[bytes]":
        """Returns the flight record of rank's process as JSON, for `troupe trace`. Errors: as metrics()."""
        reply: "ValueReply[bytes]" = self._native.flight_record(rank_number("rank", rank), deadline)
        return reply

    def processes(self) -> "ValueReply[List[WorldProcess]]":
        """Returns the processes of the world, ranks first."""
        return self._change(0)

    def leave(self, place: int, *, renumbers: bool = False) -> "ValueReply[List[WorldProcess]]":
        """Lets the process of a place leave as planned, for maintenance. Returns the processes afterwards.

        A process that stands by takes its place, or the world goes on with fewer ranks; the others lose no request. Its
        world stops. renumbers: whether the ranks behind it may get other numbers.
        Errors: InvalidArgument (no such rank; too few would remain; they would get other numbers), Rebuilding (the
        world does not serve now), Stopping; then nothing has changed.
        """
        return self._change(1, place=whole("place", place, 0, 1 << 20), renumbers=renumbers)

    def drain(self, host: str, *, renumbers: bool = False) -> "ValueReply[List[WorldProcess]]":
        """Lets all processes of a host leave, spares included. host: as WorldProcess names it. Else as leave()."""
        return self._change(2, host=host, renumbers=renumbers)

    def join(self, place: Optional[int] = None) -> "ValueReply[List[WorldProcess]]":
        """Asks the world's launcher, if it has one, for a process at a free place. Returns when one serves there.

        Errors: InvalidArgument (the place has a process), DeadlineExceeded (none has joined), Stopping.
        """
        return self._change(3, place=None if place is None else whole("place", place, 0, 1 << 20))

    def _change(self, kind: int, *, place: Optional[int] = None, host: str = "",
                renumbers: bool = False) -> "ValueReply[List[WorldProcess]]":
        reply: "ValueReply[List[WorldProcess]]" = self._native.change(kind, place, host, renumbers)
        return reply

    def capture(self, name: str, steps: Callable[[Steps], Any], *, deadline: Seconds = 60.0) -> Reply:
        """Captures a plan at all ranks, which replay(name) launches by one message:

            driver.capture("step", lambda plan: (plan.all_reduce(values), plan.call("finish", arguments))).result()

        If it succeeds, it replaces an earlier plan of this name. The ranks hold it, and the memory that it names, until
        drop_plan(), the end of the epoch, or some seconds after the end of this driver: capture it again when the next
        epoch is ready. Errors: those of a request, at once; DeadlineExceeded; Unsupported (host memory, a backend that cannot
        capture).
        """
        plan = Steps(self._native)
        steps(plan)
        reply: Reply = self._native.capture(name, plan._all, deadline)
        return reply

    def drop_plan(self, name: str) -> None:
        """Makes the ranks release a plan that this driver has captured. Replays in flight still hold it."""
        self._native.drop_plan(name)

    def replay(self, name: str, *, deadline: Optional[Seconds] = None) -> Reply:
        """Launches, at all ranks, the plan that capture() or, in their processes, World.capture(name=...) has made.

        Errors: InvalidArgument if a process has no plan of this name.
        """
        operations = [_troupe.replay(name) for _ in range(self._maker().size)]
        return self._ask(operations, None, Options(deadline), None)

    def _ask(self, operations: List[Any], rank: Optional[int], options: Options, out: Any) -> Reply:
        reply: Reply = self._native.ask(operations, options.deadline, out)
        return reply

    def __repr__(self) -> str:
        now = self.status
        return f"<troupe.Driver: a world of {now.world_size}, {now.phase}, epoch {now.epoch}>"

    def close(self) -> None:
        """Leaves the world. Pending requests are answered: their outcome is unknown. Idempotent."""
        self._native.close()
