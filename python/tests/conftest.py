import pytest

import troupe.testing


@pytest.fixture(scope="module")
def mock():
    """A world of three mock ranks for tests that leave it as it was."""
    with troupe.testing.MockWorld(3) as made:
        yield made


@pytest.fixture
def world(mock):
    return mock.world
