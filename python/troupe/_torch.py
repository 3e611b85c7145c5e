"""Imports tensors of PyTorch, faster than by __dlpack__ and in the correct stream order on several GPUs.

Tensor.__dlpack__(stream) makes `stream` wait for the current stream of the *current* device, and newer versions refuse
tensors of other devices. A process with all GPUs of a world holds tensors on all of them, so troupe imports the tensor
without a stream and then waits for the current stream of the tensor's own device.
"""
from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, Callable

import torch
from torch.utils.dlpack import to_dlpack as to_dlpack  # noqa: F401


@lru_cache(maxsize=None)
def _current_stream_of(index: int) -> Callable[[], int]:
    quick = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if quick is not None:
        return partial(quick, index)
    return lambda: int(torch.cuda.current_stream(index).cuda_stream)


def stream_source(tensor: Any) -> Callable[[], int]:
    """Returns a function that returns the handle of the current stream of the tensor's device."""
    return _current_stream_of(tensor.device.index) if tensor.is_cuda else (lambda: 0)
