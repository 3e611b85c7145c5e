"""Defines a backend whose members the program changes: PyTorch's experimental get_reconfigure_handle() and reconfigure()."""
from __future__ import annotations

import datetime
import json
import os
import secrets
import threading
from typing import Any, List, Optional, Set

import torch.distributed as dist

from .._errors import Error
from ._backend import TroupeBackend
from ._failures import failure_of
from ._worlds import GroupWorld

_HOST = "127.0.0.1"  # controllers of groups listen on loopback


class _Formed(dist.Work):  # type: ignore[misc]
    """The reconfiguration, which has ended when reconfigure() returns."""

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def is_success(self) -> bool:
        return True

    def exception(self) -> None:
        return None


class ReconfigurableBackend(TroupeBackend):
    """A rank of a group that init_process_group(enable_reconfigure=True) has made: it is formed by reconfigure().

    A handle has the address of a store in its process. The members meet in that of the first one.
    """

    def __init__(self, rank: int, size: int, timeout: datetime.timedelta) -> None:
        self._begin(rank, size, timeout)
        self._options.enable_reconfigure = True
        self._epochs, self._rank, self._size = None, rank, size
        self._formed: Optional[GroupWorld] = None
        self._used: Set[int] = set()
        self._store = dist.TCPStore(_HOST, 0, is_master=True, wait_for_workers=False, timeout=timeout)
        self._handle = json.dumps([_HOST, self._store.port, os.getpid(), secrets.token_hex(8)])

    @property
    def supports_reconfigure(self) -> bool:
        return True

    def get_reconfigure_handle(self) -> str:
        return self._handle

    def _require_alive(self, what: str) -> None:
        super()._require_alive(what)
        if self._formed is None:
            raise dist.DistBackendError(f"{what} in a process group with enable_reconfigure that has not been formed: call "
                                        f"reconfigure() first")

    def reconfigure(self, opts: Any) -> dist.Work:
        """Leaves the members that the group has, if any, and forms it of those whose handles are given.

        Errors: ValueError for options that are wrong at this rank; DistBackendError if the members do not all come in time.
        """
        handles: List[str] = list(opts.handles) if isinstance(opts.handles, list) else sorted(opts.handles)
        if handles.count(self._handle) != 1 or len(set(handles)) != len(handles):
            raise ValueError(f"reconfigure was given {len(handles)} handles, {handles.count(self._handle)} of them this process's: give that "
                             f"of each member once, and this process's among them")
        if opts.uuid in self._used:
            raise ValueError(f"reconfigure was given the uuid {opts.uuid} again: give another one each time")
        if opts.hints:
            raise ValueError(f"reconfigure was given hints {sorted(opts.hints)}: the backend troupe has none")
        super()._require_alive("reconfigure")
        self._used.add(opts.uuid)
        self._leave()
        timeout = opts.timeout or self._timeout
        rank = handles.index(self._handle)
        try:
            host, port, _, _ = json.loads(handles[0])
            store = self._store if rank == 0 else dist.TCPStore(host, port, is_master=False, timeout=timeout)
            members = dist.PrefixStore(f"reconfigure {opts.uuid}", store)
            self._formed = GroupWorld.form(members, rank, len(handles), timeout, is_default=False)
        except (Error, ValueError) as why:
            if isinstance(why, Error):
                raise failure_of("reconfigure", why, timeout) from why
            raise ValueError(f"reconfigure was given the handle {handles[0]!r}, which is not one of the backend troupe") from why
        except dist.DistError as why:
            raise dist.DistBackendError(f"reconfigure: Timed out waiting {timeout / datetime.timedelta(milliseconds=1):.0f}ms for the process "
                                        f"of the first handle: {why}") from why
        self._use(self._formed, None)
        return _Formed()

    def _leave(self) -> None:
        if self._formed is not None:  # without waiting: members may be dead
            threading.Thread(target=self._formed.close, name="troupe.abort", daemon=True).start()
            self._formed = None

    def _end(self, how: str) -> None:
        if self._formed is None:
            self._ended = self._ended or how
        else:
            super()._end(how)
