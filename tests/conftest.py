"""Settings that hold for every test.

Rule 1: no test depends on how fast the machine is, so hypothesis has no deadline here.
Rule 2: a run can be repeated: pytest-randomly prints its seed, and hypothesis draws the same examples each time, so
that a check depends only on the change it checks. `make nightly` draws new examples and prints those that fail:
`--hypothesis-profile=explore`.
Rule 3: a background job of a shell ignores Ctrl-C, and so would every process that it starts; here it is not ignored.
Rule 4: timeouts are for hangs: minutes, the same for every test (`pyproject.toml`). A test waits for what it expects
with `tests.support.eventually`.
Rule 5: a run ends. pytest-timeout fails a test that hangs. If its cleanup hangs as well, its process ends, with the
stack of every thread.
Rule 6: a missing server or program is reported in one line for all tests that need it (`tests.support.summary`).
Rule 7: tests that kill processes or fill disks run one after the other, in one worker, so that they do not compete for
the cores with each other (`pytest -n 2`; pytest-xdist calls this a load group).
Rule 8: coverage is saved before a worker reports that it is finished: pytest-xdist ends its process ten seconds later,
and on a busy machine saving takes longer.
Rule 9: a test that ran with coverage does not run a second time: `--only-slow=PATH` leaves only the slow tests below a
path. A file without the word `slow` has none, and is not imported.
"""

import faulthandler
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import coverage
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
STORMS = Path(__file__).parent / "crash"
STDERR = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Keep a descriptor of the terminal, which pytest captures while a test runs, and do not ignore Ctrl-C."""
    config.stash[STDERR] = os.dup(sys.stderr.fileno())
    config.pluginmanager.register(SkipSummary())
    if config.getoption("--quick"):
        config.pluginmanager.register(Quick())
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _has_only_slow(config: pytest.Config, path: Path) -> bool:
    return any(path.is_relative_to(config.rootpath / each) for each in config.getoption("--only-slow"))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without slow tests, where only those are wanted."""
    is_left = collection_path.suffix == ".py" and _has_only_slow(config, collection_path)
    return True if is_left and "slow" not in collection_path.read_text(encoding="utf-8") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that are not slow, where only slow ones are wanted."""
    left = [each for each in items if not each.get_closest_marker("slow") and _has_only_slow(config, each.path)]
    if left:
        config.hook.pytest_deselected(items=left)
        dropped = set(left)
        items[:] = [each for each in items if each not in dropped]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Put the tests that use a whole core for long into one load group."""
    if item.path.is_relative_to(STORMS):
        item.add_marker(pytest.mark.xdist_group("crash"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End the process if a test runs two minutes longer than its timeout, because its cleanup hangs."""
    mark, given = item.get_closest_marker("timeout"), item.config.getoption("timeout")
    default = item.config.getini("timeout") if given is None else given
    allowed = float(mark.args[0] if mark and mark.args else default)
    if allowed and not item.config.getoption("usepdb"):
        faulthandler.dump_traceback_later(allowed + GRACE, exit=True, file=item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_sessionfinish() -> None:
    """Save what was traced."""
    current = coverage.Coverage.current()
    if current is not None:
        current.stop()
        current.save()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add options. Only this file is read early enough for that in a run of one folder."""
    parser.addoption("--only-slow", action="append", default=[], metavar="PATH", help="below it, run slow tests only")
    parser.addoption("--quick", action="store_true", help="leave out what is slow or starts processes and servers")
    parser.addoption(
        "--rewrite", action="store_true", help="write what happened into the scenario files; review the diff"
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether the actual output is written to scenario files instead of being compared with them."""
    return bool(request.config.getoption("--rewrite"))
