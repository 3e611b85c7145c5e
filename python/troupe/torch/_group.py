"""Defines the process group, and registers the backend with PyTorch."""
from __future__ import annotations

import datetime
from typing import Any, List, Mapping, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from .._errors import Error
from . import _launched
from ._backend import TroupeBackend
from ._cuda import devices_of_call, gpu_of_rank
from ._failures import failure_of
from ._reconfigure import ReconfigurableBackend
from ._variables import warn_of_the_rest
from ._worlds import GroupWorld


class TroupeGroup(dist.ProcessGroup):  # type: ignore[misc]
    """A process group whose only backend is troupe's.

    PyTorch wraps the Work of a backend in Python in an object that forwards wait() and get_future() alone. This class
    returns the Work itself, which has the rest, where a native part of the backend does not do so. Everything else is PyTorch's ProcessGroup: its hooks, its dispatcher, its
    registry. The names of the methods matter: by the name of the calling function pybind11 recognises that a method calls
    the one that it overrides.
    """

    def __init__(self, store: Any, backend: TroupeBackend, devices: Sequence[str] = ("cpu",),
                 others: Mapping[str, Tuple[str, Any]] = {}) -> None:
        """devices: the types of devices of this backend. others: names and backends of the other types of devices."""
        self._backend, self._devices, self._others = backend, tuple(devices), dict(others)
        super().__init__(store, backend.current_rank, backend.current_size)
        self._set_default_backend(dist.ProcessGroup.BackendType.CUSTOM)
        for device in devices:
            self._register_backend(torch.device(device), dist.ProcessGroup.BackendType.CUSTOM, backend)
        for device, (name, other) in others.items():
            kind = dist.Backend.backend_type_map.get(name, dist.ProcessGroup.BackendType.CUSTOM)
            self._register_backend(torch.device(device), kind, other)
        if (backend.recovers and not backend.is_part) or backend.gpu is not None:
            self.new_group = self._new_group  # PyTorch's new_group() calls it then, also at ranks that are no members

    def _new_group(self, ranks: Sequence[int], timeout: Optional[datetime.timedelta] = None, backend: Any = None,
                   pg_options: Any = None, group_name: str = "", group_desc: Optional[str] = None) -> Any:
        """Makes a smaller group, for torch.distributed.new_group(): a part of this one, so that it has its epochs.

        All ranks call it; one that is no member gets None.
        """
        members, rank = list(ranks), self.rank()
        wanted = c10d.BackendConfig(backend).get_device_backend_map()
        if "troupe" not in wanted.values():
            return _group_of_another_backend(members, rank, backend, pg_options, group_name, timeout, group_desc)
        if any(name != self._others.get(device, ("troupe",))[0] for device, name in wanted.items()):
            raise ValueError(f"new_group() was given the backends '{backend}', and a group with the backend troupe is a part of the "
                             f"default group: give a subset of its backends")
        assert timeout is not None
        made = self._backend.group_of(members, timeout)
        return None if made is None else self._smaller(made, members, list(wanted), timeout, group_name, group_desc)

    def _smaller(self, backend: TroupeBackend, ranks: List[int], devices: Sequence[str], timeout: datetime.timedelta,
                 name: Optional[str], desc: Optional[str]) -> "TroupeGroup":
        """ranks: the members, as numbered in the default group."""
        others = {}
        for device, (kind, _) in self._others.items():
            if device in devices:
                other = _group_of_another_backend(ranks, dist.get_rank(), f"{device}:{kind}", None, f"{name}/{device}", timeout, desc)
                others[device] = kind, other._get_backend(torch.device(device))
        group = _group_of(dist.PrefixStore(f"{name}/", self.get_group_store()), backend,
                          [one for one in self._devices if one in devices], others)
        group._set_group_name(name or "")
        group._set_group_desc(desc or "undefined")
        return group

    @property
    def backend(self) -> TroupeBackend:
        """What makes the requests."""
        return self._backend

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

    def allreduce_coalesced(self, *args: Any, **named: Any) -> Any:
        return self._work(super().allreduce_coalesced(*args, **named))

    def allgather(self, *args: Any, **named: Any) -> Any:
        return self._work(super().allgather(*args, **named))

    def allgather_coalesced(self, *args: Any, **named: Any) -> Any:
        return self._work(super().allgather_coalesced(*args, **named))

    def all_gather_single_coalesced(self, *args: Any, **named: Any) -> Any:
        return self._work(super().all_gather_single_coalesced(*args, **named))

    def gather(self, *args: Any, **named: Any) -> Any:
        return self._work(super().gather(*args, **named))

    def gather_single(self, output: Any, input: Any, opts: Any) -> Any:
        if input.device.type in self._others:
            return super().gather_single(output, input, opts)
        return self._work(self._backend.gather_single(output, input, opts))  # PyTorch calls no backend in Python for it

    def scatter(self, *args: Any, **named: Any) -> Any:
        return self._work(super().scatter(*args, **named))

    def reduce_scatter(self, *args: Any, **named: Any) -> Any:
        return self._work(super().reduce_scatter(*args, **named))

    def reduce_scatter_single_coalesced(self, *args: Any, **named: Any) -> Any:
        return self._work(super().reduce_scatter_single_coalesced(*args, **named))

    def alltoall(self, *args: Any, **named: Any) -> Any:
        return self._work(super().alltoall(*args, **named))

    def _end_coalescing(self, *args: Any, **named: Any) -> Any:
        return self._work(super()._end_coalescing(*args, **named))

    def split_group(self, ranks: Sequence[int], timeout: Optional[datetime.timedelta] = None, opts: Any = None,
                    group_name: Optional[str] = None, group_desc: Optional[str] = None,
                    device_types: Any = None) -> Optional["TroupeGroup"]:
        """Splits the group: see torch.distributed.split_group(). All ranks call it; one in no part gets None."""
        if timeout is None:
            timeout = self._backend.options._timeout if opts is None else opts._timeout
        backend = self._backend.part(ranks, timeout)
        if backend is None:
            return None
        devices = [*self._devices, *self._others] if device_types is None else [torch.device(one).type for one in device_types]
        members = dist.get_process_group_ranks(self)
        return self._smaller(backend, [members[one] for one in ranks], devices, timeout, group_name, group_desc)


class _WrappedGroup(TroupeGroup):
    """The group of a backend without a native part: all its works are of Python."""

    def broadcast(self, *args: Any, **named: Any) -> Any:
        return self._work(super().broadcast(*args, **named))

    def allreduce(self, *args: Any, **named: Any) -> Any:
        return self._work(super().allreduce(*args, **named))

    def reduce(self, *args: Any, **named: Any) -> Any:
        return self._work(super().reduce(*args, **named))

    def all_gather_single(self, *args: Any, **named: Any) -> Any:
        return self._work(super().all_gather_single(*args, **named))

    def reduce_scatter_single(self, *args: Any, **named: Any) -> Any:
        return self._work(super().reduce_scatter_single(*args, **named))

    def all_to_all_single(self, *args: Any, **named: Any) -> Any:
        return self._work(super().all_to_all_single(*args, **named))

    def barrier(self, *args: Any, **named: Any) -> Any:
        return self._work(super().barrier(*args, **named))

    def send(self, *args: Any, **named: Any) -> Any:
        return self._work(super().send(*args, **named))

    def recv(self, *args: Any, **named: Any) -> Any:
        return self._work(super().recv(*args, **named))


def _group_of(store: Any, backend: TroupeBackend, devices: Sequence[str], others: Mapping[str, Tuple[str, Any]] = {}) -> TroupeGroup:
    """Makes the group of a backend. An override in Python costs small operations a tenth of their time."""
    return (TroupeGroup if backend.is_native else _WrappedGroup)(store, backend, devices, others)


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
    names = devices_of_call("cpu")
    devices = [device for device, name in names.items() if name == "troupe"]
    made = {one.type for one in group._device_types}
    is_last = all(device in made for device in names if device not in devices)
    if options.enable_reconfigure:
        if len(devices) < len(names):
            raise ValueError("enable_reconfigure: a group with other backends for other devices cannot be reconfigured")
        return _group_of(group.get_group_store(),
                         ReconfigurableBackend(options.group_rank, options.group_size, options.timeout), devices)
    gpu = gpu_of_rank(devices, group.bound_device_id)
    try:
        world = GroupWorld.form(options.store, options.group_rank, options.group_size, options.timeout,
                                is_default=not options.global_ranks_in_group, gpu=gpu)
    except Error as why:
        raise failure_of(f"the process group {options.group_id!r} of {options.group_size} ranks", why, forms=True) from why
    backend = TroupeBackend(world, options.timeout)
    if not is_last:
        return backend
    if len(devices) == len(names):
        warn_of_the_rest(gpu is not None)
    others = {device: (name, group._get_backend(torch.device(device))) for device, name in names.items() if name != "troupe"}
    return _group_of(group.get_group_store(), backend, devices, others)


def register() -> None:
    """Registers the backend "troupe". PyTorch calls it by an entry point, so that programs need no import."""
    if "TROUPE" not in dist.Backend._plugins:
        dist.Backend.register_backend("troupe", make_backend, extended_api=True, devices=["cpu", "cuda"])
        _launched.register()
