"""Defines Runtime, with which every program begins."""
from __future__ import annotations

import asyncio
import os
from typing import Any, Dict, Mapping, Optional, Sequence, TypeVar, Union

from . import _troupe
from ._arguments import LARGEST_INT, wholes
from ._errors import refuse
from ._types import Backend, Fusion, LogLevel, Ordering, Placement, Profile, Setting, Strategy
from ._world import World


_Self = TypeVar("_Self")


class Closable:
    """Is closed at the end of a with statement; at the end of `async with` on another thread, so that the loop goes on."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    async def __aenter__(self: _Self) -> _Self:
        return self

    async def __aexit__(self, *_: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self.close)


class Runtime(Closable):
    """Opens devices, starts troupe's threads, forms worlds.

    Settings are those of the settings file, by the same names, where a dot may be an underscore: mock_devices=2,
    deadlines_form="10s", or **{"deadlines.form": 10.0}. Durations are seconds, a timedelta or text. They override the
    environment (TROUPE_*), which overrides the file config or TROUPE_CONFIG. Those with a name as value have a parameter
    of their own here, so that type checkers know the names; None leaves a setting as it is.
    environment: variables to read in place of this process's own, e.g. Controller.environment(rank) in the process that
    has the controller.

    As a context manager, it is closed at the end: its worlds stop, and pending requests are answered.
    """

    def __init__(self, *, config: Union[str, "os.PathLike[str]", None] = None,
                 faults: Optional[_troupe.FaultScript] = None, backend: Optional[Backend] = None,
                 profile: Optional[Profile] = None, strategy: Optional[Strategy] = None,
                 placement: Optional[Placement] = None, ordering: Optional[Ordering] = None,
                 fusion: Optional[Fusion] = None, log_level: Optional[LogLevel] = None,
                 environment: Optional[Mapping[str, str]] = None, **settings: Setting) -> None:
        named = {"backend": backend, "profile": profile, "strategy": strategy, "placement": placement,
                 "ordering": ordering, "fusion": fusion, "log_level": log_level}
        settings.update((name, value) for name, value in named.items() if value is not None)
        self._native = _troupe.Runtime(settings, config, faults, environment)

    def form_world(self, id: Optional[bytes] = None, *, devices: Optional[Sequence[int]] = None) -> World:
        """Forms a world over the ranks of the settings, and returns it when it is ready.

        id: for a world over processes without a controller, the result of make_unique_id() in the process of rank 0.
        devices: for a world in this process alone, the device of each rank; None is the first ones. Worlds on disjoint
        devices, for example of a trainer and of its rollouts, fail and recover each by itself.
        Ctrl-C ends the forming, so that this can be called again.
        Errors: InvalidArgument (a device does not exist or is named twice), DeviceOccupied.
        """
        named = [] if devices is None else wholes("devices", devices, 0, LARGEST_INT)
        if devices is not None and not named:
            raise refuse("devices is empty: name one for each rank, or leave it out")
        return World(self._native.form_world(id, named), self)

    def make_unique_id(self) -> bytes:
        """Returns an identifier for a world over several processes. It is a secret."""
        return bytes(self._native.make_unique_id())

    @property
    def settings(self) -> Dict[str, str]:
        """The values of all settings in effect, as text."""
        chosen: Dict[str, str] = self._native.settings()
        return chosen

    def describe(self) -> str:
        """Returns driver, backend, versions and profile in one line."""
        return str(self._native.describe())

    def __repr__(self) -> str:
        return f"<troupe.Runtime: {self.describe()}>"

    def release_unused(self) -> int:
        """Returns unused device memory and kept pinned memory to the system; returns the bytes. Waits for all GPU work."""
        return int(self._native.release_unused())

    def close(self) -> None:
        """Stops its worlds and ends the runtime. Idempotent."""
        self._native.close()
