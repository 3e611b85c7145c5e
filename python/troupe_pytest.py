"""The plugin of pytest: worlds for tests, on machines without a GPU. pytest finds it where troupe-runtime is installed.

    def test_sum(troupe_world):                                  # two ranks of the mock, in real time
        troupe_world.all_reduce([np.ones(4), np.ones(4)]).result()

    @pytest.mark.troupe(ranks=4, recovery_policy="keep_size")    # ranks, seed of virtual time, settings of troupe
    def test_hang(troupe_virtual, troupe_script):                # in virtual time, with a fault by a script
        troupe_script.on(1).operation(0).hang()
        assert isinstance(troupe_virtual.barrier().exception(), troupe.Error)
        assert troupe_virtual.run_until_ready(epoch=2, at_most=10.0)

A module of its own, because pytest loads plugins before every test run, and the package loads troupe's library.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Generator, Union

import pytest

if TYPE_CHECKING:
    from troupe import World
    from troupe.testing import FaultScript, MockWorld, VirtualWorld

#: The ranks of a world whose test names none.
RANKS = 2
#: How many of its last launches a failed test shows of each rank.
_SHOWN = 5
#: What a test's item has of this module: a list of ranks and world, and whether the test has passed.
_WORLDS, _PASSED = "_troupe_worlds", "_troupe_passed"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "troupe(ranks=2, seed=None, unused_faults=False, **settings): the world of troupe_world, troupe_mock or "
                   "troupe_virtual. seed: of virtual time. unused_faults: whether faults of the script may be left over. "
                   "settings: those of troupe.Runtime, for example recovery_policy='keep_size'.")


def _options_of(request: pytest.FixtureRequest) -> Dict[str, Any]:
    """Returns the marker's arguments; nearer markers come first. An indirect parameter is the number of ranks or a dict."""
    options: Dict[str, Any] = {}
    for marker in request.node.iter_markers("troupe"):
        if marker.args:
            raise pytest.UsageError(f"{request.node.nodeid}: the marker troupe takes names only: "
                                    f"@pytest.mark.troupe(ranks={marker.args[0]!r})")
        options = {**marker.kwargs, **options}
    given = getattr(request, "param", None)
    if isinstance(given, int):
        options["ranks"] = given
    elif given is not None:
        options.update(given)
    return options


def _make(request: pytest.FixtureRequest, script: "FaultScript", is_virtual: bool) -> Generator[Any, None, None]:
    from troupe.testing import MockWorld, VirtualWorld

    options = _options_of(request)
    unused_faults, seed = options.pop("unused_faults", False), options.pop("seed", None)
    ranks = options.pop("ranks", RANKS)
    made: "Union[MockWorld, VirtualWorld]"
    if is_virtual:
        made = VirtualWorld(ranks, script, seed, **options)
    elif seed is None:
        made = MockWorld(ranks, script, **options)
    else:
        raise pytest.UsageError(f"{request.node.nodeid}: only virtual time has a seed: use troupe_virtual")
    request.node.__dict__.setdefault(_WORLDS, []).append((ranks, made))
    with made:
        yield made
        left = script.waiting()
    if left and not unused_faults and request.node.__dict__.get(_PASSED):
        pytest.fail("faults of the script have not happened, so the test has not tested them: " + "; ".join(left)
                    + " (or mark it with unused_faults=True)", pytrace=False)


@pytest.fixture
def troupe_script() -> "FaultScript":
    """The script of faults of this test's world. A fault that has not happened at the end fails a test that has passed."""
    from troupe.testing import FaultScript

    return FaultScript()


@pytest.fixture
def troupe_mock(request: pytest.FixtureRequest, troupe_script: "FaultScript") -> "Generator[MockWorld, None, None]":
    """A troupe.testing.MockWorld, in real time: its world is ready, and it ends with the test."""
    yield from _make(request, troupe_script, False)


@pytest.fixture
def troupe_world(request: pytest.FixtureRequest, troupe_script: "FaultScript") -> "Generator[World, None, None]":
    """The troupe.World of a MockWorld, in real time. It is ready, and ends with the test."""
    for mock in _make(request, troupe_script, False):
        yield mock.world


@pytest.fixture
def troupe_virtual(request: pytest.FixtureRequest, troupe_script: "FaultScript") -> "Generator[VirtualWorld, None, None]":
    """A troupe.testing.VirtualWorld, in virtual time, on the test's thread. A test has one at most."""
    yield from _make(request, troupe_script, True)


def _report(item: pytest.Item, call: "pytest.CallInfo[None]") -> Generator[None, Any, None]:
    """Adds to the report of a failed test what its worlds have done."""
    outcome = yield
    if call.when != "call":
        return
    report = outcome.get_result()
    item.__dict__[_PASSED] = report.passed
    if not report.failed:
        return
    for ranks, made in item.__dict__.get(_WORLDS, ()):
        lines = [str(getattr(made, "world", made).status.text)]
        for rank in range(ranks):
            launched = made.launches(rank)
            lines += [f"rank {rank}: {one.text}" for one in launched[-_SHOWN:]] or [f"rank {rank}: no launch"]
        left = made.script.waiting()
        report.sections.append(("troupe", "\n".join(lines + [f"has not happened: {one}" for one in left])))


pytest_runtest_makereport = pytest.hookimpl(hookwrapper=True)(_report)  # a decorator without types in older versions
