"""Checks tensors of requests, and converts those whose element type troupe does not have."""
from __future__ import annotations

from typing import List, NamedTuple, Sequence, Tuple

import torch
import torch.distributed as dist
from torch import Tensor

#: troupe's names of the element types that it reduces. Others are moved as bytes.
_NAMES = {torch.float32: "float32", torch.float64: "float64", torch.float16: "float16", torch.bfloat16: "bfloat16",
          torch.int8: "int8", torch.uint8: "uint8", torch.int32: "int32", torch.uint32: "uint32", torch.int64: "int64",
          torch.uint64: "uint64", torch.float8_e4m3fn: "float8_e4m3fn", torch.float8_e5m2: "float8_e5m2"}

_RedOp = dist.ReduceOp.RedOpType
_REDUCTIONS = {_RedOp.SUM: "sum", _RedOp.PRODUCT: "prod", _RedOp.MIN: "min", _RedOp.MAX: "max", _RedOp.AVG: "avg",
               _RedOp.PREMUL_SUM: "pre_mul_sum"}
#: Booleans are bytes of 0 and 1: their sum is "any", their product is "all".
_OF_BOOLEANS = {"sum": "max", "prod": "min", "min": "min", "max": "max"}


def reduction_of(operation: dist.ReduceOp) -> str:
    """Returns troupe's name of a reduction. Errors: NotImplementedError for those that troupe does not have."""
    found = _REDUCTIONS.get(operation.op)
    if found is None:
        raise NotImplementedError(f"the backend troupe has no ReduceOp.{operation.op.name}: it reduces by "
                                  f"{', '.join(one.name for one in _REDUCTIONS)}; gather the tensors and combine them "
                                  f"(docs/guide/torch.md)")
    return found


def check(what: str, tensor: Tensor) -> None:
    """Raises ValueError for a tensor that is not memory of the CPU or of a GPU."""
    if tensor.layout is not torch.strided:
        raise ValueError(f"{what} was given a sparse tensor ({tensor.layout}): the backend troupe moves dense tensors; use "
                         f"to_dense()")
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(f"{what} was given a tensor on {tensor.device}: the backend troupe moves tensors of the CPU and of CUDA's "
                         f"GPUs; use .cpu(), or choose a backend for its device")


class Memory(NamedTuple):
    """The memory of a tensor as an operand."""

    tensor: Tensor
    dtype: str
    elements: int


def _require_no_gaps(what: str, tensor: Tensor) -> None:
    check(what, tensor)
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError(f"{what} was given a lazy view (conj() or imag): use resolve_conj() or resolve_neg()")
    if not (tensor.is_contiguous() or tensor.is_contiguous(memory_format=torch.channels_last)
            or tensor.is_contiguous(memory_format=torch.channels_last_3d)):
        raise ValueError(f"{what} was given a tensor of shape {tuple(tensor.shape)} with strides {tensor.stride()}, which is "
                         f"not contiguous: use contiguous(), and copy a result back")


def movable(what: str, tensor: Tensor) -> Memory:
    """Returns the memory of a tensor that is moved as it is: as bytes if troupe does not have its element type."""
    _require_no_gaps(what, tensor)
    name = _NAMES.get(tensor.dtype)
    return Memory(tensor, "uint8", tensor.nbytes) if name is None else Memory(tensor, name, tensor.numel())


def reducible(what: str, tensor: Tensor, op: str) -> Tuple[Memory, str]:
    """Returns the memory of a tensor that is reduced, and the reduction."""
    _require_no_gaps(what, tensor)
    name = _NAMES.get(tensor.dtype)
    if name is not None:
        return Memory(tensor, name, tensor.numel()), op
    if tensor.dtype is torch.bool and op in _OF_BOOLEANS:
        return Memory(tensor, "uint8", tensor.numel()), _OF_BOOLEANS[op]
    raise ValueError(f"{what} by {op} was given a tensor of {tensor.dtype}: the backend troupe reduces "
                     f"{', '.join(sorted(_NAMES.values()))}, and bool by sum, prod, min and max; convert it first")


def in_order(what: str, tensor: Tensor) -> Tensor:
    """Returns the tensor, or a copy if it is channels-last: lists of parts have the elements in their order, not in memory's."""
    _require_no_gaps(what, tensor)
    with torch.no_grad():
        return tensor.contiguous()


def one_layout(what: str, output: Tensor, input: Tensor) -> None:
    """Raises ValueError if only one of them is channels-last, since their elements would be exchanged."""
    if output.is_contiguous() != input.is_contiguous():
        raise ValueError(f"{what} was given an output with strides {output.stride()} and an input with strides "
                         f"{input.stride()}: give both the same memory format, for example by contiguous()")


def joined(tensors: Sequence[Tensor]) -> Tensor:
    """Returns the elements of all tensors in one, in their order."""
    with torch.no_grad():
        return torch.cat([one.reshape(-1) for one in tensors])


def room_for(tensors: Sequence[Tensor]) -> Tensor:
    """Returns memory for the elements of all tensors."""
    return torch.empty(sum(one.numel() for one in tensors), dtype=tensors[0].dtype, device=tensors[0].device)


def spread(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    """Copies the elements of `flat` to the tensors, in their order."""
    start = 0
    if flat.is_cuda:  # it was allocated for the stream that has asked, which may be another one
        flat.record_stream(torch.cuda.current_stream(flat.device))
    with torch.no_grad():
        for one in tensors:
            one.copy_(flat[start:start + one.numel()].view(one.shape))
            start += one.numel()


def single(what: str, tensors: List[Tensor]) -> Tensor:
    """Returns the only tensor of a call that takes a list."""
    if len(tensors) != 1:
        raise ValueError(f"{what} was given {len(tensors)} tensors: a process has one rank, so give one")
    return tensors[0]


def one_type(what: str, tensors: Sequence[Tensor], among: Tensor) -> None:
    """Raises ValueError unless all tensors have the device and the element type of `among`."""
    for one in tensors:
        check(what, one)
        if one.device != among.device:
            raise ValueError(f"{what} was given tensors on {one.device} and {among.device}: give tensors of one device")
        if one.dtype != among.dtype:
            raise ValueError(f"{what} was given tensors of {one.dtype} and {among.dtype}: give one element type")


def parts_of(what: str, tensors: Sequence[Tensor], size: int, among: Tensor, *, equal: bool = False) -> None:
    """Raises ValueError unless there is a tensor for each rank, with the type of `among` and, if equal, its size."""
    if len(tensors) != size:
        raise ValueError(f"{what} was given a list of {len(tensors)} tensors: give one for each of the {size} ranks")
    one_type(what, tensors, among)
    if equal and any(one.numel() != among.numel() for one in tensors):
        raise ValueError(f"{what} was given tensors of {[one.numel() for one in tensors]} elements beside one of "
                         f"{among.numel()}: give equal sizes")


def in_memory(tensor: Tensor, counts: Sequence[int]) -> List[int]:
    """Converts counts of elements to counts of elements of the memory that movable() returns."""
    width = 1 if tensor.dtype in _NAMES else tensor.element_size()
    return [count * width for count in counts]
