"""Reads the code that documents quote: a whole file (PATH), or the lines of one region of it (PATH#REGION).

A region lies between two comment lines "// [REGION]". It is quoted without these lines, and dedented.
"""
import re
import textwrap


class NoSuchSnippet(Exception):
    """A quoted file or region does not exist; the text says why."""


def region_of(text, name):
    mark = re.compile(rf"^[ \t]*// \[{re.escape(name)}\]\n", re.MULTILINE)
    parts = mark.split(text)
    if len(parts) != 3:
        raise NoSuchSnippet(f"the mark // [{name}] occurs {len(parts) - 1} times instead of twice")
    return textwrap.dedent(parts[1])


def snippet(root, reference):
    """Returns the code that REFERENCE (PATH or PATH#REGION) names below \\p root."""
    path, _, region = reference.partition("#")
    file = root / path
    if not file.is_file():
        raise NoSuchSnippet("there is no such file")
    text = file.read_text(encoding="utf-8")
    return region_of(text, region) if region else text
