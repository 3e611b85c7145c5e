"""Where every program begins."""
from __future__ import annotations

import os
from typing import Any, Dict, Optional, Union

from . import _troupe
from ._types import Setting
from ._world import World


class Runtime:
    """Opens devices, starts troupe's threads, forms worlds.

    Settings are those of the settings file, by the same names, where a dot may be an underscore: mock_devices=2,
    deadlines_form="10s", or **{"deadlines.form": 10.0}. Durations are seconds, a timedelta or text. They beat the
    environment (TROUPE_*), which beats the file config or TROUPE_CONFIG.

    Used as a context manager, it ends there: its worlds stop, and what is pending is answered.
    """

    def __init__(self, *, config: Union[str, "os.PathLike[str]", None] = None,
                 faults: Optional[_troupe.FaultScript] = None, **settings: Setting) -> None:
        self._native = _troupe.Runtime(settings, config, faults)

    def form_world(self, id: Optional[bytes] = None) -> World:
        """Forms a world over the ranks that the settings name, and returns when it is ready.

        id: where the world spans processes without a controller, what make_unique_id() gave its rank 0.
        """
        return World(self._native.form_world(id), self)

    def make_unique_id(self) -> bytes:
        """A name for a world that spans processes: a secret."""
        return bytes(self._native.make_unique_id())

    @property
    def settings(self) -> Dict[str, str]:
        """All of them as they came out, in words."""
        chosen: Dict[str, str] = self._native.settings()
        return chosen

    def describe(self) -> str:
        """Driver, backend, versions and profile in one line."""
        return str(self._native.describe())

    def close(self) -> None:
        """Ends it. Idempotent."""
        self._native.close()

    def __enter__(self) -> "Runtime":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()
