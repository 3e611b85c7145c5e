"""Defines the operations that worlds, single ranks, groups and virtual worlds have."""
from __future__ import annotations

import struct
from typing import Any, Dict, FrozenSet, Generic, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

from . import _troupe
from ._arguments import LARGEST_INT, counts_of, whole
from ._dtypes import element_bytes
from ._errors import refuse
from ._types import Contribution, Counts, DType, Factor, Reduction, Seconds, Stream

T = TypeVar("T", contravariant=True)  # operands: of one rank, or of all
R = TypeVar("R", covariant=True)  # the reply to a request

_IN_PLACE = {"all_reduce", "reduce", "broadcast"}
_OF_ROOT_ALONE_OUT = {"reduce", "gather", "gather_v"}
_OF_ROOT_ALONE_IN = {"broadcast", "scatter", "scatter_v"}

#: The parameters of each operation: those that it must have, and those that it may have.
_PARAMETERS: Dict[str, Tuple[FrozenSet[str], FrozenSet[str]]] = {
    name: (frozenset(required), frozenset(optional)) for name, required, optional in (
        ("all_reduce", (), ("op", "factor")),
        ("reduce", ("root",), ("op", "factor")),
        ("broadcast", ("root",), ()),
        ("all_gather", (), ()),
        ("reduce_scatter", (), ("op", "factor")),
        ("all_to_all", (), ()),
        ("gather", ("root",), ()),
        ("scatter", ("root",), ()),
        ("all_gather_v", ("counts",), ()),
        ("reduce_scatter_v", ("counts",), ("op", "factor")),
        ("gather_v", ("root", "counts"), ()),
        ("scatter_v", ("root", "counts"), ()),
        ("all_to_all_v", ("send_counts", "recv_counts"), ()),
        ("barrier", (), ("commit",)),
        ("agree", ("rule", "value"), ("root",)),
        ("send", ("peer",), ("tag",)),
        ("recv", ("peer",), ("tag",)),
        ("copy", (), ()))}

_LARGEST = {"tag": LARGEST_INT, "commit": 1 << 62}


class Part(NamedTuple):
    """The operation of one rank, and the tensor that it writes."""
    operation: Any
    out: Any


class Options(NamedTuple):
    """The options of a request."""
    deadline: Optional[Seconds] = None
    lane: Optional[str] = None
    dtype: DType = None
    stream: Stream = "producer"


def parameters_of(kind: str, **given: Any) -> Dict[str, Any]:
    r"""Returns the parameters that are not None. Raises InvalidArgument if one is missing or not of this operation."""
    if kind not in _PARAMETERS:
        raise refuse(f"unknown operation '{kind}': the operations are {', '.join(_PARAMETERS)}")
    required, optional = _PARAMETERS[kind]
    made = {name: value for name, value in given.items() if value is not None}
    for name in sorted(required - made.keys()):
        raise refuse(f"{kind} needs {name}=")
    for name in sorted(made.keys() - required - optional):
        raise refuse(f"{kind} takes no {name}: it takes {', '.join(sorted(required | optional)) or 'no parameters'}")
    return made


def _made_shape(kind: str, shape: Tuple[int, ...], size: int) -> Tuple[int, ...]:
    """Returns the shape of the result that is allocated if no out is given."""
    if kind in ("all_gather", "gather"):
        return (size, *shape)
    if kind == "all_to_all":
        return shape
    count = 1
    for extent in shape:
        count *= extent
    if shape and shape[0] % size == 0:
        return (shape[0] // size, *shape[1:])
    return (count // size,)


def _native_parameters(kind: str, given: Dict[str, Any], size: int) -> Dict[str, Any]:
    """Returns the parameters, checked, under the names that the extension module uses. size: that of the world."""
    names = {"send_counts": "send_parts", "recv_counts": "recv_parts",
             "counts": "recv_parts" if kind in ("all_gather_v", "gather_v") else "send_parts"}
    made: Dict[str, Any] = {}
    for name, value in given.items():
        if name in names:
            made[names[name]] = counts_of(name, value)
        elif name in ("root", "peer") and value is not None:
            made[name] = whole(name, value, 0, size - 1 if size > 0 else LARGEST_INT)
        elif name in _LARGEST and value is not None:
            made[name] = whole(name, value, 0, _LARGEST[name])
        else:
            made[name] = value
    return made


def _is_untyped(what: Any) -> bool:
    return isinstance(what, _troupe.RemoteBuffer) and what.dtype is None


def typed(*lists: Sequence[Any]) -> Tuple[Sequence[Any], ...]:
    """Gives remote buffers without an element type the type of another operand, if any operand has one."""
    if not any(_is_untyped(one) for each in lists for one in each):
        return lists
    known = next((one.dtype for each in lists for one in each if getattr(one, "dtype", None) is not None), None)
    if known is None:
        return lists
    return tuple([one.view(known) if _is_untyped(one) else one for one in each] for each in lists)


def contribution_of(value: Contribution) -> bytes:
    """Returns the bytes of an agree's contribution: bytes as they are, text in UTF-8, integers as 64 bits each."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    integers = (value,) if isinstance(value, int) else value
    try:
        return struct.pack(f"={len(integers)}q", *integers)
    except (struct.error, TypeError):
        raise refuse(f"value is {value!r}: give bytes, a text, or integers of 64 bits") from None


def as_bytes(what: Any) -> Any:
    """Returns a remote buffer without an element type as bytes, for operations that need no type."""
    return what.view("uint8") if _is_untyped(what) else what


class PartMaker:
    """Makes parts of requests for the ranks of one world."""

    def __init__(self, native: Any, size: int) -> None:
        self.native = native
        self.size = size

    def operand(self, rank: int, what: Any, options: Options, is_source: bool = False) -> Any:
        """Imports a tensor. One that is only a source may be read-only."""
        return None if what is None else self.native.operand(rank, what, options.dtype, options.stream, is_source)

    def part(self, kind: str, rank: int, tensor: Any, out: Any, options: Options, given: Dict[str, Any]) -> Part:
        parameters = _native_parameters(kind, given, self.size)
        if kind == "copy":
            tensor, out = as_bytes(tensor), as_bytes(out)
        if kind in ("barrier", "agree"):
            return Part(_troupe.operation(kind, None, None, self.size, parameters), None)
        is_root = parameters.get("root") == rank
        if kind in _OF_ROOT_ALONE_OUT and not is_root:
            out = None
        if kind in _OF_ROOT_ALONE_IN and not is_root and out is None and kind == "broadcast":
            tensor, out = None, tensor  # in place: the tensors of the other ranks are written
        if out is None and kind in _IN_PLACE and (kind != "reduce" or is_root):
            out = tensor
        in_place = out is tensor
        first = self.operand(rank, tensor, options, is_source=not in_place and kind != "recv")
        if in_place:
            second = first
        else:
            if out is None and kind not in ("send", "recv") and (kind not in _OF_ROOT_ALONE_OUT or is_root):
                out = self._allocate(kind, rank, first)
            second = self.operand(rank, out, options)
        if kind in _OF_ROOT_ALONE_IN and not is_root:
            first = None
        known = first if first is not None else second
        if parameters.get("factor") is not None and known is not None:
            factor = parameters["factor"]
            parameters["factor"] = (self.operand(rank, factor, Options(stream=options.stream), is_source=True)
                                    if hasattr(factor, "__dlpack__") and not hasattr(factor, "__float__")
                                    else element_bytes(known.dtype, factor))
        return Part(_troupe.operation(kind, first, second, self.size, parameters), tensor if kind == "recv" else out)

    def _allocate(self, kind: str, rank: int, first: Any) -> Any:
        if first is None or kind.endswith("_v") or kind == "copy":
            raise refuse(f"{kind} of rank {rank} needs out: its size does not follow from the input")
        if rank not in self.native.local_ranks():
            raise refuse(f"{kind} of rank {rank} needs out: the rank lives in another process")
        return self.native.empty(rank, _made_shape(kind, first.shape, self.size), first.dtype)

    def parts(self, kind: str, ranks: Sequence[int], tensors: Any, out: Any, options: Options,
              given: Dict[str, Any]) -> List[Part]:
        """Returns one part for each of `ranks`."""
        many = len(ranks)
        factors = given.get("factor")
        sent = self._each(kind, "tensors", tensors, ranks, given.get("root") if kind.startswith("scatter") else None)
        outs = self._each(kind, "out", out, ranks, given.get("root") if kind in _OF_ROOT_ALONE_OUT else None)
        if options.dtype is None:
            sent, outs = typed(sent, outs)
        made = []
        for place in range(many):
            mine = dict(given, factor=factors[place]) if isinstance(factors, (list, tuple)) else given
            made.append(self.part(kind, ranks[place], sent[place], outs[place], options, mine))
        return made

    def _each(self, kind: str, name: str, given: Any, ranks: Sequence[int], root: Optional[int]) -> Sequence[Any]:
        if given is None:
            return [None] * len(ranks)
        if isinstance(given, (list, tuple)):
            if len(given) != len(ranks):
                raise refuse(f"{kind} has {len(given)} {name} for {len(ranks)} ranks: give one for each, in their "
                             f"order")
            return given
        if root is not None:  # only the root has one
            return [given if rank == root else None for rank in ranks]
        if len(ranks) == 1:
            return [given]
        raise refuse(f"{kind} of {len(ranks)} ranks takes a list of {name}, one for each rank, and was given a "
                     f"{type(given).__name__}")


class Collectives(Generic[T, R]):
    """Operations of a world (one tensor for each of its local ranks) or of one rank (its own tensor).

    A tensor is anything with __dlpack__ (NumPy, PyTorch, CuPy, JAX), row-major without gaps, or a troupe.Buffer; for a
    rank of another process a troupe.RemoteBuffer. It is held until the outcome, and written in place unless `out` is
    given. In shapes, `size` is the number of ranks.

    Every method also takes:
        deadline: seconds until the request is answered with DeadlineExceeded; None is the world's default.
        lane: the name of the lane of a request to one rank.
        dtype: the element type where the tensor cannot express it, e.g. "float8_e4m3fn" in an uint8 tensor, or a
            RemoteBuffer. A RemoteBuffer without a type has that of the request's other operands.
        stream: "producer" (the operation waits, on the GPU, for the current stream of the tensor's library), None (the
            tensor is ready), or a CUDA stream to wait for.

    Errors, besides those that each method names: InvalidArgument is raised by the call if an operand is not a tensor,
    has gaps, or does not fit. All others come with the reply: WrongDevice, StaleBuffer, Busy, Rebuilding, WorldFailed and
    Stopping (rejected: the operation did not run); DeadlineExceeded (rejected if a rank is missing, else unknown
    outcome); CommunicatorFailed and DeviceFailed (unknown outcome: the contents of its outputs are undefined).
    """

    def _collective(self, kind: str, tensors: Any, out: Any, parameters: Dict[str, Any], options: Options) -> R:
        raise NotImplementedError

    def all_reduce(self, tensors: T, op: Reduction = "sum", out: Optional[T] = None, *, factor: Optional[Factor] = None,
                   deadline: Optional[Seconds] = None, lane: Optional[str] = None, dtype: DType = None,
                   stream: Stream = "producer") -> R:
        """Reduces all tensors element by element; every rank gets the result.

        Shapes: tensors and out have the same number of elements at every rank. Without out the result replaces the
        tensor. factor is for op="pre_mul_sum": each rank's elements are multiplied by its factor first.
        Errors: Mismatch if ranks differ in count, dtype or op; Unsupported if the backend lacks op for the dtype.
        """
        return self._collective("all_reduce", tensors, out, {"op": op, "factor": factor},
                                Options(deadline, lane, dtype, stream))

    def reduce(self, tensors: T, root: int, op: Reduction = "sum", out: Optional[T] = None, *,
               factor: Optional[Factor] = None, deadline: Optional[Seconds] = None, lane: Optional[str] = None,
               dtype: DType = None, stream: Stream = "producer") -> R:
        """Reduces all tensors element by element; rank root gets the result, in its tensor or in out.

        Shapes: tensors and out have the same number of elements. Only the root has out.
        Errors: as all_reduce; InvalidArgument if root is not a rank.
        """
        return self._collective("reduce", tensors, out, {"root": root, "op": op, "factor": factor},
                                Options(deadline, lane, dtype, stream))

    def broadcast(self, tensors: T, root: int, out: Optional[T] = None, *, deadline: Optional[Seconds] = None,
                  lane: Optional[str] = None, dtype: DType = None, stream: Stream = "producer") -> R:
        """Copies the tensor of rank root to every rank: into its tensor, or into out.

        Shapes: the same number of elements at every rank.
        Errors: Mismatch if ranks differ in count, dtype or root; InvalidArgument if root is not a rank.
        """
        return self._collective("broadcast", tensors, out, {"root": root}, Options(deadline, lane, dtype, stream))

    def all_gather(self, tensors: T, out: Optional[T] = None, *, deadline: Optional[Seconds] = None,
                   lane: Optional[str] = None, dtype: DType = None, stream: Stream = "producer") -> R:
        """Concatenates all tensors in rank order; every rank gets the result.

        Shapes: each tensor has n elements, out has size * n. Without out a Buffer of shape (size, *tensor.shape) is
        allocated; read it from reply.out.
        Errors: Mismatch if ranks differ in count or dtype; InvalidArgument if out has another size.
        """
        return self._collective("all_gather", tensors, out, {}, Options(deadline, lane, dtype, stream))

    def reduce_scatter(self, tensors: T, op: Reduction = "sum", out: Optional[T] = None, *,
                       factor: Optional[Factor] = None, deadline: Optional[Seconds] = None, lane: Optional[str] = None,
                       dtype: DType = None, stream: Stream = "producer") -> R:
        """Reduces all tensors element by element; rank r gets part r of the result.

        Shapes: each tensor has size * n elements, out has n. Without out a Buffer is allocated; read it from reply.out.
        Errors: as all_reduce; InvalidArgument if the number of elements is not a multiple of size.
        """
        return self._collective("reduce_scatter", tensors, out, {"op": op, "factor": factor},
                                Options(deadline, lane, dtype, stream))

    def all_to_all(self, tensors: T, out: Optional[T] = None, *, deadline: Optional[Seconds] = None,
                   lane: Optional[str] = None, dtype: DType = None, stream: Stream = "producer") -> R:
        """Sends part q of each rank's tensor to rank q, which gets the parts in rank order.

        Shapes: tensor and out have size * n elements. Without out a Buffer of the tensor's shape is allocated; read it
        from reply.out.
        Errors: Mismatch if ranks differ in count or dtype; InvalidArgument if the number of elements is not a multiple
        of size.
        """
        return self._collective("all_to_all", tensors, out, {}, Options(deadline, lane, dtype, stream))

    def gather(self, tensors: T, root: int, out: Optional[T] = None, *, deadline: Optional[Seconds] = None,
               lane: Optional[str] = None, dtype: DType = None, stream: Stream = "producer") -> R:
        """Concatenates all tensors in rank order at rank root. Only the root has out.

        Shapes: each tensor has n elements, out has size * n. Without out a Buffer of shape (size, *tensor.shape) is
        allocated; read it from reply.out.
        Errors: Mismatch if ranks differ in count, dtype or root; InvalidArgument if root is not a rank.
        """
        return self._collective("gather", tensors, out, {"root": root}, Options(deadline, lane, dtype, stream))

    def scatter(self, tensors: Optional[T], root: int, out: Optional[T] = None, *, deadline: Optional[Seconds] = None,
                lane: Optional[str] = None, dtype: DType = None, stream: Stream = "producer") -> R:
        """Sends part r of the root's tensor to rank r. Only the root has tensors; every other rank must give out.

        Shapes: the root's tensor has size * n elements, out has n.
        Errors: Mismatch if ranks differ in count, dtype or root; InvalidArgument if root is not a rank or out is
        missing.
        """
        return self._collective("scatter", tensors, out, {"root": root}, Options(deadline, lane, dtype, stream))

    def all_gather_v(self, tensors: T, out: T, counts: Counts, *, deadline: Optional[Seconds] = None,
                     lane: Optional[str] = None, dtype: DType = None, stream: Stream = "producer") -> R:
        """Does the same as all_gather, with parts of different sizes.

        Shapes: the tensor of rank r has counts[r] elements; out has room for all of them, packed or at displacements.
        Errors: Mismatch if ranks differ in dtype or counts; InvalidArgument if counts does not have one entry for each
        rank, or out is too small.
        """
        return self._collective("all_gather_v", tensors, out, {"counts": counts},
                                Options(deadline, lane, dtype, stream))

    def gather_v(self, tensors: T, root: int, out: Optional[T], counts: Counts, *, deadline: Optional[Seconds] = None,
                 lane: Optional[str] = None, dtype: DType = None, stream: Stream = "producer") -> R:
        """Does the same as gather, with parts of different sizes. Only the root has out.

        Shapes: the tensor of rank r has counts[r] elements; out has room for all of them, packed or at displacements.
        Errors: Mismatch if ranks differ in dtype, counts or root; InvalidArgument if counts does not have one entry for
        each rank, root is not a rank, or out is too small.
        """
        return self._collective("gather_v", tensors, out, {"root": root, "counts": counts},
                                Options(deadline, lane, dtype, stream))

    def scatter_v(self, tensors: Optional[T], root: int, out: T, counts: Counts, *, deadline: Optional[Seconds] = None,
                  lane: Optional[str] = None, dtype: DType = None, stream: Stream = "producer") -> R:
        """Does the same as scatter, with parts of different sizes. Only the root has tensors.

        Shapes: the root's tensor has room for all parts, packed or at displacements; out of rank r has counts[r] elements.
        Errors: Mismatch if ranks differ in dtype, counts or root; InvalidArgument if counts does not have one entry for
        each rank, or root is not a rank.
        """
        return self._collective("scatter_v", tensors, out, {"root": root, "counts": counts},
                                Options(deadline, lane, dtype, stream))

    def reduce_scatter_v(self, tensors: T, out: T, counts: Counts, op: Reduction = "sum", *,
                         factor: Optional[Factor] = None, deadline: Optional[Seconds] = None,
                         lane: Optional[str] = None, dtype: DType = None, stream: Stream = "producer") -> R:
        """Does the same as reduce_scatter, with parts of different sizes: rank r gets counts[r] elements.

        Shapes: each tensor has room for all parts, packed or at displacements; out of rank r has counts[r] elements.
        Errors: as all_reduce; InvalidArgument if counts does not have one entry for each rank.
        """
        return self._collective("reduce_scatter_v", tensors, out, {"counts": counts, "op": op, "factor": factor},
                                Options(deadline, lane, dtype, stream))

    def barrier(self, *, deadline: Optional[Seconds] = None, lane: Optional[str] = None) -> R:
        """Sends a barrier, which is answered when the stream of every rank has reached it. It has no operands."""
        return self._collective("barrier", None, None, {}, Options(deadline, lane))

    def commit(self, number: int, *, deadline: Optional[Seconds] = None, lane: Optional[str] = None) -> R:
        """Sends a barrier that marks a place to which clients can return after a fault: WorldEvent.resume then names the
        last commit that is complete at all ranks. All ranks give the same number, from 0 to 2**62.
        """
        return self._collective("barrier", None, None, {"commit": number}, Options(deadline, lane))
