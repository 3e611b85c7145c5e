"""Worlds and their ranks, for Python."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Generic, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import _troupe
from ._collectives import Collectives, Options, Part, PartMaker, R, parameters_of, refuse
from ._errors import Error
from ._events import listen
from ._types import Counts, DType, Factor, Operation, Reduction, Seconds, Stream, Tensor, Tensors

Reply = _troupe.Reply
Request = _troupe.Request


@dataclass(frozen=True)
class WorldEvent:
    """What a world tells about itself: at every change of phase, and when asked for its status."""

    phase: str  #: forming, ready, rebuilding, failed, stopping or stopped
    epoch: int
    world_size: int
    local_ranks: Tuple[int, ...]  #: those of this process
    origins: Tuple[int, ...]  #: what each of these was called in the first epoch
    lost: Tuple[int, ...]  #: ranks that it goes on without, as the first epoch called them
    reason: Optional[Error]  #: why it failed or is rebuilt
    text: str  #: one line for people

    @property
    def is_degraded(self) -> bool:
        return bool(self.lost)


class Requests(Generic[R]):
    """Turns parts into requests; each kind of world asks them in its own way."""

    _native: Any

    def acknowledge(self, epoch: int) -> None:
        """As Rank.acknowledge(), for all ranks of this process outside of lanes."""
        for number in self._local_ranks():
            self._native.acknowledge(number, None, epoch)

    def _maker(self) -> PartMaker:
        return PartMaker(self._native, self._native.size())

    def _request(self, parts: List[Part], rank: Optional[int], options: Options, out: Any) -> Request:
        made: Request = self._native.prepare([one.operation for one in parts], rank, options.lane, options.deadline,
                                             options.retry_safe, out)
        return made

    def _ask(self, parts: List[Part], rank: Optional[int], options: Options, out: Any) -> R:
        raise NotImplementedError

    def _local_ranks(self) -> List[int]:
        ranks: List[int] = self._native.local_ranks()
        return ranks

    def _world_parts(self, kind: str, tensors: Any, out: Any, parameters: Dict[str, Any],
                     options: Options) -> Tuple[List[Part], Optional[int], Any]:
        """The parts, the rank where the request is to a single one, and what is written."""
        ranks, maker = self._local_ranks(), self._maker()
        if len(ranks) < maker.size:
            if len(ranks) != 1:
                raise refuse(f"{len(ranks)} of the world's {maker.size} ranks live in this process: ask each by "
                             f"world.rank(r)")
            one = maker.part(kind, ranks[0], tensors[0] if isinstance(tensors, (list, tuple)) else tensors,
                             out[0] if isinstance(out, (list, tuple)) else out, options, parameters)
            return [one], ranks[0], one.out
        if options.lane is not None:
            raise refuse("a request to all ranks has no lane: ask world.rank(r) in lane " + repr(options.lane))
        parts = maker.parts(kind, ranks, tensors, out, options, parameters)
        return parts, None, [one.out for one in parts]


class Rank(Collectives[Tensor, R], Generic[R]):
    """One rank of a world, asked by itself: what the k-th call for each rank in a lane asks for is one operation of all.

    Used as a context manager with a lane name, `with world.rank(0).lane("decode") as mine`, it leaves the lane at the end.
    """

    def __init__(self, world: Requests[R], number: int, lane: Optional[str] = None) -> None:
        self._world = world
        self.number = number
        self._lane = lane

    def _part(self, kind: str, tensor: Any, out: Any, parameters: Dict[str, Any],
              options: Options) -> Tuple[List[Part], Options]:
        if options.lane is None:
            options = options._replace(lane=self._lane)
        return [self._world._maker().part(kind, self.number, tensor, out, options, parameters)], options

    def _collective(self, kind: str, tensors: Any, out: Any, parameters: Dict[str, Any], options: Options) -> R:
        parts, options = self._part(kind, tensors, out, parameters, options)
        return self._world._ask(parts, self.number, options, parts[0].out)

    def prepare(self, kind: Operation, tensor: Optional[Tensor] = None, out: Optional[Tensor] = None, *,
                op: Optional[Reduction] = None, root: Optional[int] = None, factor: Optional[Factor] = None,
                counts: Optional[Counts] = None, send_counts: Optional[Counts] = None,
                recv_counts: Optional[Counts] = None, peer: Optional[int] = None, tag: Optional[int] = None,
                deadline: Optional[Seconds] = None, lane: Optional[str] = None, retry_safe: bool = False,
                dtype: DType = None, stream: Stream = "producer") -> Request:
        """A request to this rank that can be asked many times: see World.prepare()."""
        parts, options = self._part(
            kind, tensor, out, parameters_of(kind, op=op, root=root, factor=factor, counts=counts,
                                             send_counts=send_counts, recv_counts=recv_counts, peer=peer, tag=tag),
            Options(deadline, lane, retry_safe, dtype, stream))
        return self._world._request(parts, self.number, options, parts[0].out)

    def all_to_all_v(self, tensor: Tensor, out: Tensor, send_counts: Counts, recv_counts: Counts, *,
                     deadline: Optional[Seconds] = None, lane: Optional[str] = None, retry_safe: bool = False,
                     dtype: DType = None, stream: Stream = "producer") -> R:
        """As all_to_all, with parts of different sizes.

        Shapes: tensor has send_counts[q] elements for each rank q, out has recv_counts[q] elements from each rank q;
        packed in rank order or at displacements.
        Errors: Mismatch where a rank sends another number of elements than its peer receives, or another dtype.
        """
        return self._collective("all_to_all_v", tensor, out, {"send_counts": send_counts, "recv_counts": recv_counts},
                                Options(deadline, lane, retry_safe, dtype, stream))

    def send(self, tensor: Tensor, peer: int, tag: int = 0, *, deadline: Optional[Seconds] = None,
             lane: Optional[str] = None, retry_safe: bool = False, dtype: DType = None,
             stream: Stream = "producer") -> R:
        """Sends the tensor to rank peer, whose recv has the same count, dtype, tag and lane.

        Errors: Mismatch where the recv differs in count or dtype; InvalidArgument where peer is not a rank.
        """
        return self._collective("send", tensor, None, {"peer": peer, "tag": tag},
                                Options(deadline, lane, retry_safe, dtype, stream))

    def recv(self, tensor: Tensor, peer: int, tag: int = 0, *, deadline: Optional[Seconds] = None,
             lane: Optional[str] = None, retry_safe: bool = False, dtype: DType = None,
             stream: Stream = "producer") -> R:
        """Receives from rank peer into the tensor. Shapes and errors as send."""
        return self._collective("recv", tensor, None, {"peer": peer, "tag": tag},
                                Options(deadline, lane, retry_safe, dtype, stream))

    def copy(self, source: Tensor, destination: Tensor, *, deadline: Optional[Seconds] = None,
             lane: Optional[str] = None, retry_safe: bool = False, stream: Stream = "producer") -> R:
        """Copies all bytes of source to the front of destination, in the order of this rank's requests.

        No peer takes part. The dtypes may differ. Errors: InvalidArgument where destination has fewer bytes.
        """
        return self._collective("copy", source, destination, {}, Options(deadline, lane, retry_safe, None, stream))

    def lane(self, name: str) -> "Rank[R]":
        """This rank in a lane of that name."""
        return Rank(self._world, self.number, name)

    def acknowledge(self, epoch: int) -> None:
        """Requests to this rank in this lane, or outside of lanes, are for that epoch from now on.

        The world's first epoch needs none. After a rebuild requests are refused (StaleEpoch) until their owner has said so:
        ranks may differ in which requests they saw succeed. Bring them to one state first, such as the last checkpoint.
        """
        self._world._native.acknowledge(self.number, self._lane, epoch)

    def leave(self) -> None:
        """Takes back what waits for its peers in this lane, and frees the lane for another client."""
        if self._lane is not None:
            self._world._native.leave(self.number, self._lane)

    def __enter__(self) -> "Rank[R]":
        return self

    def __exit__(self, *_: Any) -> None:
        self.leave()


class Group(Collectives[Tensors, None], Generic[R]):
    """Several operations launched as one: all is done or nothing. Made by world.group().

    Operations take dtype and stream of their own; deadline and retry_safe are given to world.group(), for all of them.
    """

    def __init__(self, world: Requests[R], options: Options) -> None:
        self._world, self._options, self._maker = world, options, world._maker()
        self._ranks = world._local_ranks()
        self._parts: Dict[int, List[Any]] = {rank: [] for rank in self._ranks}
        self._outs: List[Any] = []
        #: Of the whole group, once it has been asked.
        self.reply: Optional[R] = None

    def _chosen(self, options: Options) -> Options:
        if options.deadline is not None or options.lane is not None or options.retry_safe:
            raise refuse("a group has one deadline and one retry_safe for all its operations, and no lane: give them to "
                         "world.group()")
        return self._options._replace(dtype=options.dtype if options.dtype is not None else self._options.dtype,
                                      stream=options.stream if options.stream != "producer" else self._options.stream)

    def _collective(self, kind: str, tensors: Any, out: Any, parameters: Dict[str, Any], options: Options) -> None:
        parts = self._maker.parts(kind, self._ranks, tensors, out, self._chosen(options), parameters)
        for rank, part in zip(self._ranks, parts):
            self._parts[rank].append(part.operation)
        self._outs.append([part.out for part in parts])

    def on(self, rank: int, kind: Operation, tensor: Optional[Tensor] = None, *, op: Optional[Reduction] = None,
           root: Optional[int] = None, factor: Optional[Factor] = None, counts: Optional[Counts] = None,
           send_counts: Optional[Counts] = None, recv_counts: Optional[Counts] = None, peer: Optional[int] = None,
           tag: Optional[int] = None, dtype: DType = None, stream: Stream = "producer") -> None:
        """A part of one rank alone: on(0, "send", x, peer=1). Its parameters are those of the rank's method."""
        if rank not in self._parts:
            raise refuse(f"rank {rank} does not live in this process: its ranks are {self._ranks}")
        parameters = parameters_of(kind, op=op, root=root, factor=factor, counts=counts, send_counts=send_counts,
                                   recv_counts=recv_counts, peer=peer, tag=tag)
        part = self._maker.part(kind, rank, tensor, None, self._chosen(Options(dtype=dtype, stream=stream)), parameters)
        self._parts[rank].append(part.operation)

    def transfer(self, source: int, tensor: Tensor, destination: int, out: Tensor, tag: int = 0) -> None:
        """A send of rank source and the recv of rank destination: tensor and out have the same count and dtype."""
        self.on(source, "send", tensor, peer=destination, tag=tag)
        self.on(destination, "recv", out, peer=source, tag=tag)
        self._outs.append(out)

    def ask(self) -> R:
        """Asks the world: one reply for all parts."""
        parts = [Part(_troupe.group(self._parts[rank]), None) for rank in self._ranks]
        self.reply = reply = self._world._ask(parts, None, self._options, list(self._outs))
        return reply

    def __enter__(self) -> "Group[R]":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.ask()


class World(Requests[Reply], Collectives[Tensors, Reply]):
    """A handle to a world of ranks. Asking never blocks: it returns a Reply, which is awaited or asked for its result().

    Lifetime: the world ends by stop(), with its runtime, or at the end of a with statement. Threads: any.
    """

    def __init__(self, native: Any, owner: Any) -> None:
        self._native = native
        self._owner = owner  # the runtime, which lives as long as a world is held

    @property
    def size(self) -> int:
        """The number of ranks of the whole world, in its present epoch."""
        return int(self._native.size())

    @property
    def local_ranks(self) -> List[int]:
        """The ranks that live in this process, ascending."""
        return self._local_ranks()

    @property
    def epoch(self) -> int:
        """Counts the world's formings, from 1."""
        return int(self._native.epoch())

    @property
    def status(self) -> WorldEvent:
        """The world's phase, ranks and losses now."""
        return WorldEvent(**self._native.status())

    def events(self, heard: Callable[[WorldEvent], Any]) -> None:
        """Calls heard at every later change of phase, on a thread of the module's, in order, as long as it lives."""
        listen(self._native, lambda fields: heard(WorldEvent(**fields)))

    def rank(self, number: int) -> Rank[Reply]:
        """One rank, asked by itself."""
        return Rank(self, number)

    def _ask(self, parts: List[Part], rank: Optional[int], options: Options, out: Any) -> Reply:
        return self._request(parts, rank, options, out).ask()

    def _collective(self, kind: str, tensors: Any, out: Any, parameters: Dict[str, Any], options: Options) -> Reply:
        parts, rank, written = self._world_parts(kind, tensors, out, parameters, options)
        return self._ask(parts, rank, options, written)

    def prepare(self, kind: Operation, tensors: Optional[Tensors] = None, out: Optional[Tensors] = None, *,
                op: Optional[Reduction] = None, root: Optional[int] = None, factor: Optional[Factor] = None,
                counts: Optional[Counts] = None, send_counts: Optional[Counts] = None,
                recv_counts: Optional[Counts] = None, peer: Optional[int] = None, tag: Optional[int] = None,
                deadline: Optional[Seconds] = None, lane: Optional[str] = None, retry_safe: bool = False,
                dtype: DType = None, stream: Stream = "producer") -> Request:
        """A request that can be asked many times: prepare("all_reduce", tensors, op="max").ask().

        Operands are read and checked once. Each ask() waits, on the GPU, for what is in the streams of `stream` by then.
        Shapes, parameters and errors are those of the method of that name.
        """
        options = Options(deadline, lane, retry_safe, dtype, stream)
        parameters = parameters_of(kind, op=op, root=root, factor=factor, counts=counts, send_counts=send_counts,
                                   recv_counts=recv_counts, peer=peer, tag=tag)
        parts, rank, written = self._world_parts(kind, tensors, out, parameters, options)
        return self._request(parts, rank, options, written)

    def group(self, *, deadline: Optional[Seconds] = None, retry_safe: bool = False, dtype: DType = None,
              stream: Stream = "producer") -> Group[Reply]:
        """Several operations as one: `with world.group() as all: all.all_reduce(x); all.transfer(0, y, 1, z)`."""
        return Group(self, Options(deadline, None, retry_safe, dtype, stream))

    def split(self, groups: Mapping[str, Sequence[int]]) -> Dict[str, Optional["World"]]:
        """A world for each group of ranks, by name; None where none of its ranks lives in this process."""
        made = self._native.split({name: list(members) for name, members in groups.items()})
        return {name: None if one is None else World(one, self) for name, one in made.items()}

    def register_memory(self, nbytes: int) -> None:
        """Memory that all ranks know of, for small requests that are the faster for it: see troupe.empty_all()."""
        self._native.register_memory(nbytes)

    def suspend(self) -> List[int]:
        """Gives the communicators' device memory back; how many bytes on each local rank. Requests wait until resume()."""
        freed: List[int] = self._native.suspend()
        return freed

    def resume(self) -> None:
        """Takes that memory again and serves what waits; nothing where the world is not suspended."""
        self._native.resume()

    def capture(self, requests: Sequence[Request], deadline: Optional[Seconds] = None) -> _troupe.Plan:
        """A plan of prepared requests to all ranks, launched by one message: replay(plan).

        Errors: Unsupported where the backend cannot capture one of them.
        """
        plan: _troupe.Plan = self._native.capture(list(requests), deadline)
        return plan

    def replay(self, plan: _troupe.Plan, deadline: Optional[Seconds] = None) -> Reply:
        """Launches all requests of the plan, with the operands that they were prepared with."""
        reply: Reply = self._native.replay(plan, deadline)
        return reply

    def stop(self) -> None:
        """Lets requests in flight finish, gives everything back and returns when that has ended."""
        self._native.stop()

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def __iter__(self) -> Iterator[Rank[Reply]]:
        return (self.rank(number) for number in self.local_ranks)

    def __repr__(self) -> str:
        return f"<troupe.World: {self.status.text}>"


Shape = Union[int, Sequence[int]]


def empty(world: Any, rank: int, shape: Shape, dtype: DType = "float32") -> _troupe.Buffer:
    """Memory of troupe's on the rank's device, contents undefined. Other libraries take it by DLPack, without a copy.

    world: a World or a VirtualWorld. Errors: OutOfMemory; InvalidArgument where the rank does not live in this process.
    """
    made: _troupe.Buffer = world._native.empty(rank, _shape(shape), dtype)
    return made


def empty_all(world: World, shape: Shape, dtype: DType = "float32") -> List[_troupe.Buffer]:
    """One buffer for each local rank, of registered memory where there is some (World.register_memory())."""
    made: List[_troupe.Buffer] = world._native.empty_all(_shape(shape), dtype)
    return made


def empty_pinned(world: World, shape: Shape, dtype: DType = "float32") -> _troupe.Buffer:
    """Page-locked host memory that every local rank reaches; numpy.asarray() shows it."""
    made: _troupe.Buffer = world._native.empty_pinned(_shape(shape), dtype)
    return made


def _shape(shape: Shape) -> List[int]:
    return [shape] if isinstance(shape, int) else list(shape)
