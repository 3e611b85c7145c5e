"""The operations, as worlds, single ranks, groups and virtual worlds have them."""
from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import _troupe
from ._dtypes import element_bytes
from ._errors import make_error

Seconds = Any  # a number of seconds, a datetime.timedelta, or None for the world's own
Counts = Any  # one count for each rank, or (counts, displacements)

_REDUCING = {"all_reduce", "reduce", "reduce_scatter", "reduce_scatter_v"}
_IN_PLACE = {"all_reduce", "reduce", "broadcast"}
_OF_ROOT_ALONE_OUT = {"reduce", "gather"}
_OF_ROOT_ALONE_IN = {"broadcast", "scatter"}


def refuse(text: str) -> Exception:
    """An InvalidArgument that says so."""
    return make_error(text, {"code": "invalid_argument", "effect": "rejected", "text": text})


class Part(NamedTuple):
    """What one rank does, and what it writes."""
    operation: Any
    out: Any


class Options(NamedTuple):
    """What a request is asked with, beside the operation."""
    deadline: Seconds = None
    lane: Optional[str] = None
    retry_safe: bool = False
    dtype: Any = None
    stream: Any = "producer"


def split_options(given: Dict[str, Any]) -> Tuple[Options, Dict[str, Any]]:
    mine = {name: given.pop(name) for name in Options._fields if name in given}
    return Options(**mine), given


def _made_shape(kind: str, shape: Tuple[int, ...], size: int) -> Tuple[int, ...]:
    """Of what is allocated where no out is given."""
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


def _counts(given: Counts) -> Any:
    if given is None:
        return None
    if len(given) == 2 and not isinstance(given[0], int):
        return (list(given[0]), list(given[1]))
    return (list(given), None)


class PartMaker:
    """Makes parts of requests for the ranks of one world."""

    def __init__(self, native: Any, size: int) -> None:
        self.native = native
        self.size = size

    def operand(self, rank: int, what: Any, options: Options, is_source: bool = False) -> Any:
        """What is only a source may be read-only."""
        return None if what is None else self.native.operand(rank, what, options.dtype, options.stream, is_source)

    def part(self, kind: str, rank: int, tensor: Any, out: Any, options: Options, given: Dict[str, Any]) -> Part:
        parameters = dict(given)
        if kind == "barrier":
            return Part(_troupe.operation(kind, None, None, self.size, parameters), None)
        is_root = parameters.get("root") == rank
        if kind in _OF_ROOT_ALONE_OUT and not is_root:
            out = None
        if kind in _OF_ROOT_ALONE_IN and not is_root and out is None and kind == "broadcast":
            tensor, out = None, tensor  # in place: what others have is written
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
            raise refuse(f"{kind} of rank {rank} needs out: its size does not follow from what is sent")
        return self.native.empty(rank, _made_shape(kind, first.shape, self.size), first.dtype)

    def parts(self, kind: str, ranks: Sequence[int], tensors: Any, out: Any, options: Options,
              given: Dict[str, Any]) -> List[Part]:
        """One part for each of \\p ranks."""
        many = len(ranks)
        factors = given.get("factor")
        per_rank_factors = isinstance(factors, (list, tuple))
        sent = self._each(kind, "tensors", tensors, ranks, given.get("root") if kind == "scatter" else None)
        outs = self._each(kind, "out", out, ranks, given.get("root") if kind in _OF_ROOT_ALONE_OUT else None)
        made = []
        for place in range(many):
            mine = dict(given, factor=factors[place]) if per_rank_factors else given
            made.append(self.part(kind, ranks[place], sent[place], outs[place], options, mine))
        return made

    def _each(self, kind: str, name: str, given: Any, ranks: Sequence[int], root: Optional[int]) -> Sequence[Any]:
        if given is None:
            return [None] * len(ranks)
        if isinstance(given, (list, tuple)):
            if len(given) != len(ranks):
                raise refuse(f"{kind} has {len(given)} {name} for {len(ranks)} ranks: give one for each, in the order "
                             f"of world.local_ranks")
            return given
        if root is not None:  # of the root alone
            return [given if rank == root else None for rank in ranks]
        if len(ranks) == 1:
            return [given]
        raise refuse(f"{kind} of {len(ranks)} ranks takes a list of {name}, one for each rank, and was given a "
                     f"{type(given).__name__}")


class Collectives:
    """Operations of a world (one tensor for each of its local ranks) or of one rank (its own tensor).

    A tensor is anything with __dlpack__ (NumPy, PyTorch, CuPy, JAX), row-major without gaps, or a troupe.Buffer. It is
    held until the outcome, and written in place; `out` says where to instead. Where an operation needs more room than
    its tensor has and no `out` is given, it is made of troupe's memory and found in `reply.out`.

    Each method also takes: deadline (seconds), lane (of one rank: a name), retry_safe, dtype (where the tensor's own
    cannot say it, such as fp8 in uint8), and stream: "producer" (the operation waits, on the GPU, for what the tensor's
    library has in its current stream), None (the tensor is ready), or a CUDA stream to wait for.
    """

    def _collective(self, kind: str, tensors: Any, out: Any, given: Dict[str, Any]) -> Any:
        raise NotImplementedError

    def all_reduce(self, tensors: Any, op: str = "sum", out: Any = None, *, factor: Any = None, **options: Any) -> Any:
        """Every rank gets the reduction of all tensors: sum, prod, min, max, avg or pre_mul_sum (each times factor)."""
        return self._collective("all_reduce", tensors, out, dict(options, op=op, factor=factor))

    def reduce(self, tensors: Any, root: int, op: str = "sum", out: Any = None, *, factor: Any = None,
               **options: Any) -> Any:
        """Rank root gets the reduction of all tensors, in its own tensor or in out."""
        return self._collective("reduce", tensors, out, dict(options, op=op, root=root, factor=factor))

    def broadcast(self, tensors: Any, root: int, out: Any = None, **options: Any) -> Any:
        """Every rank gets the tensor of rank root."""
        return self._collective("broadcast", tensors, out, dict(options, root=root))

    def all_gather(self, tensors: Any, out: Any = None, **options: Any) -> Any:
        """Every rank gets all tensors, in rank order: out holds as many elements as all of them."""
        return self._collective("all_gather", tensors, out, options)

    def reduce_scatter(self, tensors: Any, op: str = "sum", out: Any = None, *, factor: Any = None,
                       **options: Any) -> Any:
        """Rank r gets part r of the reduction of all tensors."""
        return self._collective("reduce_scatter", tensors, out, dict(options, op=op, factor=factor))

    def all_to_all(self, tensors: Any, out: Any = None, **options: Any) -> Any:
        """Rank q gets part q of every rank's tensor, in rank order."""
        return self._collective("all_to_all", tensors, out, options)

    def gather(self, tensors: Any, root: int, out: Any = None, **options: Any) -> Any:
        """Rank root gets all tensors, in rank order; out is root's."""
        return self._collective("gather", tensors, out, dict(options, root=root))

    def scatter(self, tensors: Any, root: int, out: Any = None, **options: Any) -> Any:
        """Rank r gets part r of root's tensor; tensors is root's. The others give out."""
        return self._collective("scatter", tensors, out, dict(options, root=root))

    def all_gather_v(self, tensors: Any, out: Any, counts: Counts, **options: Any) -> Any:
        """As all_gather, in parts of any size: counts[r] elements of rank r, or (counts, displacements) in out."""
        return self._collective("all_gather_v", tensors, out, dict(options, recv_parts=_counts(counts)))

    def reduce_scatter_v(self, tensors: Any, out: Any, counts: Counts, op: str = "sum", *, factor: Any = None,
                         **options: Any) -> Any:
        """As reduce_scatter, in parts of any size: rank r gets counts[r] elements."""
        return self._collective("reduce_scatter_v", tensors, out,
                                dict(options, op=op, factor=factor, send_parts=_counts(counts)))

    def barrier(self, **options: Any) -> Any:
        """Answered when every rank's stream has reached it."""
        return self._collective("barrier", None, None, options)
