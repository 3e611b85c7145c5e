"""Reads the public headers that cmake/public_headers.cmake lists, and checks their includes."""
import pathlib
import re

LIST = pathlib.PurePosixPath("cmake/public_headers.cmake")
UMBRELLAS = ("runtime/troupe.hpp", "runtime/actors.hpp")
KIT = "testing/"
LIMIT = 80
CLIENTS = ("python/src", "examples")  # programs of this tree that must also build against an installation
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


class NoList(Exception):
    """cmake/public_headers.cmake is missing or no longer has the expected form."""


def listed(root):
    """Returns the paths of the public headers, relative to the root, in the order of the list."""
    file = root / LIST
    found = re.search(r"set\(TROUPE_PUBLIC_HEADERS\s+([^)]*)\)", file.read_text(encoding="utf-8")) if file.exists() else None
    if not found:
        raise NoList(f"{LIST}: no set(TROUPE_PUBLIC_HEADERS …): adapt tools/parts/public_headers.py to its new form")
    return re.sub(r"#.*", "", found[1]).split()


def name_of(path):
    """Returns the name by which a public header is included."""
    if path in UMBRELLAS or path.startswith(KIT):
        return "troupe/" + path.removeprefix("runtime/")
    return f"troupe/{path}"


def path_of(include):
    """Returns the path of troupe's header that is included by this name, or None for other headers."""
    if not include.startswith("troupe/"):
        return None
    path = include.removeprefix("troupe/")
    inner = f"runtime/{path}"
    return inner if inner in UMBRELLAS or inner.startswith(KIT) else path


def includes_of(root, path):
    return INCLUDE.findall((root / path).read_text(encoding="utf-8"))


def faults(root):
    """Yields the faults of the list and of the includes of its headers."""
    headers = listed(root)
    if len(headers) > LIMIT:
        yield f"{LIST}: {len(headers)} public headers, more than the limit of {LIMIT}: make some internal"
    for path in sorted({one for one in headers if headers.count(one) > 1}):
        yield f"{LIST}: {path} is listed twice"
    for path in headers:
        if not (root / path).exists():
            yield f"{LIST}: {path} does not exist"
            continue
        for include in includes_of(root, path):
            inner = path_of(include)
            if inner is not None and inner not in headers:
                yield f"{path}: the public header includes {inner}, which is not public: see {LIST}"
    for file in sorted(file for folder in CLIENTS for file in (root / folder).rglob("*.?pp")):
        path = file.relative_to(root).as_posix()
        for include in includes_of(root, path):
            inner = path_of(include)
            if inner is not None and inner not in headers:
                yield f"{path}: {inner} is not installed: include a public header, see {LIST}"
    yield from (f"{via}: <troupe/troupe.hpp> includes {include} through this header, but must not include CAF"
                for via, include in closure_outside(root, UMBRELLAS[0]) if include.startswith("caf/"))


def closure_outside(root, first):
    """Yields (header, include) for every include in the closure of a header that is not a header of troupe."""
    seen, left = set(), [first]
    while left:
        path = left.pop()
        if path in seen or not (root / path).exists():
            continue
        seen.add(path)
        for include in includes_of(root, path):
            inner = path_of(include)
            if inner is None:
                yield path, include
            else:
                left.append(inner)
