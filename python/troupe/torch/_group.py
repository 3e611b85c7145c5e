"""Defines the process group, and registers the backend with PyTorch."""
from __future__ import annotations

import datetime
from typing import Any, List, Optional, Sequence

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from .._errors import Error
from . import _launched
from ._backend import TroupeBackend
from ._failures import failure_of
from ._reconfigure import ReconfigurableBackend
from ._variables import warn_of_the_rest
from ._worlds import GroupWorld


class TroupeGroup(dist.ProcessGroup):  # type: ignore[misc]
    """A process group whose only backend is troupe's.

    PyTorch wraps the Work of a backend in Python in an object that forwards wait() and get_future() alone. This class
    returns the Work itself, which has the rest. Everything else is PyTorch's ProcessGroup: its hooks, its dispatcher, its
    registry. The names of the methods matter: by the name of the calling function pybind11 recognises that a method calls
    the one that it overrides.
    """

    def __init__(self, store: Any, backend: TroupeBackend) -> None:
        self._backend = backend
        super().__init__(store, backend.current_rank, backend.current_size)
        self._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        self._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.CUSTOM, backend)
        if backend.recovers and not backend.is_part:
            self.new_group = self._new_group  # PyTorch's new_group() calls it then, also at ranks that are no members

    def _new_group(self, ranks: Sequence[int], timeout: Optional[datetime.timedelta] = None, backend: Any = None,
                   pg_options: Any = None, group_name: str = "", group_desc: Optional[str] = None) -> Any:
        """Makes a smaller group, for torch.distributed.new_group(): a part of this one, so that it has its epochs.

        All ranks call it; one that is no member gets None.
        """
        members, rank = list(ranks), self.rank()
        if str(backend) not in ("troupe", "cpu:troupe"):
            return _group_of_another_backend(members, rank, backend, pg_options, group_name, timeout, group_desc)
        assert timeout is not None
        made = self._backend.group_of(members, timeout)
        return None if made is None else self._smaller(made, group_name, group_desc)

    def _smaller(self, backend: TroupeBackend, name: Optional[str], desc: Optional[str]) -> "TroupeGroup":
        group = TroupeGroup(dist.PrefixStore(f"{name}/", self.get_group_store()), backend)
        group._set_group_name(name or "")
        group._set_group_desc(desc or "undefined")
        return group

    def getBackendName(self) -> str:
        return "troupe"

    def getRank(self) -> int:  # PyTorch's would not see that reconfigure() has changed it
        return self._backend.current_rank

    def getSize(self) -> int:
        return self._backend.current_size

    def _work(self, made: Any) -> Any:
        """Returns the Work that the backend has just made in this thread, of which `made` is PyTorch's wrapper."""
        of_thread = self._backend.of_thread
        work, of_thread.work = of_thread.work, None
        return made if work is None else work  # PyTorch answers for tensors without memory by itself

    def broadcast(self, *args: Any, **named: Any) -> Any:
        return self._work(super().broadcast(*args, **named))

    def allreduce(self, *args: Any, **named: Any) -> Any:
        return self._work(super().allreduce(*args, **named))

    def allreduce_coalesced(self, *args: Any, **named: Any) -> Any:
        return self._work(super().allreduce_coalesced(*args, **named))

    def reduce(self, *args: Any, **named: Any) -> Any:
        return self._work(super().reduce(*args, **named))

    def allgather(self, *args: Any, **named: Any) -> Any:
        return self._work(super().allgather(*args, **named))

    def allgather_coalesced(self, *args: Any, **named: Any) -> Any:
        return self._work(super().allgather_coalesced(*args, **named))

    def all_gather_single(self, *args: Any, **named: Any) -> Any:
        return self._work(super().all_gather_single(*args, **named))

    def all_gather_single_coalesced(self, *args: Any, **named: Any) -> Any:
        return self._work(super().all_gather_single_coalesced(*args, **named))

    def gather(self, *args: Any, **named: Any) -> Any:
        return self._work(super().gather(*args, **named))

    def gather_single(self, output: Any, input: Any, opts: Any) -> Any:
        return self._work(self._backend.gather_single(output, input, opts))  # PyTorch calls no backend in Python for it

    def scatter(self, *args: Any, **named: Any) -> Any:
        return self._work(super().scatter(*args, **named))

    def reduce_scatter(self, *args: Any, **named: Any) -> Any:
        return self._work(super().reduce_scatter(*args, **named))

    def reduce_scatter_single(self, *args: Any, **named: Any) -> Any:
        return self._work(super().reduce_scatter_single(*args, **named))

    def reduce_scatter_single_coalesced(self, *args: Any, **named: Any) -> Any:
        return self._work(super().reduce_scatter_single_coalesced(*args, **named))

    def all_to_all_single(self, *args: Any, **named: Any) -> Any:
        return self._work(super().all_to_all_single(*args, **named))

    def alltoall(self, *args: Any, **named: Any) -> Any:
        return self._work(super().alltoall(*args, **named))

    def barrier(self, *args: Any, **named: Any) -> Any:
        return self._work(super().barrier(*args, **named))

    def send(self, *args: Any, **named: Any) -> Any:
        return self._work(super().send(*args, **named))

    def recv(self, *args: Any, **named: Any) -> Any:
        return self._work(super().recv(*args, **named))

    def _end_coalescing(self, *args: Any, **named: Any) -> Any:
        return self._work(super()._end_coalescing(*args, **named))

    def split_group(self, ranks: Sequence[int], timeout: Optional[datetime.timedelta] = None, opts: Any = None,
                    group_name: Optional[str] = None, group_desc: Optional[str] = None,
                    device_types: Any = None) -> Optional["TroupeGroup"]:
        """Splits the group: see torch.distributed.split_group(). All ranks call it; one in no part gets None."""
        if timeout is None:
            timeout = self._backend.options._timeout if opts is None else opts._timeout
        backend = self._backend.part(ranks, timeout)
        return None if backend is None else self._smaller(backend, group_name, group_desc)


def _group_of_another_backend(ranks: List[int], rank: int, backend: Any, pg_options: Any, name: str,
                              timeout: Optional[datetime.timedelta], desc: Optional[str]) -> Any:
    """Makes a group as PyTorch does where the default group makes none, and leaves its registration to PyTorch."""
    made, _ = c10d._new_process_group_helper(len(ranks), ranks.index(rank) if rank in ranks else None, ranks, backend,
                                             c10d._get_default_store(), name, backend_options=pg_options, timeout=timeout, group_desc=desc)
    if made is dist.GroupMember.NON_GROUP_MEMBER:
        return None
    c10d._unregister_process_group(name)
    for groups in c10d._world.tags_to_pg.values():
        if made in groups:
            groups.remove(made)
    return made


def make_backend(options: Any, backend_options: Any) -> Any:
    """Makes the backend of a new process group in this process. c10d calls it. Returns a group if it has no other backend."""
    group = options.process_group
    is_alone = not group._device_types and group.name() == "custom"
    if options.enable_reconfigure:
        if not is_alone:
            raise ValueError("enable_reconfigure: a group with other backends for other devices cannot be reconfigured")
        return TroupeGroup(group.get_group_store(),
                           ReconfigurableBackend(options.group_rank, options.group_size, options.timeout))
    try:
        world = GroupWorld.form(options.store, options.group_rank, options.group_size, options.timeout,
                                is_default=not options.global_ranks_in_group)
    except Error as why:
        raise failure_of(f"the process group {options.group_id!r} of {options.group_size} ranks", why, forms=True) from why
    backend = TroupeBackend(world, options.timeout)
    if is_alone:
        warn_of_the_rest()
    return TroupeGroup(group.get_group_store(), backend) if is_alone else backend


def register() -> None:
    """Registers the backend "troupe". PyTorch calls it by an entry point, so that programs need no import."""
    if "TROUPE" not in dist.Backend._plugins:
        dist.Backend.register_backend("troupe", make_backend, extended_api=True, devices=["cpu"])
        _launched.register()
