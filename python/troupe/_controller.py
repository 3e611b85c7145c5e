"""Defines Controller, which processes join to form a world over several processes."""
from __future__ import annotations

import os
import pathlib
import secrets
from typing import Dict, Literal, Optional, Union

from . import _troupe
from ._arguments import whole
from ._runtime import Closable
from ._types import Seconds

Policy = Literal["keep_size", "shrink", "fail_fast"]


class Controller(Closable):
    """The controller of a world over processes: it admits them, forms epochs, detects losses and orders requests.

    It runs in this process and does not start processes. Start them with environment(), e.g. by subprocess, and let
    each call troupe.Runtime().form_world():

        with troupe.Controller(4) as controller:
            workers = [subprocess.Popen([sys.executable, "worker.py"], env=controller.environment(rank))
                       for rank in range(4)]

    The program `troupe launch` (python -m troupe launch) does this, watches the processes, and restarts those that die.

    processes: ranks of the world, one in each process.
    host, port: where the processes reach it; port 0 is any free one. A host other than loopback needs certificates.
    certificates: the folder that `troupe certs --out FOLDER` created.
    token: the secret of the world; None creates one.
    policy: the reaction to the loss of a process (docs/processes.md): keep_size, shrink or fail_fast.
    smallest: the smallest number of ranks to which the world shrinks.
    rebuilds: the number of losses and faults within ten minutes that the world survives.
    gather: time limit until all processes have joined. suspicion: silence after which a process counts as lost.
    lead: the most requests of a rank that may wait for other ranks; None is the setting limits.lead.

    Errors: InvalidArgument (a number out of range, a port in use, certificates needed but not given), Missing (a file
    of the certificates). Threads: any.
    """

    def __init__(self, processes: int, *, host: str = "127.0.0.1", port: int = 0,
                 certificates: Union[str, "os.PathLike[str]", None] = None, token: Optional[str] = None,
                 policy: Policy = "keep_size", smallest: int = 1, rebuilds: Optional[int] = None,
                 gather: Optional[Seconds] = None, suspicion: Optional[Seconds] = None,
                 lead: Optional[int] = None) -> None:
        self._processes = whole("processes", processes, 1, 1 << 20)
        self._token = secrets.token_hex(32) if token is None else token
        self._certificates = None if certificates is None else pathlib.Path(certificates).absolute()
        folder = None if self._certificates is None else str(self._certificates)
        self._native = _troupe.Controller(
            processes, host, whole("port", port, 0, 65535), self._token, folder, policy,
            whole("smallest", smallest, 1, processes),
            None if rebuilds is None else whole("rebuilds", rebuilds, 0, 1 << 30), gather, suspicion,
            None if lead is None else whole("lead", lead, 1, 1_000_000_000))

    def __repr__(self) -> str:
        return f"<troupe.Controller: {self._processes} processes at {self.address}>"

    @property
    def address(self) -> str:
        """The address HOST:PORT, for the setting control.address of its processes."""
        return self._native.address()

    def environment(self, rank: Optional[int] = None) -> Dict[str, str]:
        """Returns this process's environment with the variables by which a process joins, as joining().

        rank: the first rank of the process, which must run on this machine; None: its launcher or the controller
        chooses the rank. The result contains the world's secret: do not print it.
        """
        made = dict(os.environ, **self.joining())
        if rank is not None:
            made.update(TROUPE_PLACE=str(rank), TROUPE_DEVICE=str(rank), RANK=str(rank), LOCAL_RANK=str(rank),
                        WORLD_SIZE=str(self._processes), LOCAL_WORLD_SIZE=str(self._processes))
        return made

    def joining(self) -> Dict[str, str]:
        """Returns the variables by which a process joins: address, token, certificates. They contain the world's secret: do not print them."""
        made = {"TROUPE_CONTROL": self.address, "TROUPE_JOIN_TOKEN": self._token}
        if self._certificates is not None:
            made.update(TROUPE_CONTROL_CA=str(self._certificates / "ca.pem"),
                        TROUPE_CONTROL_CERTIFICATE=str(self._certificates / "host.pem"),
                        TROUPE_CONTROL_KEY=str(self._certificates / "host.key"))
        return made

    def process_ended(self, name: str, pid: int, how: str) -> None:
        """Reports that a process has ended. The controller might otherwise detect the lost connection only later.

        name: TROUPE_PROCESS of that process. how: text for users, e.g. "it was killed by SIGKILL".
        """
        self._native.process_ended(name, pid, how)

    def stop(self) -> None:
        """Asks all processes to finish their requests and leave."""
        self._native.stop()

    def wait(self, timeout: Optional[Seconds] = None) -> bool:
        """Waits until the last process has left or the world has failed. Returns whether it has, within timeout seconds."""
        return self._native.wait(timeout)

    @property
    def reason(self) -> Optional[Exception]:
        """The reason why the world has failed. None if it has not failed."""
        return self._native.reason()

    def close(self) -> None:
        """Ends the controller. Processes that still run lose it (control.orphaned). Idempotent."""
        self._native.close()
