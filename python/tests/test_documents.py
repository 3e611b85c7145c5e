"""Runs the examples that docs/python.md shows, unchanged."""
import pathlib
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"


def run(*command):
    return subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name, says", [("all_reduce.py", "4 ranks: every sum is 10 ("),
                                        ("serving.py", "160 of 160 answered"),
                                        ("http_driver.py", "2 ranks: [0.0, 28.0, 56.0, 84.0]")])
def test_an_example_runs(name, says):
    done = run(EXAMPLES / name)
    assert done.returncode == 0, done.stderr
    assert says in done.stdout
    assert done.stderr == ""


def test_the_examples_tests_pass():
    done = run("-m", "pytest", "-q", "-p", "no:cacheprovider", EXAMPLES / "test_serving.py")
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


def test_torch_tensors_are_summed():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    done = run(EXAMPLES / "torch_tensors.py")
    assert done.returncode == 0, done.stderr


def test_every_example_is_shown():
    shown = (EXAMPLES.parent.parent / "docs" / "python.md").read_text(encoding="utf-8")
    for file in EXAMPLES.glob("*.py"):
        assert f"<!-- snippet: python/examples/{file.name} -->" in shown
