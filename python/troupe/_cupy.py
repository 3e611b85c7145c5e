"""CuPy's arrays, in the right order on several GPUs.

ndarray.__dlpack__(stream) makes its stream wait for the current stream of the *current* device. A process with all GPUs of a
world holds arrays of all of them, so troupe takes the array without a stream, and asks for the current stream of the array's
own device.
"""
from __future__ import annotations

from functools import partial
from typing import Any, Callable

import cupy


def to_dlpack(array: Any) -> Any:
    """With a version; CuPy 13 knows none."""
    try:
        return array.__dlpack__(stream=-1, max_version=(1, 0))
    except TypeError:
        return array.__dlpack__(stream=-1)


def _current_stream_of(index: int) -> int:
    return int(cupy.cuda.get_current_stream(index).ptr)


def stream_source(array: Any) -> Callable[[], int]:
    """What gives the handle of the current stream of the array's device, whenever it is called."""
    return partial(_current_stream_of, array.device.id)
