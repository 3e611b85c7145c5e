"""Worlds and their ranks, for Python."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from . import _troupe
from ._collectives import Collectives, Options, Part, PartMaker, Seconds, refuse, split_options
from ._errors import Error
from ._events import listen

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


class Requests:
    """Turns parts into requests; each kind of world asks them in its own way."""

    _native: Any

    def _maker(self) -> PartMaker:
        return PartMaker(self._native, self._native.size())

    def _request(self, parts: List[Part], rank: Optional[int], options: Options, out: Any) -> Any:
        return self._native.prepare([one.operation for one in parts], rank, options.lane, options.deadline,
                                    options.retry_safe, out)

    def _ask(self, parts: List[Part], rank: Optional[int], options: Options, out: Any) -> Any:
        return self._request(parts, rank, options, out).ask()

    def _send(self, prepare: bool, parts: List[Part], rank: Optional[int], options: Options, out: Any) -> Any:
        return (self._request if prepare else self._ask)(parts, rank, options, out)

    def _local_ranks(self) -> List[int]:
        return self._native.local_ranks()

    def _world_request(self, kind: str, tensors: Any, out: Any, given: Dict[str, Any], prepare: bool = False) -> Any:
        options, parameters = split_options(dict(given))
        ranks, maker = self._local_ranks(), self._maker()
        if len(ranks) < maker.size:
            if len(ranks) != 1:
                raise refuse(f"{len(ranks)} of the world's {maker.size} ranks live in this process: ask each by "
                             f"world.rank(r)")
            return self._rank_request(ranks[0], kind, tensors[0] if isinstance(tensors, (list, tuple)) else tensors,
                                      out[0] if isinstance(out, (list, tuple)) else out, given, prepare)
        if options.lane is not None:
            raise refuse("a request to all ranks stands in no lane: ask world.rank(r) in lane " + repr(options.lane))
        parts = maker.parts(kind, ranks, tensors, out, options, parameters)
        return self._send(prepare, parts, None, options, [one.out for one in parts])

    def _rank_request(self, rank: int, kind: str, tensor: Any, out: Any, given: Dict[str, Any],
                      prepare: bool = False) -> Any:
        options, parameters = split_options(dict(given))
        part = self._maker().part(kind, rank, tensor, out, options, parameters)
        return self._send(prepare, [part], rank, options, part.out)


class Rank(Collectives):
    """One rank of a world, asked by itself: what the k-th call for each rank in a lane asks for is one operation of all.

    Used as a context manager with a lane name, `with world.rank(0).lane("decode") as mine`, it leaves the lane at the end.
    """

    def __init__(self, world: Requests, number: int, lane: Optional[str] = None) -> None:
        self._world = world
        self.number = number
        self._lane = lane

    def _collective(self, kind: str, tensors: Any, out: Any, given: Dict[str, Any]) -> Any:
        return self._world._rank_request(self.number, kind, tensors, out, {"lane": self._lane, **given})

    def prepare(self, kind: str, tensor: Any = None, out: Any = None, **given: Any) -> Request:
        """As World.prepare(), for this rank."""
        return self._world._rank_request(self.number, kind, tensor, out, {"lane": self._lane, **given}, prepare=True)

    def send(self, tensor: Any, peer: int, tag: int = 0, **options: Any) -> Reply:
        """To rank peer, whose recv names the same count, dtype and tag."""
        return self._collective("send", tensor, None, dict(options, peer=peer, tag=tag))

    def recv(self, tensor: Any, peer: int, tag: int = 0, **options: Any) -> Reply:
        """From rank peer, into the tensor."""
        return self._collective("recv", tensor, None, dict(options, peer=peer, tag=tag))

    def copy(self, source: Any, destination: Any, **options: Any) -> Reply:
        """All bytes of source to the front of destination, in the order of this rank's requests; no peer takes part."""
        return self._collective("copy", source, destination, options)

    def lane(self, name: str) -> "Rank":
        """This rank in a lane of that name."""
        return Rank(self._world, self.number, name)

    def leave(self) -> None:
        """What waits for its peers in this lane is taken back, and the lane is free for another client."""
        if self._lane is not None:
            self._world._native.leave(self.number, self._lane)

    def __enter__(self) -> "Rank":
        return self

    def __exit__(self, *_: Any) -> None:
        self.leave()


class Group(Collectives):
    """Several operations launched as one: all is done or nothing. Made by world.group()."""

    def __init__(self, world: Requests, options: Options) -> None:
        self._world, self._options, self._maker = world, options, world._maker()
        self._ranks = world._local_ranks()
        self._parts: Dict[int, List[Any]] = {rank: [] for rank in self._ranks}
        self._outs: List[Any] = []
        #: Of the whole group, once it has been asked.
        self.reply: Any = None

    def _collective(self, kind: str, tensors: Any, out: Any, given: Dict[str, Any]) -> None:
        parts = self._maker.parts(kind, self._ranks, tensors, out, self._options, given)
        for rank, part in zip(self._ranks, parts):
            self._parts[rank].append(part.operation)
        self._outs.append([part.out for part in parts])

    def on(self, rank: int, kind: str, tensor: Any, **given: Any) -> None:
        """A part of one rank alone: on(0, "send", x, peer=1)."""
        if rank not in self._parts:
            raise refuse(f"rank {rank} does not live in this process: its ranks are {self._ranks}")
        part = self._maker.part(kind, rank, tensor, None, self._options, given)
        self._parts[rank].append(part.operation)

    def transfer(self, source: int, tensor: Any, destination: int, out: Any, tag: int = 0) -> None:
        """A send and the recv that meets it."""
        self.on(source, "send", tensor, peer=destination, tag=tag)
        self.on(destination, "recv", out, peer=source, tag=tag)
        self._outs.append(out)

    def ask(self) -> Any:
        """Asks the world: one reply for all parts."""
        parts = [Part(_troupe.group(self._parts[rank]), None) for rank in self._ranks]
        self.reply = self._world._ask(parts, None, self._options, list(self._outs))
        return self.reply

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self.ask()


class World(Requests, Collectives):
    """A handle to a world of ranks. Asking never blocks: it returns a Reply, which is awaited or asked for its result().

    Lifetime: the world ends by stop(), with its runtime, or at the end of a with statement. Threads: any.
    """

    def __init__(self, native: Any, owner: Any) -> None:
        self._native = native
        self._owner = owner  # the runtime, which lives as long as a world is held

    @property
    def size(self) -> int:
        """Ranks of the whole world, in its present epoch."""
        return self._native.size()

    @property
    def local_ranks(self) -> List[int]:
        """Those that live in this process, ascending."""
        return self._native.local_ranks()

    @property
    def epoch(self) -> int:
        """Counts the world's formings, from 1."""
        return self._native.epoch()

    @property
    def status(self) -> WorldEvent:
        return WorldEvent(**self._native.status())

    def events(self, heard: Callable[[WorldEvent], Any]) -> None:
        """Calls heard at every later change of phase, on a thread of the module's, in order, as long as it lives."""
        listen(self._native, lambda fields: heard(WorldEvent(**fields)))

    def rank(self, number: int) -> Rank:
        """One rank, asked by itself."""
        return Rank(self, number)

    def _collective(self, kind: str, tensors: Any, out: Any, given: Dict[str, Any]) -> Any:
        return self._world_request(kind, tensors, out, given)

    def prepare(self, kind: str, tensors: Any = None, out: Any = None, **given: Any) -> Request:
        """A request to be asked many times: prepare("all_reduce", tensors, op="max").ask().

        Operands are read and checked once. Each ask() waits, on the GPU, for what is in the streams of `stream` by then.
        """
        return self._world_request(kind, tensors, out, given, prepare=True)

    def group(self, **options: Any) -> Group:
        """Several operations as one: `with world.group() as all: all.all_reduce(x); all.transfer(0, y, 1, z)`."""
        return Group(self, split_options(options)[0])

    def split(self, groups: Mapping[str, Sequence[int]]) -> Dict[str, Optional["World"]]:
        """A world for each group of ranks, by name; None where none of its ranks lives in this process."""
        made = self._native.split({name: list(members) for name, members in groups.items()})
        return {name: None if one is None else World(one, self) for name, one in made.items()}

    def register_memory(self, nbytes: int) -> None:
        """Memory that all ranks know of, for small requests that are the faster for it: see troupe.empty_all()."""
        self._native.register_memory(nbytes)

    def suspend(self) -> List[int]:
        """Gives the communicators' device memory back; how many bytes on each local rank. Requests wait until resume()."""
        return self._native.suspend()

    def resume(self) -> None:
        """Takes that memory again and serves what waits; nothing where the world is not suspended."""
        self._native.resume()

    def capture(self, requests: Sequence[Request], deadline: Seconds = None) -> Any:
        """A plan of prepared requests to all ranks, launched by one message: replay(plan)."""
        return self._native.capture(list(requests), deadline)

    def replay(self, plan: Any, deadline: Seconds = None) -> Reply:
        return self._native.replay(plan, deadline)

    def stop(self) -> None:
        """Lets requests in flight finish, gives everything back and returns when that has ended."""
        self._native.stop()

    def __enter__(self) -> "World":
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def __iter__(self) -> Iterator[Rank]:
        return (self.rank(number) for number in self.local_ranks)

    def __repr__(self) -> str:
        return f"<troupe.World: {self.status.text}>"


def empty(world: Any, rank: int, shape: Any, dtype: Any = "float32") -> Any:
    """Memory of troupe's on the rank's device, contents undefined. Other libraries take it by DLPack, without a copy."""
    return world._native.empty(rank, _shape(shape), dtype)


def empty_all(world: World, shape: Any, dtype: Any = "float32") -> List[Any]:
    """One buffer for each local rank, of registered memory where there is some (World.register_memory())."""
    return world._native.empty_all(_shape(shape), dtype)


def empty_pinned(world: World, shape: Any, dtype: Any = "float32") -> Any:
    """Page-locked host memory that every local rank reaches; numpy.asarray() shows it."""
    return world._native.empty_pinned(_shape(shape), dtype)


def _shape(shape: Any) -> List[int]:
    return [shape] if isinstance(shape, int) else list(shape)
