"""Checks arguments before they reach the extension module. A wrong one raises InvalidArgument with its name and value."""
from __future__ import annotations

import operator
from typing import Any, List, Optional, Sequence, Tuple

from ._errors import refuse

LARGEST_INT = (1 << 31) - 1
LARGEST_SIZE = (1 << 63) - 1


def whole(name: str, value: Any, least: int, most: int) -> int:
    """Returns the value as an int. Accepts every type of whole numbers, for example NumPy's."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if not least <= number <= most:
        raise refuse(f"{name} is {value!r} and must be a whole number from {least} to {most}")
    return number


def wholes(name: str, values: Any, least: int, most: int) -> List[int]:
    """Returns the values as a list of int."""
    try:
        each = list(values)
    except TypeError:
        raise refuse(f"{name} is {values!r} and must be a sequence of whole numbers") from None
    return [whole(f"{name}[{place}]", value, least, most) for place, value in enumerate(each)]


def rank_number(name: str, value: Any) -> int:
    return whole(name, value, 0, LARGEST_INT)


def counts_of(name: str, given: Any) -> Tuple[List[int], Optional[List[int]]]:
    """Returns the counts and the displacements; None: packed."""
    try:
        each: Sequence[Any] = list(given)
    except TypeError:
        raise refuse(f"{name} is {given!r} and must be a sequence of whole numbers, or a pair of such sequences") from None
    if len(each) == 2 and not any(hasattr(one, "__index__") and not hasattr(one, "__len__") for one in each):
        if all(hasattr(one, "__iter__") and not isinstance(one, str) for one in each):
            return (wholes(f"{name}[0]", each[0], 0, LARGEST_SIZE), wholes(f"{name}[1]", each[1], 0, LARGEST_SIZE))
    return (wholes(name, each, 0, LARGEST_SIZE), None)


def shape_of(shape: Any) -> List[int]:
    """Returns the extents of a shape, which is a whole number or a sequence."""
    if hasattr(shape, "__index__") and not getattr(shape, "shape", ()):
        return [whole("shape", shape, 0, LARGEST_SIZE)]
    return wholes("shape", shape, 0, LARGEST_SIZE)
