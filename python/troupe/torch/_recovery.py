"""Defines how a process group goes on after the loss of a process: docs/guide/torch.md#recovery, design record 0114."""
from __future__ import annotations

import datetime
import json
import threading
import time
import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

import torch
import torch.distributed as dist

from .._errors import Error
from .._world import WorldEvent
from ._failures import failure_of
from ._worlds import GroupWorld

#: The lane of all collectives: users of c10d make them in one order at all ranks.
COLLECTIVES = "c10d"
#: Contributions to agreements begin with the name of the call, so that ranks in different calls are noticed.
SPLIT, RESUME = b"split_group", b"resume"
_HOW_TO_GO_ON = ("; the process group is usable again after troupe.torch.resume(), at all ranks "
                 "(docs/guide/torch.md#recovery)")
_HOW_TO_RECOVER = ("; the world has ended for this process, and with it the process group. Under `troupe launch --policy keep_size` the "
                   "others go on with a new process in the place of a lost one (docs/guide/torch.md#recovery)")


class Resumed(NamedTuple):
    """Where the ranks of the default group continue: the same at all of them."""

    epoch: int  #: the epoch of the world: 1, and 1 more after each fault
    commit: Optional[int]  #: the number of the last commit() that all ranks have completed; None: there was none
    new: Tuple[int, ...]  #: the ranks without a state: processes that have started since, and those that have done no step
    step: int  #: the most steps that a rank has done
    source: int  #: a rank that has done them; one that is not new, if there is one


class Operand:
    """A tensor that troupe uses in place. It counts as in use until troupe has released it."""

    __slots__ = ("tensor", "_in_use")

    def __init__(self, tensor: torch.Tensor, in_use: Set[int]) -> None:
        self.tensor, self._in_use = tensor, in_use
        in_use.add(id(self))

    def __del__(self) -> None:
        self._in_use.discard(id(self))


class Epochs:
    """The epoch for which one rank makes requests in a group of a world that forms again. Threads: any."""

    def __init__(self, world: GroupWorld, parent: "Optional[Epochs]" = None) -> None:
        self._world, self._rank, self._native = world.world, world.rank, world.world._native
        self._root: Epochs = parent._root if parent is not None else self
        self._size = world.size
        self._first = self._world.epoch
        self._current = 0  # nothing has been requested yet
        self._acknowledged: Set[str] = set()
        self.in_use: Set[int] = set()  # operands of all groups since the last resume(); only the root's is used
        self._has_committed = False
        self._natives: "weakref.WeakSet[Any]" = weakref.WeakSet()  # backends whose native part makes requests; the root's are used
        self._native_uses: Any = None
        self.parts: List[Tuple[Tuple[int, ...], ...]] = []  # those of each split_group() of this world
        self.mine: List[List[int]] = []  # this rank's part in each of them

    def hold(self, tensor: torch.Tensor) -> Operand:
        return Operand(tensor, self._root.in_use)

    def add_native(self, backend: Any) -> None:
        """Tells of a backend whose native part makes requests without enter(), until leave_epoch()."""
        self._root._natives.add(backend)

    def native_uses(self, direct: Any) -> Any:
        """Returns what counts the requests of all groups' native parts that use tensors. direct: the module of the native part."""
        root = self._root
        if root._native_uses is None:
            root._native_uses = direct.Uses()
        return root._native_uses

    @property
    def native_in_use(self) -> int:
        """The number of these requests."""
        uses = self._root._native_uses
        return 0 if uses is None else int(uses.count())

    def enter(self, lane: str, timeout: datetime.timedelta) -> None:
        """Makes the next request in a lane one for the epoch in which the default group has been resumed.

        In a smaller group it waits, at most `timeout`, until all processes have made that group again.
        """
        root = self._root
        if root._current == 0:
            root._current = root._first
        if self is not root and self._current != root._current:
            self._world.wait_ready(timeout, after_epoch=root._current - 1)
            self._current, self._acknowledged = root._current, set()
        if lane not in self._acknowledged:
            self._native.acknowledge(self._rank, lane, self._current)
            self._acknowledged.add(lane)

    def advice(self) -> str:
        """Returns what the text of an error adds if the group's epoch has ended."""
        now = self._root._world.status
        if now.phase == "failed":
            return _HOW_TO_RECOVER
        return "" if now.phase == "ready" and now.epoch == self._root._current else _HOW_TO_GO_ON

    def require_current(self, call: str) -> None:
        """For calls that make groups, which no rank's epoch delays: they would wait for a process that has not made them yet.

        A process that has made no request yet makes its groups in any epoch. Errors: DistBackendError.
        """
        if self._root._current != 0 and (advice := self.advice()):
            raise dist.DistBackendError(f"{call}: {self._root._world.status.text}{advice}")

    def commit(self, step: int, timeout: datetime.timedelta) -> None:
        self.enter(COLLECTIVES, timeout)
        try:
            self._world.rank(self._rank).lane(COLLECTIVES).commit(step, deadline=timeout).result()
        except Error as why:
            raise failure_of("commit", why, timeout, self.advice()) from why
        self._has_committed = True

    def resume(self, step: int, timeout: datetime.timedelta) -> Resumed:
        """Makes the next epoch that of this rank's requests, and agrees with the other ranks on where they are."""
        until = time.monotonic() + timeout.total_seconds()
        while True:
            now = self._next_epoch(until, timeout)
            for one in list(self._natives):
                one.leave_epoch()
            self._current, self._acknowledged = now.epoch, set()
            left = datetime.timedelta(seconds=max(until - time.monotonic(), 0.001))
            mine = {"joined": now.epoch == self._first, "settled": step > 0 or self._has_committed, "step": step,
                    "parts": self.mine}
            try:
                said = self.gather(RESUME, json.dumps(mine).encode(), left)
            except Error as why:
                if not self._has_left(now.epoch):
                    raise failure_of("resume", why, timeout) from why
                continue  # another process was lost meanwhile
            self._await_operands(until, timeout)
            return self._agree(now, [json.loads(one) for one in said])

    def _next_epoch(self, until: float, timeout: datetime.timedelta) -> WorldEvent:
        now = self._world.status
        if now.phase == "ready" and now.epoch == self._current:
            raise ValueError(f"resume() in epoch {now.epoch}, in which this rank has made calls already, and which has had no fault: "
                             f"call it after an error that names it, or before all other calls of a new process")
        now = self._world.wait_ready(max(until - time.monotonic(), 0.001), after_epoch=self._current)
        if now.phase == "failed":
            raise dist.DistError(f"resume: {now.reason}{_HOW_TO_RECOVER}") from now.reason
        if now.phase != "ready" or now.epoch == self._current:
            raise dist.DistBackendError(f"resume: Timed out waiting {timeout.total_seconds() * 1000:.0f}ms: {now.text}")
        if (now.world_size, now.local_ranks) != (self._size, (self._rank,)):
            raise dist.DistError(f"resume: the world has {now.world_size} ranks now, and this process is rank {now.local_ranks}: a "
                                 f"process group keeps its {self._size} ranks. Start it by troupe launch --policy keep_size")
        return now

    def _has_left(self, epoch: int) -> bool:
        now = self._world.status
        return now.phase in ("rebuilding", "forming") or now.epoch != epoch

    def gather(self, call: bytes, mine: bytes, timeout: datetime.timedelta) -> List[bytes]:
        """Returns what each rank contributes to the same call. Errors: Error; DistBackendError if a rank is in another call."""
        self.enter(COLLECTIVES, timeout)
        lane = self._world.rank(self._rank).lane(COLLECTIVES)
        agreed = lane.agree("gather_all", call + b":" + mine, deadline=timeout).result().agreed
        assert agreed is not None
        said = [bytes(one).partition(b":") for one in agreed.parts]
        for rank, (other, _, _) in enumerate(said):
            if other != call:
                raise dist.DistBackendError(f"this rank is in {call.decode()}(), and rank {rank} is in {other.decode()}(): in each epoch "
                                            f"all ranks call troupe.torch.resume() first")
        return [one for _, _, one in said]

    def _agree(self, now: WorldEvent, said: List[Dict[str, Any]]) -> Resumed:
        for number in range(len(self.parts), max(len(one["parts"]) for one in said)):  # of earlier epochs
            self.parts.append(tuple(sorted({tuple(one["parts"][number]) for one in said if number < len(one["parts"])})))
        new = tuple(rank for rank, one in enumerate(said) if one["joined"] or not one["settled"])
        source = max(range(len(said)), key=lambda rank: (said[rank]["step"], rank not in new, -rank))
        point = now.resume_point(COLLECTIVES)
        return Resumed(now.epoch, None if point is None else point.commit, new, said[source]["step"], source)

    def _await_operands(self, until: float, timeout: datetime.timedelta) -> None:
        """Waits until no operation of an earlier epoch uses a tensor: it might still write to it."""
        before, self.in_use = self.in_use, set()
        while in_use := len(before) + self.native_in_use:
            if time.monotonic() > until:
                raise dist.DistBackendError(f"resume: Timed out waiting {timeout.total_seconds() * 1000:.0f}ms: operations of the epoch before still "
                                            f"run, or use tensors ({in_use})")
            time.sleep(0.0005)  # the interpreter drops what troupe has released


class Backward:
    """The first failure of a backward pass of autograd. It is raised when the pass has ended.

    DDP's and FSDP's hooks wait for operations in the middle of the pass. An error there would leave their state as it is in
    the middle, so that the model could not be used again. So such a wait returns, with undefined outputs.
    """

    _lock = threading.Lock()
    _running: "weakref.WeakValueDictionary[int, Backward]" = weakref.WeakValueDictionary()

    def __init__(self) -> None:
        self._failure: Optional[Exception] = None
        self._is_last = self._has_ended = False

    @classmethod
    def current(cls) -> "Optional[Backward]":
        """Returns the pass in which this thread is; None if it is in none."""
        task = torch._C._current_graph_task_id()
        if task < 0:
            return None
        with cls._lock:
            found = cls._running.get(task)
            if found is None:
                found = cls._running[task] = cls()
                found._call_at_end()
        return found

    def hold(self, failure: Exception) -> bool:
        """Raises it at the end of the pass. Returns False, and does nothing, if the pass has ended."""
        with self._lock:
            self._failure = self._failure or failure
            return not self._has_ended

    def _call_at_end(self) -> None:
        torch.autograd.Variable._execution_engine.queue_callback(self._end)

    def _end(self) -> None:
        if not self._is_last:  # those of DDP and FSDP have been queued meanwhile: after them
            self._is_last = True
            self._call_at_end()
            return
        with self._lock:
            self._has_ended = True
        if self._failure is not None:
            raise self._failure


def _default(call: str, step: int, timeout: Optional[datetime.timedelta]) -> Tuple[Epochs, datetime.timedelta]:
    """Returns the epochs of the default group, and the timeout of a call. Errors: ValueError."""
    if not isinstance(step, int) or step < 0:
        raise ValueError(f"{call}: step is {step!r} and must be a whole number of steps")
    if not dist.is_initialized():
        raise ValueError(f"{call}: there is no default process group, or it has been destroyed: call init_process_group() first")
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    if not hasattr(backend, "recovery_of"):
        raise ValueError(f"{call}: the default process group's backend for the CPU is {dist.get_backend()}, and only troupe's goes on "
                         f"after a loss")
    return backend.recovery_of(call), timeout or backend.options._timeout


def resume(step: int = 0, timeout: Optional[datetime.timedelta] = None) -> Resumed:
    """Continues in the next epoch of the default group, after an error that says so, and in a new process.

    All ranks call it: those of new processes first of all, the others after the error. It waits until a process has taken the
    place of each lost one. Groups, also smaller ones, are then usable as before. What ranks have of a common state is theirs
    to bring together: all take that of `source`, or go back to `commit`.
    step: how many steps of the program this process's state includes; 0: it has only been initialised.
    timeout: None is the group's.
    Errors: ValueError if there has been no fault, or the group is another backend's, or cannot go on; DistError, which is no
    DistBackendError, if the world has ended, so that a loop that catches those ends; DistBackendError if a process does not come in time.
    Threads: one, the main one, and no other one may use the group meanwhile.
    """
    epochs, limit = _default("resume", step, timeout)
    return epochs.resume(step, limit)


def commit(step: int, timeout: Optional[datetime.timedelta] = None) -> None:
    """States that this process has kept its state after `step` steps. All ranks call it; it returns when all have.

    After a fault the last such step is Resumed.commit, at all ranks alike. Ranks keep two states: a fault may end the call
    at some ranks only. Errors: DistBackendError.
    """
    epochs, limit = _default("commit", step, timeout)
    epochs.commit(step, limit)
