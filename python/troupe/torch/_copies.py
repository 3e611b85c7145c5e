"""Brings ranks to one state after a fault: from a rank that has it, or from copies of sharded states in the memory of the next rank."""
from __future__ import annotations

import io
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from ._recovery import Resumed, commit

_KEPT = 2


class _Shard(NamedTuple):
    """This rank's part of a DTensor, without its mesh, which belongs to the process."""

    local: Tensor
    mesh: Tuple[Any, Any]
    placements: Tuple[Any, ...]
    shape: torch.Size
    stride: Tuple[int, ...]


class Copies:
    """Copies of each rank's part of a state at its last two commits: one here, and one in the memory of the next rank.

    So no state is lost when processes are, unless a rank and the next one are lost at the same time. The state is that of
    objects with state_dict() and load_state_dict(), for example a module of fully_shard() and its optimizer, whose DTensors
    are copied as the part that this rank has. All ranks of the default group call the same methods. Memory: up to six times a
    rank's part of the state.
    Errors: those of collectives. Threads: one.
    """

    def __init__(self) -> None:
        self._mine: Dict[int, Tensor] = {}  # by step
        self._others: Dict[int, Tensor] = {}  # of the rank before this one

    def commit(self, step: int, *objects: Any) -> None:
        """Copies the state after `step` steps. It counts when all ranks have made their copies."""
        packed = _pack([one.state_dict() for one in objects])
        group = dist.group.WORLD
        rank, size = group.rank(), group.size()
        sent = {(one, (one + 1) % size): packed if one == rank else None for one in range(size) if size > 1}
        received = _move(sent)
        # Kept before the outcome of the commit is known: it may succeed at other ranks although it fails here.
        self._mine[step] = packed
        self._others.update({step: one for one in received.values()})
        commit(step)
        for kept in (self._mine, self._others):
            for old in sorted(kept)[:-_KEPT]:
                del kept[old]

    def restore(self, now: Resumed, *objects: Any) -> int:
        """Loads the state of the last commit, and returns its step: 0, and nothing is loaded, if there is none.

        now: what resume() has returned, before any commit since. objects: as at the commit; they may be new ones.
        Errors: RuntimeError, at all ranks alike, if the processes that had a rank's copies have ended.
        """
        if now.commit is None:
            self._mine, self._others = {}, {}
            return 0
        step, group = now.commit, dist.group.WORLD
        rank, size = group.rank(), group.size()
        flags: List[Any] = [None] * size
        dist.all_gather_object(flags, (step in self._mine, step in self._others))
        missing = [one for one in range(size) if not flags[one][0]]
        gone = [one for one in missing if size == 1 or not flags[(one + 1) % size][1]]
        if gone:
            raise RuntimeError(f"the processes that had the state of ranks {gone} at step {step} have ended: load a checkpoint")
        came = _move({((one + 1) % size, one): self._others.get(step) if rank == (one + 1) % size else None for one in missing})
        for one in came.values():
            self._mine = {step: one}
        came = _move({(one, (one + 1) % size): self._mine[step] if rank == one else None
                      for one in range(size) if not flags[(one + 1) % size][1] and size > 1})
        for one in came.values():
            self._others = {step: one}
        # Without copies for a commit that failed: they would count as two later ones.
        self._mine, self._others = {step: self._mine[step]}, {step: one for at, one in self._others.items() if at == step}
        meshes = _meshes([one.state_dict() for one in objects])
        for one, state in zip(objects, _unpack(self._mine[step], meshes)):
            one.load_state_dict(state)
        return step


def share(now: Resumed, *objects: Any) -> int:
    """Loads the state of rank now.source at all others, and returns now.step, which it has: for states that are the same at all ranks.

    now: what resume() has returned. objects: those with state_dict() and load_state_dict() that make up the state, such as a
    module and its optimizer; whole, without DTensors. All ranks of the default group call it. Errors: those of broadcasts.
    """
    states: List[Any] = [[one.state_dict() for one in objects]]
    dist.broadcast_object_list(states, now.source)
    if dist.get_rank() != now.source:
        for one, state in zip(objects, states[0]):
            one.load_state_dict(state)
    return now.step


def _map(state: Any, change: Callable[[Any], Any]) -> Any:
    """Returns the state with each value that is no container changed."""
    if isinstance(state, dict):
        return {key: _map(value, change) for key, value in state.items()}
    if type(state) in (list, tuple):
        return type(state)(_map(value, change) for value in state)
    return change(state)


def _key(mesh: Any) -> Tuple[Any, Any]:
    return mesh.mesh.tolist(), mesh.mesh_dim_names


def _pack(state: Any) -> Tensor:
    """Returns the state as bytes."""

    def part(value: Any) -> Any:
        if isinstance(value, DTensor):
            return _Shard(value.to_local().detach(), _key(value.device_mesh), value.placements, value.shape, value.stride())
        return value

    written = io.BytesIO()
    torch.save(_map(state, part), written)
    return torch.frombuffer(bytearray(written.getbuffer()), dtype=torch.uint8)


def _meshes(state: Any) -> List[Any]:
    found: List[Any] = []
    _map(state, lambda value: found.append(value.device_mesh) if isinstance(value, DTensor) else None)
    return found


def _unpack(packed: Tensor, meshes: List[Any]) -> Any:
    def whole(value: Any) -> Any:
        if not isinstance(value, _Shard):
            return value
        mesh = next(one for one in meshes if _key(one) == value.mesh)
        return DTensor.from_local(value.local, mesh, value.placements, run_check=False, shape=value.shape, stride=value.stride)

    return _map(torch.load(io.BytesIO(packed.numpy().tobytes()), weights_only=False), whole)


def _move(bytes_of: "Dict[Tuple[int, int], Optional[Tensor]]") -> Dict[int, Tensor]:
    """Moves bytes by routes (source, destination), which all ranks name. Returns those for this rank, by source."""
    rank = dist.group.WORLD.rank()
    sizes = {route: torch.tensor([0 if held is None else held.numel()]) for route, held in bytes_of.items() if rank in route}
    _exchange({route: one for route, one in sizes.items()})
    moved = {route: bytes_of[route] if route[0] == rank else torch.empty(int(size), dtype=torch.uint8)
             for route, size in sizes.items()}
    _exchange(moved)
    return {source: one for (source, destination), one in moved.items() if destination == rank and one is not None}


def _exchange(tensors: "Dict[Tuple[int, int], Any]") -> None:
    rank = dist.group.WORLD.rank()
    works = [dist.isend(one, destination) if source == rank else dist.irecv(one, source)
             for (source, destination), one in sorted(tensors.items(), key=lambda item: item[0])]
    for work in works:
        work.wait()
