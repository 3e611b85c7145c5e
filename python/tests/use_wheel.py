#!/usr/bin/env python3
"""Uses the installed wheel as its users do. It needs nothing but the wheel; what other packages make possible is tried if
they are installed. The last line is "N passed, N failed, N skipped".

Usage: use_wheel.py [--example all_reduce.py] [--require MODULE]...   a MODULE that must be there, e.g. numpy
       use_wheel.py --worker BACKEND | --torch-worker BACKEND         a process of a world, which this script starts
"""
import ctypes
import importlib.metadata
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time

PATIENCE = 60


class Skipped(Exception):
    """A step cannot be done here. The text says why."""


def fill(buffer, value):
    """Sets the elements of a buffer in host memory, of 32-bit integers."""
    address = buffer.__array_interface__["data"][0]
    count = buffer.__array_interface__["shape"][0]
    (ctypes.c_int32 * count).from_address(address)[:] = [value] * count


def elements(buffer):
    count = buffer.__array_interface__["shape"][0]
    return list((ctypes.c_int32 * count).from_address(buffer.__array_interface__["data"][0]))


def sums(world):
    """Returns the first elements of an all_reduce in which each rank contributes its number + 1."""
    import troupe
    values = [troupe.empty(world, rank, 4, "int32") for rank in world.local_ranks]
    host = troupe.empty_pinned(world, 4, "int32")
    for rank, value in zip(world.local_ranks, values):
        fill(host, rank + 1)
        world.rank(rank).copy(host, value).result(PATIENCE)
    world.all_reduce(values if len(values) > 1 else values[0]).result(PATIENCE)
    found = []
    for rank, value in zip(world.local_ranks, values):
        world.rank(rank).copy(value, host).result(PATIENCE)
        found.append(elements(host)[0])
    return found


def worker(backend):
    import troupe
    with troupe.Runtime(backend=backend, log_level="off") as runtime:
        world = runtime.form_world()
        print(f"rank {world.local_ranks[0]} of {world.size}: {sums(world)[0]}", flush=True)


def torch_worker(backend):
    import torch
    torch.distributed.init_process_group(backend)
    value = torch.full((4,), torch.distributed.get_rank() + 1)
    torch.distributed.all_reduce(value)
    print(f"rank {torch.distributed.get_rank()} of {torch.distributed.get_world_size()}: {value[0]}", flush=True)
    torch.distributed.destroy_process_group()


def said(*command):
    """Runs a command that must succeed, and returns what it prints."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True, timeout=PATIENCE)
    assert done.returncode == 0, f"{command} ended with status {done.returncode}:\n{done.stdout}"
    return done.stdout


def installed_program():
    """The script that pip has made: a user has its folder in PATH."""
    beside = pathlib.Path(sysconfig.get_path("scripts")) / "troupe"
    found = str(beside) if beside.exists() else shutil.which("troupe")
    assert found, f"pip has made no program troupe: {beside} does not exist"
    return found


def launched(worker_option, backend):
    """Runs this script's worker in two processes. Returns their lines, sorted."""
    lines = said(installed_program(), "launch", "-n", "2", "--no-prefix", "--", sys.executable, pathlib.Path(__file__).resolve(),
                 worker_option, backend)
    return sorted(line for line in lines.splitlines() if line.startswith("rank "))


def the_package_is_the_installed_one():
    import troupe
    assert pathlib.Path(troupe.__file__).parts[-3].endswith("-packages"), troupe.__file__
    version = importlib.metadata.version("troupe-runtime")
    assert troupe.__version__ == version, (troupe.__version__, version)
    assert pathlib.Path(troupe.__file__).with_name("py.typed").exists()
    with troupe.Controller(2) as controller:
        assert "TROUPE_JOIN_TOKEN" in controller.environment(0)
    return f"troupe {version}"


def four_mock_ranks_sum_without_numpy():
    import troupe
    with troupe.Runtime(backend="mock", mock_devices=4, log_level="off") as runtime:
        found = sums(runtime.form_world())
    assert found == [10] * 4, found
    return f"every sum is {found[0]}"


def the_example_of_the_documents():
    if not importlib.util.find_spec("numpy"):
        raise Skipped("NumPy is not installed")
    example = option("--example")
    if not example:
        raise Skipped("no --example is given")
    return said(sys.executable, example).strip()


def the_program_says_what_is_there():
    program = installed_program()
    assert said(program, "--version").startswith("troupe "), said(program, "--version")
    said(sys.executable, "-m", "troupe", "certs", "--help")
    said(program, "trace", "--help")  # a program of its own beside it, in Python
    last = said(program, "doctor").splitlines()[-1]
    assert "ready for" in last, last
    return last


def the_demo_verifies_every_result():
    lines = said(installed_program(), "demo", "--backend", "mock", "--requests", "200")
    found = [line for line in lines.splitlines() if "wrong 0, lost 0, doubled 0" in line]
    assert found, lines
    return found[-1]


def processes_sum_on_the_mock():
    lines = launched("--worker", "mock")
    assert lines == ["rank 0 of 2: 3", "rank 1 of 2: 3"], lines
    return "; ".join(lines)


def processes_sum_with_gloo():
    lines = launched("--worker", "gloo")
    assert lines == ["rank 0 of 2: 3", "rank 1 of 2: 3"], lines
    return "; ".join(lines)


def pytorch_uses_the_backend_troupe():
    entries = importlib.metadata.entry_points()
    group = "torch.distributed.backends"
    there = entries.select(group=group) if hasattr(entries, "select") else entries.get(group, [])
    if not any(entry.name == "troupe" for entry in there):
        raise Skipped(f"this wheel has no entry point troupe in {group}")
    if not importlib.util.find_spec("torch"):
        raise Skipped("PyTorch is not installed")
    lines = launched("--torch-worker", "troupe")
    assert lines == ["rank 0 of 2: 3", "rank 1 of 2: 3"], lines
    return "; ".join(lines)


def pytest_finds_the_fixtures():
    if not importlib.util.find_spec("pytest"):
        raise Skipped("pytest is not installed")
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "test_of_a_user.py"
        file.write_text("def test_world(troupe_world):\n    troupe_world.barrier().result()\n", encoding="utf-8")
        return said(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", file).strip().splitlines()[-1]


STEPS = [the_package_is_the_installed_one, four_mock_ranks_sum_without_numpy, the_example_of_the_documents,
         the_program_says_what_is_there, the_demo_verifies_every_result, processes_sum_on_the_mock, processes_sum_with_gloo,
         pytorch_uses_the_backend_troupe, pytest_finds_the_fixtures]


def option(name):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else None


def main():
    if option("--worker"):
        worker(option("--worker"))
        return 0
    if option("--torch-worker"):
        torch_worker(option("--torch-worker"))
        return 0
    required = option("--require")
    if required and not importlib.util.find_spec(required):
        print(f"{required} is required, and is not installed", file=sys.stderr)
        return 1
    passed, failed, skipped = 0, 0, 0
    for step in STEPS:
        name = step.__name__.replace("_", " ")
        begun = time.monotonic()
        try:
            told = step()
            passed += 1
            print(f"passed: {name} ({time.monotonic() - begun:.1f} s): {told}", flush=True)
        except Skipped as why:
            skipped += 1
            print(f"skipped: {name}: {why}", flush=True)
        except Exception as why:  # also what the package raises
            failed += 1
            print(f"FAILED: {name}: {type(why).__name__}: {str(why)[-1000:]}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    sys.exit(main())
