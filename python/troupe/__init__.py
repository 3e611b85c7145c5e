"""troupe: collectives of GPUs, or of a mock, by asynchronous requests that are each answered exactly once.

    with troupe.Runtime(backend="mock", ranks=4) as runtime:
        world = runtime.form_world()
        world.all_reduce(tensors).result()     # or: await world.all_reduce(tensors)
"""
from . import _asyncio, _troupe
from ._asyncio import set_await_spin
from ._checkpoints import Checkpoints, Resumed
from ._controller import Controller
from ._driver import Driver
from ._events import Events
from ._errors import (Abandoned, Busy, Cancelled, CommunicatorFailed, DeadlineExceeded, DeviceFailed, DeviceOccupied,
                      Error, Internal, InvalidArgument, Mismatch, Missing, OutOfMemory, ProcessPoisoned, RankLost,
                      Rebuilding, StaleBuffer, StaleEpoch, Stopping, TooOld, Unsupported, WorldFailed, WrongDevice)
from ._program import program_path
from ._runtime import Runtime
from ._troupe import (Agreed, Buffer, Completion, Plan, RemoteBuffer, Reply, Request, ValueReply,
                      set_result_spin)
from ._world import (Group, IncompleteOperation, OneShotStatus, Rank, ResumePoint, World, WorldEvent, WorldProcess, empty,
                     empty_all, empty_pinned)

__version__ = _troupe.version
__all__ = ["Abandoned", "Agreed", "Buffer", "Busy", "Cancelled", "Checkpoints", "CommunicatorFailed", "Completion", "Controller",
           "DeadlineExceeded", "DeviceFailed", "DeviceOccupied", "Driver", "Error", "Events", "Group", "IncompleteOperation", "Internal",
           "InvalidArgument", "Mismatch", "Missing",
           "OneShotStatus", "OutOfMemory", "Plan", "ProcessPoisoned", "Rank", "RankLost", "Rebuilding", "RemoteBuffer",
           "Reply", "Request", "ResumePoint", "Resumed", "Runtime",
           "StaleBuffer", "StaleEpoch", "Stopping", "TooOld", "Unsupported", "ValueReply", "World", "WorldEvent", "WorldFailed",
           "WorldProcess", "WrongDevice", "empty", "empty_all", "empty_pinned", "program_path", "set_await_spin", "set_result_spin"]
