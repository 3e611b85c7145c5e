#!/usr/bin/env python3
"""Builds the wheel from a build of troupe, installs it in a fresh environment, runs an all_reduce on the mock there, and
launches two processes with the program in the wheel. Checks the metadata of the wheel.

Usage: check_wheel.py BUILD WORK [--installed]. Exits with 77, which CTest shows as skipped, where Python cannot make wheels.
With --installed, BUILD is installed first, and the wheel is made of that installation.
"""
import email
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

SOURCE = pathlib.Path(__file__).resolve().parent.parent

PROGRAM = """
import array, sys, zipfile
import troupe
assert "site-packages" in troupe.__file__, troupe.__file__
from importlib.metadata import version
assert troupe.__version__ == version("troupe-runtime"), (troupe.__version__, version("troupe-runtime"))
with troupe.Runtime(backend="mock", mock_devices=2, log_level="off") as runtime:
    world = runtime.form_world()
    values = [troupe.empty(world, rank, 4, "int32") for rank in range(2)]
    for rank, value in enumerate(values):
        filled = troupe.empty_pinned(world, 4, "int32")
        import ctypes
        ctypes.memmove(filled.__array_interface__["data"][0], array.array("i", [rank + 1] * 4).tobytes(), 16)
        world.rank(rank).copy(filled, value).result()
    world.all_reduce(values).result()
    back = troupe.empty_pinned(world, 4, "int32")
    world.rank(0).copy(values[0], back).result()
    found = list((ctypes.c_int * 4).from_address(back.__array_interface__["data"][0]))
    assert found == [3, 3, 3, 3], found
print("the wheel's all_reduce of 2 mock ranks:", found)
with troupe.Controller(2) as controller:
    assert "TROUPE_JOIN_TOKEN" in controller.environment(0)
"""
URL = "https://example.org/troupe"


def check_metadata(wheel):
    """Checks the metadata that PyPI shows."""
    with zipfile.ZipFile(wheel) as archive:
        name, = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        said = email.message_from_bytes(archive.read(name))
        licence, = (one for one in archive.namelist() if one.endswith("LICENSE"))
        assert "Apache License" in archive.read(licence).decode(), f"not a licence: {archive.read(licence)[:80]}"
        program = archive.getinfo("troupe/_bin/troupe")
        assert program.external_attr >> 16 & 0o111 == 0o111, "the program cannot be executed"
    version = re.search(r"project\(troupe_python VERSION ([\d.]+)", (SOURCE / "CMakeLists.txt").read_text())[1]
    assert (said["Name"], said["Version"]) == ("troupe-runtime", version), said.items()
    assert said["Author"] == "The troupe authors" and said["License"].startswith("Apache-2.0"), said.items()
    assert said["Description-Content-Type"] == "text/markdown" and "# troupe for Python" in said.get_payload()
    assert f"Source, {URL}" in said.get_all("Project-URL"), said.items()
    assert re.search(r"-linux_\w+\.whl$", wheel.name), f"{wheel.name}: it needs this system's libraries, so it is no manylinux"


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True, **more)
    if done.returncode != 0:
        sys.exit(f"{command} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def main():
    build, work = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    for module in ("setuptools", "wheel", "venv", "ensurepip"):
        if subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True).returncode != 0:
            print(f"skipped: Python has no {module}: install python3-setuptools, python3-wheel and python3-venv")
            return 77
    shutil.rmtree(work, ignore_errors=True)
    sources = work / "python"  # setuptools writes into the source folder
    shutil.copytree(SOURCE, sources, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info", "dist"))
    environment = dict(os.environ, TROUPE_PROJECT_URL=URL)
    if sys.argv[3:] == ["--installed"]:
        run("cmake", "--install", build, "--prefix", work / "installed")
        environment.update(TROUPE_ROOT=str(work / "installed"))
    else:
        environment.update(TROUPE_BUILD=str(build))
    environment.pop("PYTHONPATH", None)
    run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index", "-w", work / "wheels",
        sources, env=environment)
    wheel, = (work / "wheels").glob("troupe_runtime-*.whl")
    check_metadata(wheel)
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
    run(sys.executable, "-m", "venv", work / "fresh")
    python = work / "fresh" / "bin" / "python"
    run(python, "-m", "pip", "install", "--no-index", "--no-deps", wheel, env=environment)
    print(run(python, "-I", "-c", PROGRAM, cwd=work, env=environment), end="")
    program = work / "fresh" / "bin" / "troupe"
    print(run(program, "launch", "-n", "2", "--", "sh", "-c", "echo started as rank $RANK", cwd=work, env=environment), end="")
    run(python, "-m", "troupe", "certs", "--help", cwd=work, env=environment)
    run(program, "trace", "--help", cwd=work, env=environment)  # a program of its own beside it
    print(run(python, "-m", "pip", "show", "troupe-runtime", env=environment).splitlines()[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
