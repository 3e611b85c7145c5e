"""Converts the names and values of element types."""
from __future__ import annotations

import struct
from typing import Any

from . import _troupe

_OF_FORMAT = {("u", 1): "uint8", ("i", 1): "int8", ("i", 4): "int32", ("u", 4): "uint32", ("i", 8): "int64",
              ("u", 8): "uint64", ("f", 2): "float16", ("f", 4): "float32", ("f", 8): "float64"}
_PACKED = {"float16": "<e", "float32": "<f", "float64": "<d", "uint8": "<B", "int8": "<b", "int32": "<i",
           "uint32": "<I", "int64": "<q", "uint64": "<Q"}


def name_of_format(format: str, itemsize: int) -> str:
    """Returns the dtype's name for an element format of Python's buffer protocol."""
    code = format.lstrip("@=<")
    family = "f" if code in "efd" else "u" if code in "BHILQN" else "i" if code in "bhilqn" else code
    return _OF_FORMAT.get((family, itemsize), format)


def element_bytes(dtype: str, value: Any) -> bytes:
    """Returns the bytes of one element in memory."""
    if dtype in _PACKED:
        is_float = dtype.startswith("float")
        return struct.pack(_PACKED[dtype], float(value) if is_float else int(value))
    if dtype == "bfloat16":
        bits = struct.unpack("<I", struct.pack("<f", float(value)))[0]
        return struct.pack("<H", ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF)
    raise _troupe_error(f"a factor of {dtype} must be a troupe.Buffer of one element on the rank's device")


def _troupe_error(text: str) -> Exception:
    from ._errors import make_error
    return make_error(text, {"code": "unsupported", "effect": "rejected", "text": text})
