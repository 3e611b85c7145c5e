"""Captures functions of kernels and collectives, whose replay is a request: troupe.torch.graph()."""
from __future__ import annotations

import datetime
import threading
from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, TypeVar

import torch
import torch.distributed as dist

from .._errors import Error
from ._failures import failure_of

if TYPE_CHECKING:
    from ._backend import TroupeBackend
    from ._work import Work

_T = TypeVar("_T")
_GROUPS_TIMEOUT = datetime.timedelta(0)


class Capture:
    """A capture under way. Kernels go into the stream by any thread; collectives go to troupe's launcher, which captures them."""

    def __init__(self, backend: "TroupeBackend", relay: Any, stream: torch.cuda.Stream) -> None:
        self.backend = backend
        self._relay, self._stream, self._thread = relay, stream, threading.get_ident()

    def has(self, stream: torch.cuda.Stream) -> bool:
        """Whether `stream`, which is in capture, belongs to this one: autograd's threads use the same, and a function forks others."""
        return stream == self._stream or threading.get_ident() == self._thread

    def launch(self, operation: Any) -> Callable[[], None]:
        """Captures an operation behind what the current stream has now. Returns what makes a current stream wait for it."""
        current = torch.cuda.current_stream(self._stream.device)
        if current != self._stream:
            self._stream.wait_stream(current)
        self._relay.launch(operation)
        behind = self._stream.record_event()

        def order() -> None:
            waiting = torch.cuda.current_stream(self._stream.device)
            if waiting != self._stream:
                waiting.wait_event(behind)

        return order


class Graph(Generic[_T]):
    """A function's kernels and collectives, captured at all ranks. Replays read and write the memory that the capture used.

    outputs: what the function returned. Each replay writes the same tensors.
    Lifetime: it holds the memory that was allocated in the capture, and all tensors of its collectives. It is of one epoch
    of its group. Threads: one at a time.
    """

    def __init__(self, function: Callable[..., _T], args: Any, named: Any, backend: "TroupeBackend", warmups: int,
                 timeout: datetime.timedelta) -> None:
        gpu = backend.gpu
        assert gpu is not None
        self._backend, self._gpu = backend, gpu
        self._stream = stream = torch.cuda.Stream(gpu.device)
        self._pool: Optional[torch.cuda.MemPool] = torch.cuda.MemPool()
        self._plan: Any = None
        self.outputs: _T
        with torch.cuda.device(gpu.index):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(warmups):
                    function(*args, **named)
                stream.synchronize()
                self._plan = self._captured(lambda: function(*args, **named), stream, timeout)
            torch.cuda.current_stream().wait_stream(stream)
        backend.graphs.add(self)

    def _captured(self, function: Callable[[], _T], stream: torch.cuda.Stream, timeout: datetime.timedelta) -> Any:
        backend, gpu, pool = self._backend, self._gpu, self._pool
        assert pool is not None
        relay = backend.begin_capture(stream.cuda_stream, timeout)
        under_way = Capture(backend, relay, stream)
        gpu.captures.append(under_way)
        try:  # of every stream: what the function forks must not get memory that others use between replays
            torch._C._cuda_beginAllocateToPool(gpu.index, pool.id)
            try:
                self.outputs = function()
            finally:
                torch._C._cuda_endAllocateToPool(gpu.index, pool.id)
                torch._C._cuda_releasePool(gpu.index, pool.id)
        except BaseException as why:
            relay.fail(f"the function that troupe.torch.graph() captured has raised {type(why).__name__}: {why}")
            raise
        finally:
            gpu.captures.remove(under_way)
        try:
            return relay.finish()
        except Error as why:
            raise failure_of("troupe.torch.graph()", why, timeout) from why

    @property
    def plan(self) -> Any:
        if self._plan is None:
            raise dist.DistBackendError("the graph has ended with its process group, or by drop(): make another one")
        return self._plan

    def replay(self, timeout: datetime.timedelta = _GROUPS_TIMEOUT) -> "Work":
        """Asks for a replay, at all ranks the same, in the order of the group's collectives. It waits for the current stream.

        Returns a work, whose wait() makes the current stream wait for the replay. timeout: the request's deadline; 0 is the
        group's. Errors: as collectives; DistBackendError for a graph of an earlier epoch.
        """
        return self._backend.replay(self, timeout)

    def __call__(self) -> _T:
        """Replays, makes the current stream wait for it, and returns the outputs."""
        self.replay().wait()
        return self.outputs

    def drop(self) -> None:
        """Releases the graph and its memory. Replays in flight hold them."""
        self._plan = None
        self._pool = None


def graph(function: Callable[..., _T], *args: Any, group: Optional[dist.ProcessGroup] = None, warmups: int = 1,
          timeout: datetime.timedelta = _GROUPS_TIMEOUT, **named: Any) -> Graph[_T]:
    """Captures a function of kernels and collectives. All ranks of the group call it, in one order with their collectives.

    function: called `warmups` times, and once more while a stream is captured; with args and named. It must not wait for
    the GPU, nor use random numbers. Its collectives are those of `group` (default: the default group), compared between the
    ranks while they are captured.
    timeout: of the capture; 0 is the group's.
    Errors: ValueError for a group that has no GPUs of this backend; DistBackendError if ranks capture different things, or one
    does not come; what the function raises, and the other ranks get a DistBackendError with its text.
    """
    from ._group import TroupeGroup

    of = dist.group.WORLD if group is None else group
    if not isinstance(of, TroupeGroup) or of.backend.gpu is None:
        raise ValueError("troupe.torch.graph() was given a group without GPUs of the backend troupe: give one that has 'cuda:troupe', "
                         "and whose world is not of the CPU")
    if warmups < 0:
        raise ValueError(f"troupe.torch.graph() was given warmups={warmups}: give 0 or more")
    limit = timeout if timeout > _GROUPS_TIMEOUT else of.backend.options._timeout
    return Graph(function, args, named, of.backend, warmups, limit)
