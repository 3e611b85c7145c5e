"""A strict type checker accepts correct uses, rejects wrong ones, and finds no error in the package itself."""
import pathlib
import re
import subprocess
import sys

import pytest

import troupe

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parent / "troupe"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of mypy and its cache, so that it reads the standard library and numpy once for all tests."""
    return tmp_path_factory.mktemp("mypy")


def check(folder, *files):
    """Returns the output and the exit status of `mypy --strict`."""
    if subprocess.run([sys.executable, "-m", "mypy", "--version"], capture_output=True).returncode != 0:
        pytest.skip("mypy is not installed: apt-get install mypy")
    done = subprocess.run([sys.executable, "-m", "mypy", "--strict", "--hide-error-context", "--no-error-summary",
                           "--show-error-codes", "--no-color-output", f"--cache-dir={folder}", *map(str, files)],
                          capture_output=True, text=True, cwd=folder, env={"MYPYPATH": str(PACKAGE.parent), "PATH": ""})
    assert done.stderr == ""
    return done.stdout, done.returncode


def test_right_uses_are_accepted(folder):
    said, status = check(folder, HERE / "typing" / "good.py")
    assert (said, status) == ("", 0)


def test_every_misuse_is_rejected_where_it_is(folder):
    file = HERE / "typing" / "bad.py"
    expected = {(number, line.rpartition("  # ")[2]) for number, line in enumerate(file.read_text().splitlines(), 1)
                if "  # " in line}
    said, _ = check(folder, file)
    found = {(int(number), code) for number, code in re.findall(r"bad\.py:(\d+): error: .*\[([a-z-]+)\]$", said, re.M)}
    assert len(expected) > 20
    assert found == expected, said


def test_the_package_is_clean_itself(folder):
    options = folder / "options.ini"  # for libraries that may be missing here
    options.write_text("[mypy]\n[mypy-torch.*,cupy.*]\nignore_missing_imports = True\n")
    said, status = check(folder, f"--config-file={options}", *sorted(PACKAGE.glob("*.py*i")), *sorted(PACKAGE.rglob("*.py")))
    assert (said, status) == ("", 0)


@pytest.mark.parametrize("owner", [troupe.World, troupe.Rank, troupe.Group, troupe.Driver])
def test_every_operation_is_documented_and_has_no_open_arguments(owner):
    import inspect
    for name, method in inspect.getmembers(owner, inspect.isfunction):
        if name.startswith("_"):
            continue
        assert method.__doc__, f"{owner.__name__}.{name}"
        kinds = {one.kind for one in inspect.signature(method).parameters.values()}
        assert inspect.Parameter.VAR_KEYWORD not in kinds, f"{owner.__name__}.{name}"
