"""A store of each kind for each test."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.domain.clock import FakeClock
from holdfast.store.ports import Store
from tests.conformance.factories import FACTORIES, StoreHome


@pytest.fixture(params=sorted(FACTORIES))
def home(request: pytest.FixtureRequest, tmp_path: Path, runner: asyncio.Runner) -> Iterator[StoreHome]:
    """The content of a test; open it as often as needed."""
    place = FACTORIES[request.param](tmp_path / "content")
    yield place
    runner.run(place.close())


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(home: StoreHome, runner: asyncio.Runner, clock: FakeClock) -> Store:
    """An open store, whose time stands still unless the test moves `clock`."""
    return runner.run(home.open(clock))
