"""PyTorch's rendezvous `env://` in processes of `troupe launch`, where a process can be lost and another one take its place.

PyTorch's own store is in the process of rank 0 and ends with it. Here it is a file of the job; and a process that stands by
learns its rank when it takes the place of a lost one.
"""
from __future__ import annotations

import datetime
import hashlib
import importlib
import os
import pathlib
import tempfile
from typing import Any, Iterator, Tuple
from urllib.parse import parse_qs, urlparse

import torch.distributed as dist

from .._errors import refuse
from ._worlds import GroupWorld


def is_launched() -> bool:
    return all(os.environ.get(name) for name in ("TROUPE_CONTROL", "TROUPE_JOIN_TOKEN", "TROUPE_PROCESS"))


def _store_of_the_job(size: int) -> Any:
    """Returns a store that no process has: its locks end with their process."""
    folder = pathlib.Path(tempfile.gettempdir()) / f"troupe-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o77:
        raise refuse(f"{folder} must be a folder of this user alone: it is for the stores of process groups")
    name = hashlib.sha256(os.environ["TROUPE_JOIN_TOKEN"].encode()).hexdigest()[:32]
    return dist.FileStore(str(folder / f"store-{name}"), size)


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
    yield _store_of_the_job(size), rank, size
    raise RuntimeError("Unable to perform re-rendezvous using env:// method")


_handlers = importlib.import_module("torch.distributed.rendezvous")._rendezvous_handlers  # torch.distributed has a function of that name
_pytorchs = _handlers["env"]


def register() -> None:
    _handlers["env"] = _rendezvous
