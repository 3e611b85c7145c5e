"""Imports arrays of CuPy in the correct stream order on several GPUs.

ndarray.__dlpack__(stream) makes `stream` wait for the current stream of the *current* device. A process with all GPUs
of a world holds arrays on all of them, so troupe imports the array without a stream and then waits for the current
stream of the array's own device.
"""
from __future__ import annotations

from functools import partial
from typing import Any, Callable

import cupy


def to_dlpack(array: Any) -> Any:
    """Returns a DLPack capsule, with a version if CuPy supports it (CuPy 13 does not)."""
    try:
        return array.__dlpack__(stream=-1, max_version=(1, 0))
    except TypeError:
        return array.__dlpack__(stream=-1)


def _current_stream_of(index: int) -> int:
    return int(cupy.cuda.get_current_stream(index).ptr)


def stream_source(array: Any) -> Callable[[], int]:
    """Returns a function that returns the handle of the current stream of the array's device."""
    return partial(_current_stream_of, array.device.id)
