#!/usr/bin/env python3
"""Makes a wheel of a build by tools/wheel, checks what it holds, and uses it in a virtual environment: use_wheel.py.

Usage: check_wheel.py BUILD WORK. Exits with 77, which CTest shows as skipped, where a tool that it needs is missing.
       check_wheel.py --contents WHEEL: only checks what the wheel holds.
"""
import csv
import email
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
URL = "https://example.org/troupe"
# Belong to the machine: a copy in a wheel would not fit the kernel's driver, or would be a second one in the process.
NEVER_IN_IT = r"lib(cuda|nccl|cudart|cublas|nvidia-|nvml|c|stdc\+\+|gcc_s|python)[-.\d]"


def check_contents(wheel, url=None):
    """Checks tags, metadata, libraries and licences."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata, = (one for one in names if one.endswith(".dist-info/METADATA"))
        folder = metadata[:-len("METADATA")]
        told = email.message_from_bytes(archive.read(metadata))
        licences = {one: archive.read(one).decode() for one in names if one.startswith(folder) and "METADATA" not in one}
        mode = archive.getinfo("troupe/_bin/troupe").external_attr >> 16
        record = {row[0] for row in csv.reader(io.StringIO(archive.read(f"{folder}RECORD").decode()))}
    version = re.search(r"project\(troupe_python VERSION ([\d.]+)", (HERE.parent / "CMakeLists.txt").read_text())[1]
    assert (told["Name"], told["Version"]) == ("troupe-runtime", version), told.items()
    assert told["Author"] == "The troupe authors" and told["License-Expression"] == "Apache-2.0", told.items()
    assert told["Description-Content-Type"] == "text/markdown" and "# troupe for Python" in told.get_payload()
    assert not url or f"Source, {url}" in told.get_all("Project-URL"), told.items()
    assert mode & 0o111 == 0o111, "the program cannot be executed"
    assert record == set(names), record ^ set(names)
    assert {f"troupe/torch/native/{one}" for one in ("backend.cpp", "requests.h")} <= set(names), "the native part of troupe.torch is missing"

    tags = re.fullmatch(rf"troupe_runtime-{version}-([\w.]+)-([\w.]+)-([\w.]+)\.whl", pathlib.Path(wheel).name)
    assert tags and re.search(r"manylinux_2_\d+_x86_64", tags[3]), f"{wheel} has no manylinux tag"
    modules = sorted(match[1] for one in names if (match := re.fullmatch(r"troupe/_troupe\.cpython-(\d+)-x86_64-linux-gnu\.so", one)))
    assert modules == sorted(tag[2:] for tag in tags[1].split(".")) and tags[1] == tags[2], (modules, tags[0])

    own, = (text for name, text in licences.items() if name.endswith("LICENSE"))
    assert own == (ROOT / "LICENSE").read_text(), "another licence than troupe's"
    index, = (text for name, text in licences.items() if name.endswith("third-party/THIRD_PARTY.txt"))
    libraries = [one.split("/")[1] for one in names if one.startswith("troupe_runtime.libs/")]
    for library in libraries:
        assert not re.match(NEVER_IN_IT, library), f"{library} must not be in a wheel"
        plain = re.sub(r"-[0-9a-f]{8,}(?=\.so)", "", library)
        assert plain.startswith("libtroupe.") or f"library {plain}\n" in index, f"THIRD_PARTY.txt does not name {plain}"
    for text in re.findall(r"licence: (.*)", index):
        assert f"{folder}licenses/third-party/{text}" in licences, f"the licence {text} is not in the wheel"
    return libraries


def run(*command, fails=False, **more):
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    if (done.returncode != 0) != fails:
        sys.exit(f"{command} ended with status {done.returncode}:\n{done.stdout}")
    return done.stdout


def main():
    if sys.argv[1] == "--contents":
        print(", ".join(check_contents(sys.argv[2])))
        return 0
    build, work = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
    for module in ("venv", "ensurepip"):
        if subprocess.run([sys.executable, "-c", f"import {module}"], stderr=subprocess.DEVNULL).returncode != 0:
            print(f"skipped: Python has no {module}: install python3-venv")
            return 77
    if not (ROOT / "build/python-tools/bin/auditwheel").exists():
        print("skipped: auditwheel is not installed: tools/wheel --install-tools")
        return 77
    shutil.rmtree(work, ignore_errors=True)
    environment = dict(os.environ, TROUPE_PROJECT_URL=URL)
    environment.pop("PYTHONPATH", None)
    print(run(sys.executable, "-B", ROOT / "tools/wheel", "--build", build, "--work", work, work / "wheels", env=environment), end="")
    wheel, = (work / "wheels").iterdir()
    libraries = check_contents(wheel, URL)
    print(f"{len(libraries)} libraries are in it, with their licences")

    run(sys.executable, "-m", "venv", "--system-site-packages", work / "fresh")  # where NumPy may be, and troupe is not
    python = work / "fresh" / "bin" / "python"
    old = work / "old_glibc"  # PEP 600: pip asks this module what the system is compatible with
    old.mkdir()
    (old / "_manylinux.py").write_text("def manylinux_compatible(major, minor, architecture):\n    return (major, minor) <= (2, 31)\n")
    install = (python, "-m", "pip", "install", "--no-index", "--no-deps", wheel)
    refused = run(*install, fails=True, env=dict(environment, PYTHONPATH=str(old)))
    assert "not a supported wheel on this platform" in refused, refused
    print("where glibc is 2.31:", next(line for line in refused.splitlines() if "not a supported" in line))
    run(*install, env=environment)
    told = run(python, "-I", HERE / "use_wheel.py", "--example", HERE.parent / "examples/all_reduce.py", cwd=work, env=environment)
    print(told, end="")
    print("skipped cases:", re.search(r"(\d+) skipped\n$", told)[1])  # for tools/summarise-tests
    return 0


if __name__ == "__main__":
    sys.exit(main())
