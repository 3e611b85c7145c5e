"""A strict type checker accepts correct uses, rejects wrong ones, and finds no error in the package itself."""
import ast
import pathlib
import re
import subprocess
import sys

import pytest

import troupe
import troupe.testing

HERE = pathlib.Path(__file__).resolve().parent
PACKAGE = HERE.parent / "troupe"
EXAMPLES = HERE.parent / "examples"
#: Libraries that may be missing here.
MISSING = "[mypy]\n[mypy-torch.*,cupy.*]\nignore_missing_imports = True\n"


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


@pytest.mark.parametrize("name", sorted(one.name for one in EXAMPLES.glob("*.py")))
def test_an_example_is_accepted(folder, name):
    options = folder / "options.ini"
    options.write_text(MISSING)
    said, status = check(folder, f"--config-file={options}", EXAMPLES / name)
    assert (said, status) == ("", 0)


def test_the_stubs_name_all_that_the_extension_module_has():
    stub = ast.parse((PACKAGE / "_troupe.pyi").read_text(encoding="utf-8"))
    special = ("__init__", "__await__", "__array_interface__", "__dlpack__", "__dlpack_device__")

    def names(body):
        return {one.name if hasattr(one, "name") else one.target.id: one for one in body if hasattr(one, "name") or hasattr(one, "target")}

    described = names(stub.body)
    module = troupe._troupe
    real = {name for name in vars(module) if not name.startswith("__")}
    assert real == {name for name in described if name in real or not name.startswith("_")}
    for name in sorted(real):
        kind = getattr(module, name)
        if not isinstance(kind, type):
            continue
        has = {one for one in vars(kind) if not one.startswith("__") or one in special}
        said = set(names(described[name].body))
        if "__init__" not in said:
            has.discard("__init__")  # the module alone makes it
        assert has == said, name


def test_every_misuse_is_rejected_where_it_is(folder):
    file = HERE / "typing" / "bad.py"
    expected = {(number, line.rpartition("  # ")[2]) for number, line in enumerate(file.read_text().splitlines(), 1)
                if "  # " in line}
    said, _ = check(folder, file)
    found = {(int(number), code) for number, code in re.findall(r"bad\.py:(\d+): error: .*\[([a-z-]+)\]$", said, re.M)}
    assert len(expected) > 20
    assert found == expected, said


def test_the_package_is_clean_itself(folder):
    options = folder / "options.ini"
    options.write_text(MISSING)
    said, status = check(folder, f"--config-file={options}", *sorted(PACKAGE.glob("*.py*i")), *sorted(PACKAGE.rglob("*.py")),
                         PACKAGE.parent / "troupe_pytest.py")
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


@pytest.mark.parametrize("module", [troupe, troupe.testing], ids=lambda module: module.__name__)
def test_every_public_name_says_what_it_is(module):
    import inspect
    without = []
    for name in module.__all__:
        one = getattr(module, name)
        parts = [] if not inspect.isclass(one) or issubclass(one, Exception) else inspect.getmembers(one)
        parts = [(f"{name}.{part}", value) for part, value in parts if not part.startswith("_")
                 and (callable(value) or inspect.isdatadescriptor(value))]
        for called, value in [(name, one), *parts]:
            text = inspect.getdoc(value) or ""
            signature = f"{called.rpartition('.')[2]}("  # the first line that pybind11 writes
            if not text.partition("\n")[2].strip() if text.startswith(signature) else not text.strip():
                without.append(called)
    assert without == []
