"""PyTorch's rendezvous `env://` in processes of `troupe launch`, where a process can be lost and another one take its place.

PyTorch's own store is in the process of rank 0 and ends with it. Here it is a file of the job; and a process that stands by
learns its rank when it takes the place of a lost one.
"""
from __future__ import annotations

import datetime
import fcntl
import hashlib
import importlib
import multiprocessing.util
import os
import pathlib
import tempfile
from typing import Any, Dict, Iterator, Optional, Tuple
from urllib.parse import parse_qs, urlparse

import torch.distributed as dist

from .._errors import refuse
from ._worlds import GroupWorld


def is_launched() -> bool:
    return all(os.environ.get(name) for name in ("TROUPE_CONTROL", "TROUPE_JOIN_TOKEN", "TROUPE_PROCESS"))


def _locked(path: pathlib.Path, how: int) -> Optional[int]:
    """Returns a descriptor that has locked the file. None if it has been removed meanwhile, or if another one has locked it."""
    held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, how)
        if path.exists() and os.path.samestat(os.fstat(held), path.stat()):
            return held
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(held)
    return None


class _StoresOfJobs:
    """The files of stores. Each process of a job shares the lock of a file beside its store's; a store that no process uses is removed."""

    def __init__(self) -> None:
        self._used: Dict[pathlib.Path, int] = {}

    def use(self, store: pathlib.Path) -> None:
        """Keeps the file until this process has ended, also by a signal. Removes those of jobs that have ended."""
        if not self._used:
            multiprocessing.util.Finalize(None, self._leave, exitpriority=0)
        lock = store.with_suffix(".lock")
        while lock not in self._used:
            if (held := _locked(lock, fcntl.LOCK_SH)) is not None:
                self._used[lock] = held
        self._remove_unused(store.parent)

    def _leave(self) -> None:
        for lock, held in self._used.items():
            os.close(held)
            self._remove_unused(lock.parent)
        self._used = {}

    @staticmethod
    def _remove_unused(folder: pathlib.Path) -> None:
        for lock in folder.glob("store-*.lock"):
            if (held := _locked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)) is not None:
                for one in (lock.with_suffix(""), lock):
                    one.unlink(missing_ok=True)
                os.close(held)


_stores = _StoresOfJobs()


def _store_of_the_job() -> Any:
    """Returns a store that no process has: its locks end with their process."""
    folder = pathlib.Path(tempfile.gettempdir()) / f"troupe-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o77:
        raise refuse(f"{folder} must be a folder of this user alone: it is for the stores of process groups")
    store = folder / f"store-{hashlib.sha256(os.environ['TROUPE_JOIN_TOKEN'].encode()).hexdigest()[:32]}"
    _stores.use(store)
    return dist.FileStore(str(store))  # without the number of its users: it would wait for those that were killed to remove the file


def _rendezvous(url: str, timeout: datetime.timedelta = datetime.timedelta(minutes=30), **named: Any) -> Iterator[Tuple[Any, int, int]]:
    """Answers as PyTorch's handler of env:// does, which it calls in processes that troupe has not launched."""
    if not is_launched():
        yield from _pytorchs(url, timeout=timeout, **named)
        return
    given = {name: int(values[0]) for name, values in parse_qs(urlparse(url).query).items() if name in ("rank", "world_size")}
    is_later = os.environ.get("TROUPE_SPARE") or os.environ.get("TROUPE_ATTEMPT", "0") != "0"
    if "rank" not in given and is_later:  # it may take the place of any rank
        world = GroupWorld.stand_by(timeout)
        rank, size = world.rank, world.size
    else:
        rank = given["rank"] if "rank" in given else int(os.environ["RANK"])
        size = given["world_size"] if "world_size" in given else int(os.environ["WORLD_SIZE"])
    yield _store_of_the_job(), rank, size
    raise RuntimeError("Unable to perform re-rendezvous using env:// method")


_handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers  # torch.distributed has a function of that name
_pytorchs = _handlers["env"]


def register() -> None:
    _handlers["env"] = _rendezvous
