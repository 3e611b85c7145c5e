"""PyTorch's environment variables: those that set something of troupe, and what takes the place of the others.

PyTorch itself reads TORCH_FR_BUFFER_SIZE and TORCH_NCCL_TRACE_BUFFER_SIZE (see _records.py) and TORCH_DISTRIBUTED_DEBUG.
"""
from __future__ import annotations

import os
import warnings
from typing import Any, Dict, Mapping, NamedTuple

from .._errors import refuse


class _Mapped(NamedTuple):
    setting: str  #: of troupe
    unit: float  #: in seconds


#: Limits of PyTorch's watchdog that are limits of troupe.
_MAPPED = {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": _Mapped("limits.hang", 1.0),
           "TORCH_NCCL_NONBLOCKING_TIMEOUT": _Mapped("deadlines.form", 1.0)}

_ALWAYS = "an error of an operation is raised by wait(), and nothing ends the process"
#: What takes the place of variables that have no effect here.
_REPLACED = {
    "TORCH_NCCL_BLOCKING_WAIT": "wait() always waits for the outcome, and raises at the timeout",  # see Gpu.blocks
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": _ALWAYS,
    "TORCH_NCCL_TEARDOWN_ON_TIMEOUT": _ALWAYS,
    "TORCH_NCCL_PROPAGATE_ERROR": "an error is told to all ranks at once",
    "TORCH_NCCL_DESYNC_DEBUG": "an error names the ranks that are missing and what differs",
    "TORCH_NCCL_ENABLE_MONITORING": "nothing needs a watchdog: operations have deadlines",
    "TORCH_NCCL_COORD_CHECK_MILSEC": "nothing needs a watchdog: operations have deadlines",
    "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "the record is written before the error is raised",
    "TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC": "the record is written before the error is raised",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "write the record by troupe.torch.write_flight_record()",
    "TORCH_NCCL_ENABLE_TIMING": "use TROUPE_METRICS_ADDRESS",
    "TORCH_NCCL_BCAST_UNIQUEID": "the group's rank 0 hosts the controller",
}


def settings_of(variables: Mapping[str, str]) -> Dict[str, Any]:
    """Returns the settings of troupe that variables of PyTorch set. Errors: InvalidArgument for one that is no number.

    TROUPE_* variables come before these, as before all defaults of this module.
    """
    found: Dict[str, Any] = {}
    for name, (setting, unit) in _MAPPED.items():
        text = variables.get(name)
        if not text:
            continue
        try:
            seconds = float(text) * unit
        except ValueError:
            seconds = 0.0
        if not 0 < seconds < float("inf"):
            raise refuse(f"{name} is '{text}': give a number of seconds above 0, or set TROUPE_"
                         f"{setting.replace('.', '_').upper()}")
        found[setting] = seconds
    return found


_told = False


def warn_of_the_rest(on_gpu: bool = False) -> None:
    """Names the variables that have no effect on groups of this backend alone, once in a process."""
    global _told
    given = [name for name in _REPLACED if os.environ.get(name) and not (on_gpu and name == "TORCH_NCCL_BLOCKING_WAIT")]
    if given and not _told:
        _told = True
        warnings.warn("without effect on the backend troupe: " + "; ".join(f"{name} ({_REPLACED[name]})" for name in given)
                      + " (docs/guide/torch.md)", stacklevel=2)
