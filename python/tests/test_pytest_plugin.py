"""The plugin of pytest: each case writes a test file and runs pytest on it, as a user does."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
HEAD = "import numpy as np\nimport pytest\nimport troupe\n"


def run(folder, text, *options, plugin=True):
    """Returns the output of pytest on a file of this text, and its exit status. plugin: whether it is named."""
    file = folder / "test_of_a_user.py"
    file.write_text(HEAD + text, encoding="utf-8")
    named = ["-p", "troupe_pytest"] if plugin else []
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *named, *options, str(file)],
                          capture_output=True, text=True, cwd=folder, timeout=120,
                          env=dict(os.environ, PYTHONPATH=os.pathsep.join([str(folder), *sys.path])))
    return done.stdout + done.stderr, done.returncode


def test_a_world_in_real_time_is_a_line(tmp_path):
    said, status = run(tmp_path, """
def test_sum(troupe_world):
    values = [np.ones(4), np.ones(4)]
    troupe_world.all_reduce(values).result()
    assert values[1][0] == 2 and troupe_world.size == 2

@pytest.mark.troupe(ranks=3)
class TestMarked:
    def test_the_marker_of_a_class(self, troupe_mock):
        troupe_mock.world.barrier().result()
        assert troupe_mock.world.size == 3 and len(troupe_mock.launches(2)) == 1

    @pytest.mark.troupe(ranks=4)
    def test_the_marker_of_a_test(self, troupe_world):
        assert troupe_world.size == 4

@pytest.mark.parametrize("troupe_world", [1, {"ranks": 5}], indirect=True)
def test_given(troupe_world):
    assert troupe_world.size in (1, 5)

ended = []

def test_lives(troupe_world):
    ended.append(troupe_world)

def test_has_ended():
    assert ended[0].status.phase == "stopped"
""")
    assert status == 0 and "7 passed" in said, said


def test_virtual_time_and_faults_by_a_script(tmp_path):
    said, status = run(tmp_path, """
@pytest.mark.troupe(ranks=3, recovery_policy="keep_size", seed=7)
def test_hang(troupe_virtual, troupe_script):
    troupe_script.on(1).operation(0).hang()
    assert isinstance(troupe_virtual.barrier().exception(), troupe.Error)
    assert troupe_virtual.run_until_ready(epoch=2, at_most=10.0) and troupe_virtual.now < 10

def test_fault(troupe_world, troupe_script):
    troupe_script.on(1).operation(0).fail()
    assert isinstance(troupe_world.barrier().exception(30), troupe.CommunicatorFailed)
""")
    assert status == 0 and "2 passed" in said, said


def test_a_fault_that_has_not_happened_fails_the_test(tmp_path):
    said, status = run(tmp_path, """
def test_forgotten(troupe_world, troupe_script):
    troupe_script.on(1).operation(3).fail()
    troupe_world.barrier().result()

@pytest.mark.troupe(unused_faults=True)
def test_meant(troupe_world, troupe_script):
    troupe_script.on(1).operation(3).fail()
""")
    assert status == 1 and "2 passed, 1 error" in said, said
    assert "faults of the script have not happened" in said and "rank 1, operation 3" in said


def test_a_failure_shows_what_the_world_has_done(tmp_path):
    said, status = run(tmp_path, """
def test_wrong(troupe_world, troupe_script):
    troupe_script.on(0).operation(9).fail()
    troupe_world.all_reduce([np.ones(4, "float32"), np.ones(4, "float32")]).result()
    assert False, "wrong"
""")
    assert status == 1 and "1 failed" in said, said
    for text in ("- troupe -", "world of 2 is ready", "rank 1: all_reduce of 4 f32, sum", "has not happened: rank 0, operation 9"):
        assert text in said, said
    assert "1 failed in" in said  # the fault that is left is no second failure


def test_wrong_options_are_refused_by_name(tmp_path):
    said, status = run(tmp_path, """
@pytest.mark.troupe(rank=3)
def test_unknown(troupe_world): pass

@pytest.mark.troupe(3)
def test_unnamed(troupe_world): pass

@pytest.mark.troupe(seed=3)
def test_seed(troupe_world): pass
""", "--strict-markers")
    assert status == 1 and "3 errors" in said, said
    assert "unknown setting 'rank'; the nearest is 'ranks'" in said
    assert "takes names only: @pytest.mark.troupe(ranks=3)" in said and "only virtual time has a seed" in said


def test_the_plugin_loads_no_library_before_a_test_needs_it():
    done = subprocess.run([sys.executable, "-c", "import sys, troupe_pytest; assert 'troupe' not in sys.modules"],
                          capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
    assert done.returncode == 0, done.stderr


def test_it_is_found_where_the_package_is_installed(tmp_path):
    settings = (HERE.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert 'py-modules = ["troupe_pytest"]' in settings
    name, module = re.search(r'\[project.entry-points.pytest11\]\n(\w+) = "(\w+)"', settings).groups()
    installed = tmp_path / "troupe_runtime-0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: troupe-runtime\nVersion: 0\n", encoding="utf-8")
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{name} = {module}\n", encoding="utf-8")
    for is_named in (False, True):  # twice is once
        said, status = run(tmp_path, "def test_it(troupe_world): assert troupe_world.size == 2\n", plugin=is_named)
        assert status == 0 and "1 passed" in said, said
