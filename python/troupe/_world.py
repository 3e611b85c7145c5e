"""Defines worlds, their ranks, groups of operations, and the requests that they share."""
from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Callable, Dict, Generic, Iterator, List, Mapping, Optional, Sequence, Tuple, Union, overload

from . import _troupe
from ._arguments import LARGEST_INT, LARGEST_SIZE, rank_number, shape_of, whole, wholes
from ._collectives import Collectives, Options, Part, PartMaker, R, as_bytes, contribution_of, parameters_of, typed
from ._errors import Error, refuse
from ._events import Events, listen
from ._types import (AgreementRule, Contribution, Counts, DType, Factor, Operation, Phase, Reduction, Seconds, Stream,
                     Tensor, Tensors)

Reply = _troupe.Reply
Request = _troupe.Request
RemoteBuffer = _troupe.RemoteBuffer
ValueReply = _troupe.ValueReply


#: A function that requests call at a rank: see World.register_function().
RankFunction = Callable[[int, int, int, List[_troupe.Buffer], bytes], Any]


@dataclass(frozen=True)
class OneShotStatus:
    """What a world has of one-shot kernels for small collectives. Without kernels all sizes are 0."""

    part_bytes: int  #: the most bytes from one rank to another in a collective that is a kernel
    blocks: int  #: the most thread blocks of one kernel
    scratch_bytes: int  #: device memory that each rank holds for it, outside of the pools
    why: str  #: why there are no kernels, for users


@dataclass(frozen=True)
class WorldEvent:
    """The state of a world: reported at every change of phase, and returned as its status."""

    phase: Phase
    epoch: int
    world_size: int
    local_ranks: Tuple[int, ...]  #: the ranks of this process
    origins: Tuple[int, ...]  #: the number in the first epoch of each of local_ranks
    lost: Tuple[int, ...]  #: the ranks that the world has lost and continues without, as numbered in the first epoch
    resume: "Optional[Tuple[ResumePoint, ...]]"  #: progress of the lanes when the previous epoch ended; None: there was none
    counted_from: Optional[int]  #: the epoch from which `resume` counts operations; commits are known from before it, too
    has_survivors: bool  #: False: all processes that knew the last commits of `resume` have ended; later ones may be lost
    one_shot: Optional[OneShotStatus]  #: when it is ready, if one_shot_bytes is set
    reason: Optional[Error]  #: the reason of the failure or rebuild
    text: str  #: one line for users

    @property
    def is_degraded(self) -> bool:
        """Whether the world continues without ranks that it has lost."""
        return bool(self.lost)

    def resume_point(self, lane: Optional[str] = "default") -> "Optional[ResumePoint]":
        """Returns the progress of a lane when the previous epoch ended; None if the lane was not used, or if unknown.

        lane: None for the requests to the whole world.
        """
        return next((one for one in self.resume or () if one.lane == lane), None)


@dataclass(frozen=True)
class IncompleteOperation:
    """An operation of an ended epoch that may not have succeeded at all its ranks: treat its outputs as overwritten."""

    position: int  #: in its lane
    succeeded: Tuple[int, ...]  #: the ranks where it is known to have succeeded, as numbered in that epoch
    unknown: Tuple[int, ...]  #: its other ranks


@dataclass(frozen=True)
class ResumePoint:
    """The progress of a lane when an epoch ended, the same at all ranks. Continue from state saved at or before it."""

    lane: Optional[str]  #: None: the requests to the whole world
    complete: int  #: number of operations since counted_from that have succeeded at all their ranks, without a gap
    commit: Optional[int]  #: the number of the last commit among them
    incomplete: int  #: number of operations that were released and are not complete
    later: Tuple[IncompleteOperation, ...]  #: the first of these
    #: values of agrees beyond `complete` that some rank may have received, oldest first
    agreed: "Tuple[_troupe.Agreed, ...]" = ()
    agreed_unlisted: int = 0  #: number of such values that are left out, because there were too many


def resume_of(fields: Any) -> Any:
    """Makes the resume points from the fields that the extension module returns."""
    if fields is None:
        return None
    return tuple(ResumePoint(lane, complete, commit, incomplete, tuple(IncompleteOperation(*one) for one in later), *agreed)
                 for lane, complete, commit, incomplete, later, *agreed in fields)


@dataclass(frozen=True)
class WorldProcess:
    """A process of a world over processes, as Driver.processes() returns it."""

    name: str  #: the launcher's name for it, else its host and process id
    host: str
    pid: int
    place: Optional[int]  #: None: it stands by
    rank: Optional[int]  #: in the current epoch
    is_leaving: bool  #: it leaves as planned
    is_away: bool = False  #: it is not connected to the controller, which expects it to return


def event_of(fields: Dict[str, Any]) -> WorldEvent:
    """Makes an event from the fields that the extension module returns."""
    one_shot = None if fields["one_shot"] is None else OneShotStatus(*fields["one_shot"])
    return WorldEvent(**{**fields, "resume": resume_of(fields["resume"]), "one_shot": one_shot})


class EventSource:
    """A world or a driver, whose changes of phase can be followed."""

    _native: Any

    @overload
    def events(self) -> "Events[WorldEvent]": ...

    @overload
    def events(self, heard: Callable[[WorldEvent], Any]) -> None: ...

    def events(self, heard: Optional[Callable[[WorldEvent], Any]] = None) -> "Optional[Events[WorldEvent]]":
        """Returns the changes of phase from now on: `for event in world.events()`, or `async for`.

        With heard, calls it for each of them instead, in order, on a thread of this module.
        """
        if heard is None:
            return Events(self._native, event_of)
        tell: Callable[[WorldEvent], Any] = heard
        listen(self._native, lambda fields: tell(event_of(fields)))
        return None


class Requests(Generic[R]):
    """Makes requests from parts. Each kind of world implements _ask(), which sends them."""

    _native: Any

    def group(self, *, deadline: Optional[Seconds] = None, dtype: DType = None,
              stream: Stream = "producer") -> "Group[R]":
        """Returns a group that is sent at the end of with: `with world.group() as all: all.all_reduce(x)`.

        It needs operands for all ranks of the world; those of ranks in other processes are RemoteBuffers.
        """
        return Group(self, Options(deadline, None, dtype, stream))

    def agree(self, value: Contribution, *, deadline: Optional[Seconds] = None) -> R:
        """Gives `value` a position in the order of requests to all ranks. The reply has it: reply.result().agreed."""
        maker = self._maker()
        made = maker.part("agree", 0, None, None, Options(deadline), {"rule": "of_rank", "value": contribution_of(value)})
        return self._ask([made.operation] * maker.size, None, Options(deadline), None)

    def transfer(self, source: int, tensor: Tensor, destination: int, out: Tensor, tag: int = 0, *,
                 deadline: Optional[Seconds] = None, dtype: DType = None, stream: Stream = "producer") -> R:
        """Sends tensor, memory of rank source, to out, memory of rank destination.

        It is one request to all ranks and has a position in their order; the other ranks do nothing.
        Errors: InvalidArgument if source or destination is not a rank; Mismatch if tensor and out differ in count or
        dtype.
        """
        alone = self.group(deadline=deadline, dtype=dtype, stream=stream)
        alone.transfer(source, tensor, destination, out, tag)
        return alone.ask()

    def _maker(self) -> PartMaker:
        return PartMaker(self._native, self._native.size())

    def _ask(self, operations: List[Any], rank: Optional[int], options: Options, out: Any) -> R:
        raise NotImplementedError


class RankRequests(Requests[R], Collectives[Tensors, R]):
    """Requests of worlds that have ranks in this process, and the state of these worlds."""

    @property
    def size(self) -> int:
        """The number of ranks of the whole world, in its current epoch."""
        return int(self._native.size())

    @property
    def local_ranks(self) -> List[int]:
        """The ranks that live in this process, ascending."""
        ranks: List[int] = self._native.local_ranks()
        return ranks

    @property
    def epoch(self) -> int:
        """The number of the current epoch: the first one is 1, and each rebuild adds 1."""
        return int(self._native.epoch())

    @property
    def status(self) -> WorldEvent:
        """The world's phase, ranks and losses now."""
        return event_of(self._native.status())

    def write(self, rank: int, values: Tensor, destination: Tensor, *, deadline: Optional[Seconds] = None) -> R:
        """Copies values, an array in host memory, to the front of memory of a rank: see Rank.write()."""
        return self.rank(rank).write(values, destination, deadline=deadline)

    def read(self, rank: int, source: Tensor, *, deadline: Optional[Seconds] = None, dtype: DType = None,
             stream: Stream = "producer") -> R:
        """Copies memory of a rank to new host memory, reply.out: see Rank.read()."""
        return self.rank(rank).read(source, deadline=deadline, dtype=dtype, stream=stream)

    def acknowledge(self, epoch: int) -> None:
        """Does the same as Rank.acknowledge() without a lane, for all ranks of this process."""
        wanted = whole("epoch", epoch, 0, LARGEST_SIZE)
        for number in self.local_ranks:
            self._native.acknowledge(number, None, wanted)

    def rank(self, number: int) -> "Rank[R]":
        """Returns one rank, for requests to it alone. Errors: InvalidArgument if the world has no such rank now."""
        return Rank(self, whole("rank", number, 0, max(self.size, *self.local_ranks, 1) - 1))

    def _request(self, operations: List[Any], rank: Optional[int], options: Options, out: Any) -> Request:
        made: Request = self._native.prepare(operations, rank, options.lane, options.deadline, out)
        return made

    def _collective(self, kind: str, tensors: Any, out: Any, parameters: Dict[str, Any], options: Options) -> R:
        operations, rank, written = self._operations(kind, tensors, out, parameters, options)
        return self._ask(operations, rank, options, written)

    def _operations(self, kind: str, tensors: Any, out: Any, parameters: Dict[str, Any],
                    options: Options) -> Tuple[List[Any], Optional[int], Any]:
        """Returns the operations, the rank of a request to a single rank, and the written tensors."""
        ranks, maker = self.local_ranks, self._maker()
        given = [len(one) for one in (tensors, out) if isinstance(one, (list, tuple))]
        if len(ranks) < maker.size and maker.size in given:
            ranks = list(range(maker.size))  # a request to all ranks, also to those in other processes
        if len(ranks) < maker.size:
            if len(ranks) != 1:
                raise refuse(f"{len(ranks)} of the world's {maker.size} ranks live in this process: give operands for "
                             f"all of them, or use world.rank(r) for each")
            if any(count != 1 for count in given):
                raise refuse(f"{kind} was given a list of {max(given)}: give one tensor for this process's rank, or one "
                             f"for each of the world's {maker.size} ranks")
            one = maker.part(kind, ranks[0], tensors[0] if isinstance(tensors, (list, tuple)) else tensors,
                             out[0] if isinstance(out, (list, tuple)) else out, options, parameters)
            return [one.operation], ranks[0], one.out
        if options.lane is not None:
            raise refuse(f"a request to all ranks has no lane: use world.rank(r).lane({options.lane!r})")
        parts = maker.parts(kind, ranks, tensors, out, options, parameters)
        return [one.operation for one in parts], None, [one.out for one in parts]


def call_of(native: Any, maker: PartMaker, rank: int, name: str, arguments: Sequence[Any], values: Any,
            stream: Stream) -> Any:
    """Returns the operation that calls a function at one rank."""
    if not hasattr(native, "function"):
        raise refuse("virtual worlds call no functions")
    operands = [maker.operand(rank, as_bytes(one), Options(stream=stream)) for one in arguments]
    return _troupe.call(native.function(name), operands, bytes(values))


class FunctionCalls(Requests[R]):
    """Calls of functions that the ranks' processes have registered."""

    def call(self, name: str, arguments: Optional[Sequence[Sequence[Tensor]]] = None, values: Any = b"", *,
             deadline: Optional[Seconds] = None, stream: Stream = "producer") -> R:
        """Calls, at all ranks, the function that their processes have registered by this name: register_function().

        Each rank calls it at the request's place among its requests. arguments: a list of memory for each rank, or None.
        values: bytes that every rank receives, at most 256 KiB.
        Errors: InvalidArgument if a process has registered no such function, or arguments has not one list per rank.
        """
        maker = self._maker()
        if arguments is not None and len(arguments) != maker.size:
            raise refuse(f"{name} has arguments for {len(arguments)} ranks, and the world has {maker.size}: give one list "
                         f"for each rank")
        calls = [call_of(self._native, maker, rank, name, arguments[rank] if arguments is not None else (), values,
                         stream) for rank in range(maker.size)]
        return self._ask(calls, None, Options(deadline), None)


class Rank(Collectives[Tensor, R], Generic[R]):
    """One rank of a world. The k-th requests of all ranks in a lane form one operation.

    Used as a context manager with a lane name, `with world.rank(0).lane("decode") as mine`, it leaves the lane at the end.
    """

    def __init__(self, world: RankRequests[R], number: int, lane: Optional[str] = None) -> None:
        self._world = world
        self.number = number
        self._lane = lane

    def _part(self, kind: str, tensor: Any, out: Any, parameters: Dict[str, Any],
              options: Options) -> Tuple[Part, Options]:
        if options.lane is None:
            options = options._replace(lane=self._lane)
        return self._world._maker().part(kind, self.number, tensor, out, options, parameters), options

    def _collective(self, kind: str, tensors: Any, out: Any, parameters: Dict[str, Any], options: Options) -> R:
        part, options = self._part(kind, tensors, out, parameters, options)
        return self._world._ask([part.operation], self.number, options, part.out)

    def prepare(self, kind: Operation, tensor: Optional[Tensor] = None, out: Optional[Tensor] = None, *,
                op: Optional[Reduction] = None, root: Optional[int] = None, factor: Optional[Factor] = None,
                counts: Optional[Counts] = None, send_counts: Optional[Counts] = None,
                recv_counts: Optional[Counts] = None, peer: Optional[int] = None, tag: Optional[int] = None,
                deadline: Optional[Seconds] = None, lane: Optional[str] = None, dtype: DType = None,
                stream: Stream = "producer") -> Request:
        """Returns a request to this rank that can be sent many times: see World.prepare()."""
        part, options = self._part(
            kind, tensor, out, parameters_of(kind, op=op, root=root, factor=factor, counts=counts,
                                             send_counts=send_counts, recv_counts=recv_counts, peer=peer, tag=tag),
            Options(deadline, lane, dtype, stream))
        return self._world._request([part.operation], self.number, options, part.out)

    def agree(self, rule: AgreementRule, value: Contribution = b"", *, root: int = 0,
              deadline: Optional[Seconds] = None, lane: Optional[str] = None) -> R:
        """Makes one value of what all ranks contribute, the same at all ranks: reply.result().agreed.

        It takes one position of the lane and needs no GPU. All ranks name the same rule, and the same root, whose
        contribution is the value with rule "of_rank". Integers are signed, of 64 bits. At most 4 KiB per rank, and
        64 KiB for the value.
        Errors: Mismatch if ranks differ in rule, root or, where the rule combines, size; InvalidArgument if it is too
        large; DeadlineExceeded at all ranks alike, if a rank is missing; Unsupported with ordering="caller".
        """
        return self._collective("agree", None, None, {"rule": rule, "value": contribution_of(value), "root": root},
                                Options(deadline, lane))

    def all_to_all_v(self, tensor: Tensor, out: Tensor, send_counts: Counts, recv_counts: Counts, *,
                     deadline: Optional[Seconds] = None, lane: Optional[str] = None, dtype: DType = None,
                     stream: Stream = "producer") -> R:
        """Does the same as all_to_all, with parts of different sizes.

        Shapes: tensor has send_counts[q] elements for each rank q, out has recv_counts[q] elements from each rank q;
        packed in rank order or at displacements.
        Errors: Mismatch if a rank sends another number of elements than its peer receives, or another dtype.
        """
        return self._collective("all_to_all_v", tensor, out, {"send_counts": send_counts, "recv_counts": recv_counts},
                                Options(deadline, lane, dtype, stream))

    def send(self, tensor: Tensor, peer: int, tag: int = 0, *, deadline: Optional[Seconds] = None,
             lane: Optional[str] = None, dtype: DType = None, stream: Stream = "producer") -> R:
        """Sends the tensor to rank peer, whose recv has the same count, dtype, tag and lane.

        Errors: Mismatch if the recv differs in count or dtype; InvalidArgument if peer is not a rank.
        """
        return self._collective("send", tensor, None, {"peer": peer, "tag": tag},
                                Options(deadline, lane, dtype, stream))

    def recv(self, tensor: Tensor, peer: int, tag: int = 0, *, deadline: Optional[Seconds] = None,
             lane: Optional[str] = None, dtype: DType = None, stream: Stream = "producer") -> R:
        """Receives from rank peer into the tensor. Shapes and errors as send."""
        return self._collective("recv", tensor, None, {"peer": peer, "tag": tag},
                                Options(deadline, lane, dtype, stream))

    def copy(self, source: Tensor, destination: Tensor, *, deadline: Optional[Seconds] = None,
             lane: Optional[str] = None, stream: Stream = "producer") -> R:
        """Copies all bytes of source to the front of destination, in the order of this rank's requests.

        No peer takes part. The dtypes may differ. Errors: InvalidArgument if destination has fewer bytes.
        """
        return self._collective("copy", source, destination, {}, Options(deadline, lane, None, stream))

    def write(self, values: Tensor, destination: Tensor, *, deadline: Optional[Seconds] = None,
              lane: Optional[str] = None) -> R:
        """Copies values, an array in host memory, to the front of destination, memory of this rank.

        The values are read before the call returns, so they may be changed at once. In the order of this rank's requests.
        For a rank of another process destination is a RemoteBuffer, and the request is a transfer() from this process's
        first rank: it has a place in the order of the requests to all ranks, and no lane.
        Errors: InvalidArgument if values is not host memory, or destination is too small.
        """
        native = self._world._native
        if not hasattr(native, "host_copy"):
            raise refuse("virtual worlds have no write() and read(): use copy()")
        ranks = self._world.local_ranks
        held = native.host_copy(self._world._maker().operand((ranks or [0])[0], values, Options(stream=None), True))
        if self.number in ranks:
            return self.copy(held, destination, deadline=deadline, lane=lane)
        return self._world.transfer(self._first_local(lane), held, self.number, destination, deadline=deadline)

    def read(self, source: Tensor, *, deadline: Optional[Seconds] = None, lane: Optional[str] = None,
             dtype: DType = None, stream: Stream = "producer") -> R:
        """Copies source, memory of this rank, to new host memory: `numpy.asarray(reply.out)` when the reply is there.

        Order and conditions are those of write(). A RemoteBuffer without an element type needs dtype.
        """
        native = self._world._native
        if not hasattr(native, "empty_host"):
            raise refuse("virtual worlds have no write() and read(): use copy()")
        is_local = self.number in self._world.local_ranks
        place = self.number if is_local else self._first_local(lane)
        seen = self._world._maker().operand(place, source, Options(dtype=dtype, stream=None), True)
        held = native.empty_host(seen.shape, seen.dtype)
        if is_local:
            return self.copy(source, held, deadline=deadline, lane=lane, stream=stream)
        alone = self._world.group(deadline=deadline, dtype=dtype, stream=stream)
        alone.transfer(self.number, source, place, held)
        return alone._send(held)

    def _first_local(self, lane: Optional[str]) -> int:
        ranks = self._world.local_ranks
        if not ranks:
            raise refuse("this process has no rank of the world")
        name = self._lane if lane is None else lane
        if name is not None:
            raise refuse(f"rank {self.number} lives in another process: its memory is written and read by a request to "
                         f"all ranks, which has no lane, and was asked for in lane {name!r}")
        return ranks[0]

    def call(self, name: str, arguments: Sequence[Tensor] = (), values: Any = b"", *,
             deadline: Optional[Seconds] = None, lane: Optional[str] = None, stream: Stream = "producer") -> R:
        """Calls, at this rank, the function that its process has registered by this name: see World.call().

        Like a collective, it runs only when every rank has received the request.
        """
        options = Options(deadline, self._lane if lane is None else lane)
        call = call_of(self._world._native, self._world._maker(), self.number, name, arguments, values, stream)
        return self._world._ask([call], self.number, options, None)

    def lane(self, name: str) -> "Rank[R]":
        """Returns this rank for requests in the lane with this name."""
        return Rank(self._world, self.number, name)

    def acknowledge(self, epoch: int) -> None:
        """Sets the epoch of later requests to this rank in this lane, or without a lane.

        The first epoch needs no acknowledgement. After a rebuild, requests are rejected (StaleEpoch) until the client
        acknowledges the new epoch, because ranks may differ in which requests succeeded. Bring them to one state first,
        for example the last checkpoint.
        """
        self._world._native.acknowledge(self.number, self._lane, whole("epoch", epoch, 0, LARGEST_SIZE))

    @property
    def lane_name(self) -> str:
        """The name of its lane: "default" without one."""
        return "default" if self._lane is None else self._lane

    def leave(self) -> None:
        """Cancels requests in this lane that wait for their peers, and frees the lane for another client."""
        if self._lane is not None:
            self._world._native.leave(self.number, self._lane)

    def __repr__(self) -> str:
        lane = "" if self._lane is None else f", lane {self._lane!r}"
        return f"<troupe.Rank: {self.number} of {self._world.size}{lane}>"

    def __enter__(self) -> "Rank[R]":
        return self

    def __exit__(self, *_: Any) -> None:
        self.leave()


class Group(Collectives[Tensors, None], Generic[R]):
    """Several operations launched as one: all of them run or none. world.group() returns it.

    Operations take dtype and stream of their own; the deadline is given to world.group(), for all of them.
    """

    def __init__(self, world: Requests[R], options: Options) -> None:
        self._world, self._options, self._maker = world, options, world._maker()
        self._ranks = range(self._maker.size)
        self._parts: Dict[int, List[Any]] = {rank: [] for rank in self._ranks}
        self._outs: List[Any] = []
        #: The reply to the whole group, set when it has been sent.
        self.reply: Optional[R] = None

    def _chosen(self, options: Options) -> Options:
        if options.deadline is not None or options.lane is not None:
            raise refuse("a group has one deadline for all its operations, and no lane: give the deadline to "
                         "world.group()")
        return self._options._replace(dtype=options.dtype if options.dtype is not None else self._options.dtype,
                                      stream=options.stream if options.stream != "producer" else self._options.stream)

    def _collective(self, kind: str, tensors: Any, out: Any, parameters: Dict[str, Any], options: Options) -> None:
        parts = self._maker.parts(kind, self._ranks, tensors, out, self._chosen(options), parameters)
        for rank, part in zip(self._ranks, parts):
            self._parts[rank].append(part.operation)
        self._outs.append([part.out for part in parts])

    def on(self, rank: int, kind: Operation, tensor: Optional[Tensor] = None, out: Optional[Tensor] = None, *,
           op: Optional[Reduction] = None, root: Optional[int] = None, factor: Optional[Factor] = None, counts: Optional[Counts] = None,
           send_counts: Optional[Counts] = None, recv_counts: Optional[Counts] = None, peer: Optional[int] = None,
           tag: Optional[int] = None, dtype: DType = None, stream: Stream = "producer") -> None:
        """Adds an operation of one rank: on(0, "send", x, peer=1). Its parameters are those of the rank's method."""
        if rank not in self._parts:
            raise refuse(f"rank {rank} is not in this world: its ranks are 0 to {self._maker.size - 1}")
        parameters = parameters_of(kind, op=op, root=root, factor=factor, counts=counts, send_counts=send_counts,
                                   recv_counts=recv_counts, peer=peer, tag=tag)
        part = self._maker.part(kind, rank, tensor, out, self._chosen(Options(dtype=dtype, stream=stream)), parameters)
        self._parts[rank].append(part.operation)

    def transfer(self, source: int, tensor: Tensor, destination: int, out: Tensor, tag: int = 0) -> None:
        """Adds a send of rank source and the recv of rank destination: tensor and out have the same count and dtype."""
        (tensor,), (out,) = typed([tensor], [out])
        self.on(source, "send", tensor, peer=destination, tag=tag)
        self.on(destination, "recv", out, peer=source, tag=tag)
        self._outs.append(out)

    def ask(self) -> R:
        """Sends the group to the world and returns its reply."""
        return self._send(list(self._outs))

    def _send(self, out: Any) -> R:
        groups = [_troupe.group(self._parts[rank]) for rank in self._ranks]
        self.reply = reply = self._world._ask(groups, None, self._options, out)
        return reply

    def __repr__(self) -> str:
        return f"<troupe.Group: {max(map(len, self._parts.values()), default=0)} operations>"

    def __enter__(self) -> "Group[R]":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.ask()


class World(RankRequests[Reply], FunctionCalls[Reply], EventSource):
    """A handle to a world of ranks. A request never blocks: it returns a Reply; use `await reply` or reply.result().

    With a list of operands, one for each rank of the world, a request is to all ranks. If some live in other processes,
    their operands are RemoteBuffers, which these have exported (export_memory(), find_memory()).

    Lifetime: the world ends by stop(), with its runtime, or at the end of a with statement. Threads: any.
    """

    def __init__(self, native: Any, owner: Any) -> None:
        self._native = native
        self._owner = owner  # keeps the runtime alive

    def ready(self, *, after_epoch: int = 0) -> "ValueReply[WorldEvent]":
        """Returns the status as soon as the world is ready in a later epoch than after_epoch, or has failed or stops.

        `status = await world.ready(after_epoch=epoch)`, where epoch is that of the request that failed.
        """
        reply: "ValueReply[WorldEvent]" = self._native.ready(after_epoch)
        return reply

    def wait_ready(self, timeout: Optional[Seconds] = None, *, after_epoch: int = 0) -> WorldEvent:
        """Waits as ready() does, but at most timeout seconds. Returns the status."""
        try:
            return self.ready(after_epoch=after_epoch).result(timeout)
        except TimeoutError:
            return self.status

    def export_memory(self, rank: int, tensor: Tensor, name: str = "") -> RemoteBuffer:
        """Exports memory of a rank in this process. Returns a handle that requests of other processes can name.

        The memory is held until unexport(). name: other processes find the handle by it (find_memory()); if it is used
        again, it refers to the new memory. The handle is valid in all epochs, and in the sub-worlds of the world.
        Errors: InvalidArgument if the rank does not live in this process, or the tensor is empty.
        """
        where = rank_number("rank", rank)
        made: RemoteBuffer = self._native.export_memory(
            where, self._maker().operand(where, tensor, Options(stream=None)), name)
        return made

    def unexport(self, handle: RemoteBuffer) -> None:
        """Releases exported memory. Requests in flight still hold it. No effect if this process does not export it."""
        self._native.unexport(handle)

    def find_memory(self, rank: int, name: str, dtype: DType = None, *,
                    deadline: Seconds = 10.0) -> "ValueReply[RemoteBuffer]":
        """Asks the process of rank for the memory that it has exported under name.

        dtype: the element type that the result is used with.
        Errors: Missing (it has exported none), DeadlineExceeded, InvalidArgument (not a rank of the world).
        """
        reply: "ValueReply[RemoteBuffer]" = self._native.find_memory(rank_number("rank", rank), name, dtype, deadline)
        return reply

    def register_function(self, name: str, function: RankFunction) -> None:
        """Registers a function that call(name) calls at this process's ranks. Replaces an earlier one of this name.

        It is called with (rank, epoch, stream, memory, values): the handle of the rank's stream, whose device is current,
        as an int; the arguments as Buffers of bytes; and the bytes of the request. It enqueues work in the stream, e.g.
        through torch.cuda.ExternalStream(stream). It runs when the rank launches the request: earlier requests may still
        run on the GPU, so work on the CPU is ordered behind them only if their replies have arrived.
        It runs on the launcher thread of the rank's GPU, with the GIL, and delays all requests of the rank meanwhile: it
        must be short, and must neither wait for the GPU nor for a reply. An exception ends the epoch, as a failed launch
        does. Lifetime: the world holds the function until the world is destroyed.
        Errors: InvalidArgument (the name, or it cannot be called).
        """
        self._native.register_function(name, function)

    def _ask(self, operations: List[Any], rank: Optional[int], options: Options, out: Any) -> Reply:
        return self._request(operations, rank, options, out).ask()

    def prepare(self, kind: Operation, tensors: Optional[Tensors] = None, out: Optional[Tensors] = None, *,
                op: Optional[Reduction] = None, root: Optional[int] = None, factor: Optional[Factor] = None,
                counts: Optional[Counts] = None, send_counts: Optional[Counts] = None,
                recv_counts: Optional[Counts] = None, peer: Optional[int] = None, tag: Optional[int] = None,
                deadline: Optional[Seconds] = None, lane: Optional[str] = None, dtype: DType = None,
                stream: Stream = "producer") -> Request:
        """Returns a request that can be sent many times: prepare("all_reduce", tensors, op="max").ask().

        Operands are read and checked once. Each ask() waits, on the GPU, for the work that is then in the streams of
        `stream`.
        Shapes, parameters and errors are those of the method of that name.
        """
        options = Options(deadline, lane, dtype, stream)
        parameters = parameters_of(kind, op=op, root=root, factor=factor, counts=counts, send_counts=send_counts,
                                   recv_counts=recv_counts, peer=peer, tag=tag)
        operations, rank, written = self._operations(kind, tensors, out, parameters, options)
        return self._request(operations, rank, options, written)

    def split(self, groups: Mapping[str, Sequence[int]]) -> Dict[str, Optional["World"]]:
        """Returns a world for each group of ranks, by name, or None if none of its ranks is in this process."""
        made = self._native.split({name: wholes(f"groups[{name!r}]", members, 0, LARGEST_INT)
                                   for name, members in groups.items()})
        return {name: None if one is None else World(one, self) for name, one in made.items()}

    def register_memory(self, nbytes: int) -> None:
        """Registers memory with all ranks, which makes small requests on it faster: see troupe.empty_all()."""
        self._native.register_memory(whole("nbytes", nbytes, 0, LARGEST_SIZE))

    def release_unused(self) -> int:
        """Returns the memory that the pools of its GPUs keep unused to the GPUs; returns the bytes.

        Does not wait for requests in flight. Other users of the GPU, for example PyTorch, can have the memory then. The
        setting pool_keep_bytes limits what the pools keep by themselves.
        """
        return int(self._native.release_unused())

    def suspend(self) -> List[int]:
        """Frees the communicators' device memory; returns the bytes per local rank. Requests wait until resume()."""
        freed: List[int] = self._native.suspend()
        return freed

    def resume(self) -> None:
        """Allocates the memory that suspend() freed, and runs the waiting requests. No effect if not suspended."""
        self._native.resume()

    def leave(self, *, renumbers: bool = False) -> "ValueReply[None]":
        """Lets this process leave its world over processes as planned, for maintenance: `await world.leave()`.

        A process that stands by takes its place, or the others go on with fewer ranks, and lose no request. It is
        answered when this process is no rank any more; the world then stops here.
        renumbers: whether the ranks behind this one may get other numbers.
        Errors: InvalidArgument (too few ranks would remain, or they would get other numbers), Rebuilding, Stopping,
        Unsupported (a sub-world, or a world without a controller).
        """
        reply: "ValueReply[None]" = self._native.leave_world(renumbers)
        return reply

    def capture(self, requests: Sequence[Request], deadline: Optional[Seconds] = None, name: str = "") -> _troupe.Plan:
        """Captures prepared requests to all ranks as a plan, which replay(plan) launches by one message.

        Over processes, every process captures the requests of its own rank. Captures with the same `name` form one
        plan; without names, the n-th captures of all processes do. Errors: Unsupported if the backend cannot capture
        one of them.
        """
        plan: _troupe.Plan = self._native.capture(list(requests), deadline, name)
        return plan

    def replay(self, plan: _troupe.Plan, deadline: Optional[Seconds] = None, lane: Optional[str] = None) -> Reply:
        """Launches all requests of the plan, with the operands that they were prepared with.

        lane: a lane of this process's rank, if other processes have the other ranks; otherwise it must be None.
        """
        ranks = self.local_ranks
        target = ranks[0] if len(ranks) == 1 and self.size > 1 else None
        if target is None and lane is not None:
            raise refuse(f"a request to all ranks has no lane: leave lane={lane!r} out")
        reply: Reply = self._native.prepare_replay(plan, deadline, target, lane).ask()
        return reply

    def stop(self) -> None:
        """Lets requests in flight finish, releases all resources, and returns when that is done."""
        self._native.stop()

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    async def __aenter__(self) -> "World":
        return self

    async def __aexit__(self, *_: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.stop)

    def __iter__(self) -> Iterator[Rank[Reply]]:
        return (self.rank(number) for number in self.local_ranks)

    def __repr__(self) -> str:
        return f"<troupe.World: {self.status.text}>"


Shape = Union[int, Sequence[int]]


def empty(world: Any, rank: int, shape: Shape, dtype: DType = "float32") -> _troupe.Buffer:
    """Allocates memory on the rank's device, not initialised. Other libraries import it by DLPack without a copy.

    world: a World or a VirtualWorld. Errors: OutOfMemory; InvalidArgument if the rank does not live in this process.
    """
    made: _troupe.Buffer = world._native.empty(rank_number("rank", rank), shape_of(shape), dtype)
    return made


def empty_all(world: World, shape: Shape, dtype: DType = "float32") -> List[_troupe.Buffer]:
    """Allocates one buffer for each local rank, of registered memory if there is any (World.register_memory())."""
    made: List[_troupe.Buffer] = world._native.empty_all(shape_of(shape), dtype)
    return made


def empty_pinned(world: World, shape: Shape, dtype: DType = "float32") -> _troupe.Buffer:
    """Allocates page-locked host memory that every local rank can access; numpy.asarray() returns a view of it."""
    made: _troupe.Buffer = world._native.empty_pinned(shape_of(shape), dtype)
    return made
