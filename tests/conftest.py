"""How tests that await are run: one event loop per test, which fixtures share through `runner`."""

import asyncio
import inspect
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# A machine that is slow, or stands still for a while, is no fault of what is tested. The examples are the
# same each time: a change is judged by what it does, not by luck. HOLDFAST_EXPLORE=1 looks for others.
settings.register_profile(
    "unhurried",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=not os.environ.get("HOLDFAST_EXPLORE"),
)
settings.load_profile("unhurried")


def pytest_configure() -> None:
    """Whoever starts tests in the background starts them with these ignored, and with them all they start.

    Of the many processes that tests start, the first keeps what it has compiled for all others.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """The test's event loop."""
    with asyncio.Runner() as loop:
        yield loop


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    wanted = inspect.signature(pyfuncitem.obj).parameters
    story = pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in wanted})
    if "runner" in pyfuncitem.funcargs:
        pyfuncitem.funcargs["runner"].run(story)
    else:
        asyncio.run(story)
    return True
