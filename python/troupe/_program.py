"""The program `troupe`, which the package contains: launch, controller, certs, doctor, bench and the rest."""
from __future__ import annotations

import os
import pathlib
import sys
from typing import NoReturn

from ._errors import refuse


def program_path() -> str:
    """Returns the path of this package's program `troupe`, e.g. for subprocess.run([path, "launch", ...]).

    Errors: Missing if the package was built without it.
    """
    path = pathlib.Path(__file__).parent / "_bin" / "troupe"
    if not path.is_file():
        raise refuse(f"this package has no program: {path} does not exist; build it with -DTROUPE_BUILD_PROGRAM=ON",
                     "missing")
    return str(path)


def main() -> NoReturn:
    """Replaces this process by the program. `troupe` and `python -m troupe` call it."""
    path = program_path()
    os.execv(path, [path, *sys.argv[1:]])
