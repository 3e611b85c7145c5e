"""Forms the world of a process group: a rank in each process, and the controller in the process of rank 0.

The processes find each other through the store that PyTorch passes to a backend. TROUPE_CONTROL names another controller,
as under `troupe launch`; then the default group is that controller's world.
"""
from __future__ import annotations

import contextlib
import datetime
import json
import multiprocessing.util
import os
import socket
import threading
import warnings
import weakref
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch.distributed as dist

from .. import _troupe
from .._controller import Controller
from .._errors import Error, Stopping, refuse
from .._runtime import Runtime
from .._world import World
from ._cuda import Gpu, gpu_of_rank
from ._variables import settings_of

#: How long the controller outlives the group in the process of rank 0, while other ranks still use it.
_PATIENCE = datetime.timedelta(seconds=30)
#: How much later than the controller a process gives up while the world forms: the controller says who is missing.
_VERDICT = datetime.timedelta(seconds=2)
#: About the longest limit of troupe's settings.
_LONGEST = datetime.timedelta(days=364)
#: More requests than a program can have waiting: c10d bounds them by their timeout only.
_NO_LIMIT = 1_000_000_000
#: Variables by which a launcher describes the whole job, and TROUPE_CONTROL….
_OF_THE_JOB = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TROUPE_PLACE",
               "TROUPE_DEVICE", "TROUPE_SPARE", "TROUPE_ATTEMPT", "TROUPE_RANKS")
_JOINING = ("TROUPE_JOIN_TOKEN", "TROUPE_PROCESS")

Variables = Dict[str, str]


def _settings(timeout: datetime.timedelta, on_gpu: bool) -> Dict[str, Any]:
    """Returns the settings of a group's runtime. Variables of the environment come before these defaults."""
    limit = min(timeout, _LONGEST)
    defaults: Dict[str, Any] = {
        "backend": "nccl" if on_gpu else "gloo", "profile": "balanced" if on_gpu else "frugal", "mock.devices": 1, "mock.memory_bytes": "256G", "deadlines.operation": limit,
        "deadlines.form": limit + _VERDICT, "limits.pending_operations": 0, **settings_of(os.environ)}
    return {name: value for name, value in defaults.items()
            if "TROUPE_" + name.replace(".", "_").upper() not in os.environ}


def _is_for_joining(name: str) -> bool:
    return name.startswith("TROUPE_CONTROL") or name in _JOINING


def _environment(joining: Variables) -> Variables:
    """Returns this process's environment without what describes the whole job, and with `joining`."""
    kept = {name: value for name, value in os.environ.items() if name not in _OF_THE_JOB and not _is_for_joining(name)}
    return dict(kept, **joining)


def _joining() -> Variables:
    """Returns the variables by which this process joins the controller that TROUPE_CONTROL names; none without it."""
    if not os.environ.get("TROUPE_CONTROL"):
        return {}
    return {name: value for name, value in os.environ.items() if _is_for_joining(name)}


#: The worlds that this process has formed on GPUs, each with its sub-worlds.
_on_gpus: "weakref.WeakSet[GroupWorld]" = weakref.WeakSet()


def _require_alone_on(gpu: int) -> None:
    """Two worlds on a GPU would have two orders: each could wait for a kernel of the other (ORD-3)."""
    if any(one.gpu is not None and one.gpu.index == gpu and one.is_open for one in _on_gpus):
        raise ValueError(f"this process has a process group of the backend troupe on cuda:{gpu}, and another one that is not a part of it "
                         f"would have another order on that GPU: let the default group be troupe's, with its device named last as in "
                         f"'cpu:gloo,cuda:troupe', so that new_group() and split_group() make parts of it")


def _noted(world: "GroupWorld") -> "GroupWorld":
    _on_gpus.add(world)
    return world


#: The world that this process has stood by for, until the default group takes it.
_awaited: "List[GroupWorld]" = []


class GroupWorld:
    """One rank of the world of a process group, with what this process has of it. Threads: any."""

    def __init__(self, world: World, runtime: Optional[Runtime], controller: Optional[Controller], recovers: bool,
                 gpu: Optional[Gpu] = None) -> None:
        self.world, self.recovers, self.gpu = world, recovers, gpu
        self._runtime, self._controller, self.is_open = runtime, controller, True
        self.rank, = world.local_ranks
        self.size = world.size

    @staticmethod
    def form(store: Any, rank: int, size: int, timeout: datetime.timedelta, *, is_default: bool,
             gpu: Optional[int] = None) -> "GroupWorld":
        """Forms the world, on the GPU with this index or of the CPU. All processes of the group call it.

        Errors: those of troupe; DistStoreError; ValueError if this process has a world on the GPU.
        """
        if is_default and _awaited:
            awaited = _awaited.pop()
            if (awaited.gpu is None) != (gpu is None):
                awaited.close()
                raise ValueError("this process stood by for a world of the CPU or of GPUs, before the script said which, and it was the "
                                 "other: set TROUPE_BACKEND to 'gloo' or 'nccl' for all processes")
            return awaited
        if gpu is not None:
            _require_alone_on(gpu)
        joining = _joining() if is_default else {}
        joins = bool(joining)
        controller: Optional[Controller] = None
        runtime: Optional[Runtime] = None
        try:
            if not joining and size > 1:
                joining, controller, key = _meet(store, rank, size, timeout)
            if joining:
                joining.update(TROUPE_PLACE=str(rank), TROUPE_DEVICE=str(gpu or 0))
            runtime = Runtime(environment=_environment(dict(joining, RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK="0")),
                              ranks=0 if joining else 1, **_settings(timeout, gpu is not None))
            world = runtime.form_world(devices=None if gpu is None or joining else [gpu])
            if (world.local_ranks, world.size) != ([rank], size):
                raise refuse(f"TROUPE_CONTROL is the controller of a world of {world.size} ranks, in which this process has "
                             f"{world.local_ranks}, and the group needs rank {rank} of {size}: start as many processes as "
                             f"the group has ranks")
            if controller is not None:  # all have joined
                with contextlib.suppress(RuntimeError):  # of a store that removes nothing
                    store.delete_key(key)
            return _noted(GroupWorld(world, runtime, controller, joins, None if gpu is None else Gpu(gpu)))
        except BaseException:
            for one in (runtime, controller):
                if one is not None:
                    one.close()
            raise

    @staticmethod
    def stand_by(timeout: datetime.timedelta) -> "GroupWorld":
        """Joins the launcher's world as a spare, or in the place of a process that was lost, unless another has taken it.

        It waits, a spare without a limit, until it has a rank. The default group takes the world. If the world ends before, the
        process ends with status 0.
        """
        kept = {name: os.environ[name] for name in ("TROUPE_PLACE", "TROUPE_SPARE", "TROUPE_ATTEMPT", "RANK", "WORLD_SIZE")
                if name in os.environ}
        if "RANK" in kept:
            kept["LOCAL_RANK"] = "0"
        gpu = gpu_of_rank(("cpu", "cuda"), None)
        runtime = Runtime(environment=_environment(dict(_joining(), **kept, TROUPE_DEVICE=str(gpu or 0))), ranks=0,
                          **_settings(timeout, gpu is not None))
        try:
            made = _noted(GroupWorld(runtime.form_world(), runtime, None, True, None if gpu is None else Gpu(gpu)))
        except BaseException as why:
            runtime.close()
            if isinstance(why, Stopping):  # the others have done the work
                raise SystemExit(0) from why
            raise
        _awaited.append(made)
        return made

    def split(self, groups: Mapping[str, Sequence[int]], own: Optional[str]) -> Optional["GroupWorld"]:
        """Splits the world, and returns the part called `own`, if any. All processes name the same groups."""
        made = self.world.split(groups)
        world = None if own is None else made[own]
        return None if world is None else GroupWorld(world, None, None, self.recovers, self.gpu)

    def close(self) -> None:
        """Ends this rank's part. The controller stays until all ranks have left, without blocking this call."""
        try:
            if self._runtime is None:
                self.world.stop()
            else:
                self._runtime.close()
        finally:
            self.is_open = False
            del self.world  # the device ends with the last reference
            if self._controller is not None:
                _lingering.add(self._controller)
                self._controller = None


def _meet(store: Any, rank: int, size: int, timeout: datetime.timedelta) -> Tuple[Variables, Optional[Controller], str]:
    """Returns the variables with which this process joins the group's controller, in rank 0 the controller, and the key that has them."""
    # A store may outlive a group, and the next group of this name must not find the controller of this one.
    attempt = store.add(f"troupe/attempts/{rank}", 1)
    key = f"troupe/controller/{attempt}"
    if rank == 0:
        try:
            controller = Controller(size, policy="fail_fast", rebuilds=0, gather=min(timeout, _LONGEST), lead=_NO_LIMIT)
        except Error as why:
            store.set(key, json.dumps({"error": str(why)}))
            raise
        joining = controller.joining()
        store.set(key, json.dumps({"host": socket.gethostname(), "joining": joining}))
        return joining, controller, key
    try:
        store.wait([key], timeout)
    except RuntimeError as why:
        raise dist.DistStoreError(f"rank 0 of this group has not started its controller within {timeout.total_seconds():g} s: "
                                  f"is its process there, and does it make this group? ({why})") from why
    found = json.loads(store.get(key))
    if "error" in found:
        raise refuse(f"rank 0 could not start the controller of this group: {found['error']}", "world_failed")
    if found["host"] != socket.gethostname():
        raise refuse(f"rank 0 is on host {found['host']} and rank {rank} on {socket.gethostname()}: its controller listens on "
                     f"loopback; start one with certificates, and give its TROUPE_CONTROL to all processes "
                     f"(docs/clusters.md), and make smaller groups by split_group()", "unsupported")
    return found["joining"], None, key


class _LingeringControllers:
    """Controllers whose own rank has left. Each ends when the other ranks have left, or with the process."""

    def __init__(self) -> None:
        self._process = 0
        self._threads: List[threading.Thread] = []

    def add(self, controller: Controller) -> None:
        def linger() -> None:
            if not controller.wait(_PATIENCE):
                warnings.warn(f"rank 0 of a process group has left it, and other ranks have not within "
                              f"{_PATIENCE.total_seconds():g} s: its controller ends, and so does their group")
            controller.close()

        if self._process != os.getpid():  # the first one, or the first one of a fork
            self._process, self._threads = os.getpid(), []
            multiprocessing.util.Finalize(None, self.end, exitpriority=0)  # children of multiprocessing skip atexit's
        self._threads = [one for one in self._threads if one.is_alive()]
        self._threads.append(threading.Thread(target=linger, name="troupe.controller", daemon=True))
        self._threads[-1].start()

    def end(self) -> None:
        for one in self._threads:
            one.join()


_lingering = _LingeringControllers()
