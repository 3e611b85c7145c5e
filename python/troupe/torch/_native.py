"""Builds and loads the native part of the backend, native/backend.cpp, against the installed PyTorch.

    python -m troupe.torch

builds it, which takes about a minute, into the user's cache; process groups then use it. Without it they use Python alone.
"""
from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import multiprocessing.util
import os
import pathlib
import platform
import shlex
import subprocess
import sysconfig
import threading
import warnings
from typing import Any, List, Optional

import torch

from .. import _troupe
from .._errors import refuse

_SETTING = "TROUPE_TORCH_NATIVE"
_MODES = ("use", "build", "off")
_SOURCES = pathlib.Path(__file__).resolve().parent / "native"
_NAME = "troupe_torch_backend"
_lock = threading.Lock()
_loaded: Optional[Any] = None
_ends_in = 0  #: the process at whose end the module's threads end
_told = False


_FAILURE = "the native part of the backend troupe could not be built"


def _compiler() -> List[str]:
    try:
        return shlex.split(os.environ.get("CXX") or "") or ["g++"]
    except ValueError as why:
        raise RuntimeError(f"{_FAILURE}: CXX is {os.environ['CXX']!r}, which is no command: {why}") from why


def _flags() -> List[str]:
    installed = pathlib.Path(torch.__file__).resolve().parent
    include = installed / "include"
    return ["-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-w", f"-DTORCH_EXTENSION_NAME={_NAME}",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", f"-I{include}",
            f"-I{include / 'torch' / 'csrc' / 'api' / 'include'}", f"-I{sysconfig.get_paths()['include']}",
            f"-L{installed / 'lib'}", "-ltorch_python", "-ltorch_cpu", "-lc10"]


def library() -> pathlib.Path:
    """Returns the file of the native part for this PyTorch, Python and troupe."""
    hashed = hashlib.sha256(f"{platform.machine()} {shlex.join(_flags())}".encode())
    for name in ("backend.cpp", "requests.h"):
        hashed.update((_SOURCES / name).read_bytes())
    cache = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    return (cache / "troupe" / "torch-native" / f"torch-{torch.__version__}-troupe-{_troupe.version}-"
            f"{hashed.hexdigest()[:16]}{sysconfig.get_config_var('EXT_SUFFIX')}")


def build() -> pathlib.Path:
    """Builds the native part of the backend unless it is there, and returns its file. Process groups that are made later use it.

    Needs a compiler: g++ 11 or newer, or what CXX names. Of several processes that call it at once, one builds and the
    others wait. Errors: RuntimeError with the compiler's output; OSError if the cache cannot be written.
    """
    made = library()
    if made.exists():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    with open(made.with_suffix(".lock"), "w") as lock:  # released when the process ends, however it does
        fcntl.flock(lock, fcntl.LOCK_EX)
        if made.exists():
            return made
        partial = f"{made}.{os.getpid()}"
        try:
            command = [*_compiler(), str(_SOURCES / "backend.cpp"), "-o", partial, *_flags()]
            try:
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
            except OSError as why:
                raise RuntimeError(f"{_FAILURE}: the compiler {command[0]!r} cannot be run ({why.strerror}): install g++, or let CXX "
                                   f"name one") from why
            if done.returncode != 0 or not os.path.exists(partial):
                raise RuntimeError(f"{_FAILURE}: {shlex.join(done.args)} ended with status {done.returncode} and "
                                   f"{'a' if os.path.exists(partial) else 'no'} library:\n{done.stdout[-4000:]}")
            with open(partial, "rb") as file:
                os.fsync(file.fileno())
            os.replace(partial, made)
        finally:
            if os.path.exists(partial):
                os.unlink(partial)
    return made


def native() -> Optional[Any]:
    """Returns the native part for a new process group; None if it is not to be used.

    TROUPE_TORCH_NATIVE: use (the default) takes it where it has been built, build builds it first, off does without it.
    What fails is a warning, because Python has the same calls. Errors: InvalidArgument for another value.
    """
    global _ends_in, _loaded, _told
    mode = os.environ.get(_SETTING) or "use"
    if mode not in _MODES:
        raise refuse(f"{_SETTING} is '{mode}': give {', '.join(_MODES)}")
    if mode == "off":
        return None
    with _lock:
        if _loaded is None and not _told:
            try:
                file = build() if mode == "build" else library()
                if file.exists():
                    _loaded = _load(file)
            except (RuntimeError, OSError, ImportError) as why:
                _told = True
                warnings.warn(f"the backend troupe uses Python alone, which takes longer for small operations: {why}\n"
                              f"{_SETTING}=off uses it without this warning (docs/guide/torch.md#the-native-part)", stacklevel=2)
        if _loaded is not None and _ends_in != os.getpid():  # a fork has threads of its own
            _ends_in = os.getpid()
            multiprocessing.util.Finalize(None, _loaded.end, exitpriority=0)
        return _loaded


def _load(file: pathlib.Path) -> Any:
    from . import _records

    spec = importlib.util.spec_from_file_location(_NAME, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not module.begin(_troupe.requests, _records.size):
        raise ImportError(f"{file} is of another version of troupe: remove it and build it again")
    _records.also(module.operations)
    return module
