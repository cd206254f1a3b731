"""Settings that hold for every test.

Rule 1: no test depends on how fast the machine is, so hypothesis has no deadline here.
Rule 2: a run can be repeated: pytest-randomly prints its seed, and hypothesis draws the same examples each time, so
that a check speaks of the change it checks. New examples are drawn in `make nightly`, which prints what failed as a
blob: `--hypothesis-profile=explore`.
Rule 3: a shell's background job ignores Ctrl-C, and so would every process it starts; here it is heard all the same.
Rule 4: timeouts are for hangs: minutes, the same for every test (`pyproject.toml`). A test waits for what it expects
with `tests.support.eventually`.
Rule 5: a run ends. pytest-timeout fails a test that hangs; one whose cleaning up hangs as well takes its process with
it, and says where every thread stood.
Rule 6: what is missing on this machine is told in one line for all tests that need it (`tests.support.summary`).
"""

import faulthandler
import os
import signal
import sys
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.cli import call, folder
from tests.support.quick import Quick
from tests.support.summary import SkipSummary

__all__ = ("call", "folder")  # fixtures

EXPLORE = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", EXPLORE)
settings.register_profile("interlock", EXPLORE, derandomize=True)
settings.load_profile("interlock")

GRACE = 120.0
STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keeps the way to the terminal that pytest captures while a test runs, and hears Ctrl-C."""
    config.stash[STDERR] = os.dup(sys.stderr.fileno())
    config.pluginmanager.register(SkipSummary())
    if config.getoption("--quick"):
        config.pluginmanager.register(Quick())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Ends the process where a test outlives its own timeout by two minutes: the failure was not able to."""
    mark, given = item.get_closest_marker("timeout"), item.config.getoption("timeout")
    default = item.config.getini("timeout") if given is None else given
    allowed = float(mark.args[0] if mark and mark.args else default)
    if allowed and not item.config.getoption("usepdb"):
        faulthandler.dump_traceback_later(allowed + GRACE, exit=True, file=item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds options, which only this file can do for a run of one folder."""
    parser.addoption("--quick", action="store_true", help="leave out what is slow or starts processes and servers")
    parser.addoption(
        "--rewrite", action="store_true", help="write what happened into the scenario files; review the diff"
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether scenario files take the actual output instead of being compared with it."""
    return bool(request.config.getoption("--rewrite"))
