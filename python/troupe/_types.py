"""Defines types of arguments, for type checkers and readers. They are not checked at run time."""
from __future__ import annotations

import array
import datetime
import os
from typing import Any, Literal, Optional, Protocol, Sequence, Tuple, Union

from ._troupe import RemoteBuffer


class SupportsDLPack(Protocol):
    """A tensor of NumPy, PyTorch, CuPy, JAX or another library that implements DLPack."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...


class SupportsCudaStream(Protocol):
    """A stream of PyTorch."""

    @property
    def cuda_stream(self) -> int: ...


class SupportsPtr(Protocol):
    """A stream of CuPy."""

    @property
    def ptr(self) -> int: ...


#: One operand: memory of one rank, row-major without gaps. Arrays without DLPack are for virtual worlds only. A
#: RemoteBuffer is memory of a rank of another process.
Tensor = Union[SupportsDLPack, RemoteBuffer, "array.array[Any]", memoryview, bytearray]
#: Operands of a request to all ranks: one for each rank of the world, in that order. A single one stands for a list
#: of one, or belongs to the root of an operation that has a root.
Tensors = Union[Tensor, Sequence[Optional[Tensor]]]
#: Operands of a request of a process without a rank: memory that the ranks' processes have exported.
RemoteTensors = Union[RemoteBuffer, Sequence[Optional[RemoteBuffer]]]
#: Seconds, or a timedelta.
Seconds = Union[float, datetime.timedelta]
#: An element type, e.g. "float32", numpy.float32 or torch.float32.
DType = Any
#: How a reduction combines elements.
Reduction = Literal["sum", "prod", "min", "max", "avg", "pre_mul_sum"]
#: How an agree makes one value of the ranks' contributions.
AgreementRule = Literal["of_rank", "any_of", "all_of", "min", "max", "sum", "union_of", "gather_all"]
#: What a rank contributes to an agree: bytes, a text, or integers of 64 bits.
Contribution = Union[bytes, bytearray, memoryview, str, int, Sequence[int]]
#: The factor of pre_mul_sum: a number, or memory of one element on the rank's device; a list has one for each rank.
Factor = Union[float, SupportsDLPack, Sequence[Union[float, SupportsDLPack]]]
#: Elements of each rank, packed in rank order; or (elements, displacements), both in elements.
Counts = Union[Sequence[int], Tuple[Sequence[int], Sequence[int]]]
#: The stream that a request waits for on the GPU: "producer" is the current one of the tensor's library, None is none.
Stream = Union[Literal["producer"], int, SupportsCudaStream, SupportsPtr, None]
#: Operations by name, for prepare() and Group.on().
Operation = Literal["all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "gather",
                    "scatter", "all_gather_v", "reduce_scatter_v", "gather_v", "scatter_v", "all_to_all_v", "barrier",
                    "send", "recv", "copy"]
#: The values of settings that are names.
Backend = Literal["auto", "mock", "nccl", "gloo"]
Profile = Literal["latency", "balanced", "frugal"]
Strategy = Literal["auto", "flag", "event", "host_fn"]
Placement = Literal["near", "none"]
Ordering = Literal["agreed", "caller"]
Fusion = Literal["off", "plans", "free"]
LogLevel = Literal["trace", "debug", "info", "warn", "error", "off"]
#: The phase of a world: see troupe.WorldEvent.
Phase = Literal["forming", "ready", "rebuilding", "failed", "stopping", "stopped"]
#: The value of a setting. A list or tuple is joined with commas.
Setting = Union[str, bool, int, float, datetime.timedelta, "os.PathLike[str]", Sequence[Union[str, int]], None]
