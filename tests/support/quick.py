"""The tests of `make quick`: those that need no other process, and little CPU.

Rule 1: a test that is about to start a process or a server is skipped at that moment. It needs no marker, and the
summary shows how many were skipped.
Rule 2: a test that uses more than `CPU_SECONDS_MAX` of CPU is listed at the end: mark it `slow`, and it is not
collected. Four times that fails the run; the reserve is for busy machines, where the same work takes more CPU time.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator
from typing import Any

import pytest

VARIABLE = "INTERLOCK_QUICK"
"""Set for the tests of a quick run, and for its workers."""

CPU_SECONDS_MAX = 0.5

STARTS = frozenset({"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"})
"""The audit events of Python for a new process."""

_CPU = "cpu_seconds"


class Quick:
    """The plugin of a quick run."""

    def __init__(self) -> None:
        os.environ[VARIABLE] = "1"
        self._is_testing = False
        sys.addaudithook(self._audit)

    def _audit(self, event: str, _: tuple[Any, ...]) -> None:
        if event in STARTS and self._is_testing:
            skip_in_quick("it starts a process")

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Deselect tests marked `slow`."""
        left = [each for each in items if each.get_closest_marker("slow") is not None]
        if left:
            config.hook.pytest_deselected(items=left)
            items[:] = [each for each in items if each.get_closest_marker("slow") is None]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        """Watch for new processes while a test runs."""
        self._is_testing = True
        try:
            return (yield)
        finally:
            self._is_testing = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Measure the CPU time of a test."""
        started = time.process_time()
        try:
            return (yield)
        finally:
            item.user_properties.append((_CPU, time.process_time() - started))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List the tests that use too much CPU."""
        for seconds, name in _expensive(terminalreporter):
            terminalreporter.write_line(f"quick: {seconds:.1f} CPU-seconds, mark it `slow`: {name}", yellow=True)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail the run for tests that are far above the limit."""
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        is_failed = reporter and any(seconds > 4 * CPU_SECONDS_MAX for seconds, _ in _expensive(reporter))
        if is_failed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def skip_in_quick(why: str) -> None:
    """Leave the running test to `make test`, if this is a quick run."""
    if VARIABLE in os.environ:
        pytest.skip(f"left to `make test`: {why}")


def _expensive(reporter: pytest.TerminalReporter) -> list[tuple[float, str]]:
    reports = [each for kind in ("passed", "failed") for each in reporter.stats.get(kind, [])]
    found = ((dict(each.user_properties).get(_CPU, 0.0), each.nodeid) for each in reports if each.when == "call")
    return sorted((each for each in found if each[0] > CPU_SECONDS_MAX), reverse=True)
