"""Compares the shapes and types of all ranks' tensors, for TORCH_DISTRIBUTED_DEBUG=DETAIL."""
from __future__ import annotations

import datetime
from typing import Any, List, Sequence

from torch import Tensor

from .. import _errors

#: The most that a rank may say: troupe's agree takes 4 KiB of a rank and 64 KiB of all.
_MOST_BYTES = 4096
_MOST_BYTES_OF_ALL = 65536
#: Operations whose result all ranks have; of the others all ranks have a source.
_BY_RESULT = ("broadcast", "scatter")


def _text_of(kind: str, source: Any, result: Any) -> str:
    """Returns what all ranks must say. Parts of the v-forms may differ in shape."""
    memory = result if kind in _BY_RESULT else source
    if memory is None:
        return kind
    tensor: Tensor = memory.tensor
    shape = "" if kind.endswith("_v") else f"{tuple(tensor.shape)} "
    return f"{kind} of {shape}{str(tensor.dtype).replace('torch.', '')}"


def compare(rank: Any, size: int, what: str, operations: Sequence[Sequence[Any]], timeout: datetime.timedelta,
            lane: str) -> None:
    """Waits until all ranks have made this call. Errors: Mismatch, which names what each group of ranks has given."""
    said = f"{what}: " + ", ".join(_text_of(*one[:3]) for one in operations)
    mine = said.encode()[:min(_MOST_BYTES, _MOST_BYTES_OF_ALL // size)]
    agreed = rank.agree("gather_all", mine, deadline=timeout, lane=lane).result().agreed
    by_text: "dict[bytes, List[int]]" = {}
    for number, one in enumerate(agreed.parts):
        by_text.setdefault(bytes(one), []).append(number)
    if len(by_text) > 1:
        parts = "; ".join(f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}: {text.decode(errors='replace')}"
                          for text, ranks in by_text.items())
        raise _errors.refuse(f"the ranks disagree (TORCH_DISTRIBUTED_DEBUG=DETAIL compares shapes and types): {parts}",
                             "mismatch")
