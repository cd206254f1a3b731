"""Shared by the tests of queues: modes, messages, children."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from interlock.errors import MissingExtraError, UsageError
from interlock.shm.memory.modes import MODES, select_mode
from interlock.shm.queue.inbox import Inbox
from interlock.shm.queue.notifier import EventNotifier
from tests.support.eventually import PATIENCE_SECONDS, eventually_blocking

EVENTFD_MAX = (1 << 64) - 2
"""The maximum of an eventfd; one more notification does not fit."""


def working_modes() -> list[str]:
    """Return the modes that work on this machine."""
    before = os.environ.get("INTERLOCK_SHM")
    found = []
    try:
        for mode in MODES:
            os.environ["INTERLOCK_SHM"] = mode
            try:
                found.append(select_mode())
            except MissingExtraError:
                continue
    finally:
        if before is None:
            os.environ.pop("INTERLOCK_SHM")
        else:
            os.environ["INTERLOCK_SHM"] = before
    return [str(mode) for mode in found]


def until(claim: Callable[[], object], what: str = "it") -> None:
    """Wait for a condition, up to a limit."""
    eventually_blocking(claim, what)


def fork_child(work: Callable[[], object]) -> int:
    """Fork a child that runs `work`, keeps its result and waits to be killed. Returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(PATIENCE_SECONDS) + 10)  # if a test fails before it kills its child, the child still ends
    try:
        kept = work()  # keeps its locks until it is killed
        while kept is not fork_child:
            signal.pause()
    finally:
        os._exit(70)


def kill_child(pid: int) -> None:
    """Kill a child by its id, and wait for it."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def take_all(inbox: Inbox) -> list[bytes]:
    """Return all messages of an inbox."""
    found: list[bytes] = []
    while (batch := inbox.take()) is not None:
        found += batch
    return found


def notifications(notifier: EventNotifier) -> int:
    """Return the number of notifications since the last clear."""
    try:
        return os.eventfd_read(notifier.fd)
    except BlockingIOError:
        return 0


async def until_asleep(inbox: Inbox) -> None:
    """Wait until the consumer sleeps."""
    for _ in range(1_000_000):
        if inbox._region.words.load(inbox._asleep):
            return
        await asyncio.sleep(0)
    raise AssertionError("the consumer never slept")


def raises_code(code: str, error: type[Exception] = UsageError) -> pytest.RaisesExc[Exception]:
    """Expect an error with that code."""
    return pytest.RaisesExc(error, check=lambda raised: getattr(raised, "code", None) == code)
