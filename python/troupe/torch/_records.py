"""Feeds PyTorch's flight recorder, so that its analyser reads what groups of troupe have done.

PyTorch attaches its FlightRecorderHook to each group and records what is called. It learns from backends in C++ alone
what has become of an operation, so this module keeps the replies of the last operations, and adds their states.
"""
from __future__ import annotations

import os
import pickle
import threading
import time
import warnings
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterable, List, NamedTuple, Tuple, Union

import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_FILES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_ON_FAILURE = ("TORCH_FR_DUMP_ON_TIMEOUT", "TORCH_NCCL_DUMP_ON_TIMEOUT")
_YES = ("1", "y", "yes", "t", "true", "on")


def _first(names: Any) -> str:
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


class _Asked(NamedTuple):
    """An operation of this process. Its reply holds no tensor once it is there."""

    at_ns: int
    thread: int
    reply: Any


class _Records:
    """The last operations of all groups of this process, as many as PyTorch's recorder keeps. Threads: any."""

    def __init__(self) -> None:
        size = _first(_SIZES)
        self.size = int(size) if size.isdigit() else 2000
        self._asked: Deque[_Asked] = deque(maxlen=self.size)
        self._others: Callable[[], Iterable[Tuple[int, int, Any]]] = tuple
        self._lock = threading.Lock()
        self._written_by = 0

    def add(self, reply: Any) -> None:
        self._asked.append(_Asked(time.time_ns(), threading.get_ident(), reply))

    def also(self, others: Callable[[], Iterable[Tuple[int, int, Any]]]) -> None:
        """Adds the operations that `others` returns: times, threads and replies."""
        self._others = others

    def failed(self) -> None:
        """Writes the record of the process's first failed operation, if the environment asks for that."""
        if self._written_by == os.getpid() or _first(_ON_FAILURE).lower() not in _YES:
            return
        with self._lock:
            if self._written_by == os.getpid():
                return
            self._written_by = os.getpid()
            try:
                write_flight_record()
            except OSError as why:
                warnings.warn(f"the flight record could not be written: {why}")

    def complete(self, record: Dict[str, Any]) -> Dict[str, Any]:
        """Sets the states of PyTorch's entries. One belongs to what its thread has asked for next."""
        asked = sorted([*self._asked, *(_Asked(*one) for one in self._others())], key=lambda one: one.at_ns)
        by_thread: Dict[int, List[_Asked]] = {}
        for one in asked:
            by_thread.setdefault(one.thread, []).append(one)
        following: Dict[int, int] = {}  # of each thread, when its next entry was made
        for entry in sorted(record.get("entries", ()), key=lambda one: int(one["time_created_ns"]), reverse=True):
            began, thread = int(entry["time_created_ns"]), int(entry["thread_id"])
            until = following.get(thread)
            following[thread] = began
            mine = next((one for one in by_thread.get(thread, ())
                         if one.at_ns >= began and (until is None or one.at_ns < until)), None)
            if mine is None:  # refused before it was asked for, or too long ago
                continue
            failure = mine.reply.exception() if mine.reply.done() else None
            if mine.reply.done() and failure is None:
                entry["state"] = "completed"
            else:  # for PyTorch's recorder a failed operation has not completed
                entry["retired"] = False
            if failure is not None:
                entry["error"] = str(failure)
        return record


_records = _Records()
add, also, failed, size = _records.add, _records.also, _records.failed, _records.size


def write_flight_record(file: Union[str, "os.PathLike[str]", None] = None) -> str:
    """Writes what this process's groups have done, for `python -m torch.distributed.flight_recorder.fr_trace FOLDER`.

    file: None is the variable TORCH_FR_DUMP_TEMP_FILE or TORCH_NCCL_DEBUG_INFO_TEMP_FILE (default: /tmp/troupe_trace_rank_)
    with this process's rank behind it. The analyser reads a folder with a file of each rank, whose names end with the rank.
    Entries are those of PyTorch's recorder (TORCH_FR_BUFFER_SIZE, 2000; 0: none), with state "completed" for what has
    succeeded, and "scheduled" for what waits or has failed, with troupe's text as "error".
    Returns the file's name. Errors: OSError.
    """
    rank = dist.get_rank() if dist.is_initialized() else 0
    name = os.fspath(file) if file is not None else f"{_first(_FILES) or '/tmp/troupe_trace_rank_'}{rank}"
    record: Dict[str, Any] = pickle.loads(_dump_fr_trace(True, True, False, backend="troupe"))
    with open(name, "wb") as to:
        pickle.dump(_records.complete(record), to)
    return name
