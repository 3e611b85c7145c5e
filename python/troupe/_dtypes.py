"""Converts the names and values of element types."""
from __future__ import annotations

import struct
from typing import Any

from ._errors import refuse

_PACKED = {"float16": "<e", "float32": "<f", "float64": "<d", "uint8": "<B", "int8": "<b", "int32": "<i",
           "uint32": "<I", "int64": "<q", "uint64": "<Q"}


def name_of_format(format: str, itemsize: int) -> str:
    """Returns the dtype's name for an element format of Python's buffer protocol."""
    code = format.lstrip("@=<")
    family = "float" if code in "efd" else "uint" if code in "BHILQN" else "int" if code in "bhilqn" else ""
    name = f"{family}{8 * itemsize}"
    return name if name in _PACKED else format


def element_bytes(dtype: str, value: Any) -> bytes:
    """Returns the bytes of one element in memory."""
    if dtype in _PACKED:
        is_float = dtype.startswith("float")
        return struct.pack(_PACKED[dtype], float(value) if is_float else int(value))
    if dtype == "bfloat16":
        bits = struct.unpack("<I", struct.pack("<f", float(value)))[0]
        return struct.pack("<H", ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF)
    raise refuse(f"a factor of {dtype} must be a troupe.Buffer of one element on the rank's device", "unsupported")
