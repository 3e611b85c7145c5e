"""What the backend does with tensors of a GPU: which GPU a rank has, streams, and captures of streams."""
from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, NoReturn, Optional, Sequence

import torch
from torch import Tensor

from ._tensors import Memory

if TYPE_CHECKING:
    from ._graph import Capture

#: What a program is told that calls a collective while a stream is captured.
_CAPTURED = ("cannot be called while the current stream is captured: its launch belongs to the order that all ranks agree on. "
             "Capture it by troupe.torch.graph(), whose replay is a request (docs/guide/torch.md#graphs); this capture is "
             "not damaged")


def refuse_in_capture(what: str) -> NoReturn:
    raise RuntimeError(f"{what} {_CAPTURED}")


def _number_in(variables: Mapping[str, str], name: str) -> Optional[int]:
    text = variables.get(name, "")
    return int(text) if text.isdigit() else None


def gpu_of_rank(devices: Sequence[str], device_id: Optional[torch.device],
                variables: Mapping[str, str] = os.environ) -> Optional[int]:
    """Returns the index of the GPU whose world a group needs; None for a world of the CPU.

    devices: the types of the devices for which the group has this backend. device_id: that of init_process_group().
    Errors: ValueError if a GPU is asked for, and there is none.
    """
    backend = variables.get("TROUPE_BACKEND", "auto").lower()
    if "cuda" not in devices or backend not in ("auto", "nccl") or (device_id is not None and device_id.type == "cpu"):
        return None
    asked_by = ("device_id" if device_id is not None else "the backend 'cuda:troupe'" if "cpu" not in devices
                else "TROUPE_BACKEND=nccl" if backend == "nccl" else "")
    if not torch.cuda.is_available():
        if asked_by:
            raise ValueError(f"{asked_by} asks for a world on GPUs, and PyTorch finds none in this process: use 'cpu:troupe', or "
                             f"see torch.cuda.is_available() and CUDA_VISIBLE_DEVICES")
        return None
    count: int = torch.cuda.device_count()
    index: int
    if device_id is not None:
        index = torch.cuda.current_device() if device_id.index is None else device_id.index
    else:  # a program that has not chosen one is at 0
        local = next((number for number in (_number_in(variables, "TROUPE_DEVICE"), _number_in(variables, "LOCAL_RANK"))
                      if number is not None), 0)
        index = torch.cuda.current_device() or (local if local < count else 0)
    if not 0 <= index < count:
        raise ValueError(f"device_id is cuda:{index}, and this process sees {count} GPUs: see CUDA_VISIBLE_DEVICES")
    return index


def devices_of_call(first: str) -> Dict[str, str]:
    """Returns the backend's name for each type of device of the group that PyTorch is making.

    PyTorch tells a creator of backends about one device, and calls it once for all that have its backend; which ones
    these are is in the function that calls. first: what to assume if it is not there.
    """
    frame = sys._getframe(2)
    config = frame.f_locals.get("backend_config")
    if config is None:
        return {first: "troupe"}
    made: Dict[str, str] = {device: str(name) for device, name in config.get_device_backend_map().items()}
    return made


class Gpu:
    """The GPU of a rank. Threads: any."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.device = torch.device("cuda", index)
        self._stream_of: Any = torch._C._cuda_getCurrentRawStream
        self._lock = threading.Lock()
        self._side: Optional[torch.cuda.Stream] = None
        self._scratch: Optional[Tensor] = None
        self.captures: List["Capture"] = []  #: those of troupe.torch.graph() that are under way
        self.blocks = os.environ.get("TORCH_NCCL_BLOCKING_WAIT", "").lower() in ("1", "y", "yes", "t", "true", "on")

    def current_stream(self) -> int:
        """Returns the handle of this thread's current stream of this GPU."""
        return int(self._stream_of(self.index))

    def is_captured(self) -> bool:
        """Whether this thread's current stream of this GPU is in capture."""
        if torch.cuda.current_device() == self.index:
            return bool(torch.cuda.is_current_stream_capturing())
        with torch.cuda.device(self.index):
            return bool(torch.cuda.is_current_stream_capturing())

    def capture_for(self, what: str) -> Optional["Capture"]:
        """Returns the capture that a call of this thread belongs to, or None for a call that is sent now.

        Errors: RuntimeError in a capture that is not one of troupe.torch.graph().
        """
        if not self.is_captured():
            return None
        for one in self.captures:
            if one.has(torch.cuda.current_stream(self.index)):
                return one
        refuse_in_capture(what)

    def side_stream(self) -> torch.cuda.Stream:
        """Returns a stream in which nothing but results of futures is."""
        with self._lock:
            if self._side is None:
                self._side = torch.cuda.Stream(self.device)
            return self._side

    def scratch(self) -> Sequence[Memory]:
        """Returns two bytes, the memory of a copy that waits for the caller's stream in a barrier."""
        with self._lock:
            if self._scratch is None:
                self._scratch = torch.zeros(2, dtype=torch.uint8, device=self.device)
                torch.cuda.current_stream(self.index).synchronize()
            return [Memory(self._scratch[at:at + 1], "uint8", 1) for at in range(2)]
