"""What the tests of queues share: the modes that work here, what waits in an inbox, and children to end."""

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
"""What an eventfd holds; one ring more does not fit."""


def working_modes() -> list[str]:
    """The modes that this machine has."""
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
    """Waits for a condition, within a bound."""
    eventually_blocking(claim, what)


def forked(work: Callable[[], object]) -> int:
    """A child that does some work, keeps what that gives, and waits to be killed; its pid."""
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(PATIENCE_SECONDS) + 10)  # a test that fails before it ends its child leaves nobody behind
    try:
        kept = work()  # what it holds, it holds until it is killed
        while kept is not forked:
            signal.pause()
    finally:
        os._exit(70)


def killed(pid: int) -> None:
    """Ends a child by its id, and waits for it."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def taken(inbox: Inbox) -> list[bytes]:
    """All that waits."""
    found: list[bytes] = []
    while (batch := inbox.take()) is not None:
        found += batch
    return found


def rings(bell: EventNotifier) -> int:
    """How often it was rung since it was read."""
    try:
        return os.eventfd_read(bell.fd)
    except BlockingIOError:
        return 0


async def asleep(inbox: Inbox) -> None:
    """Until the consumer sleeps."""
    for _ in range(1_000_000):
        if inbox._region.words.load(inbox._asleep):
            return
        await asyncio.sleep(0)
    raise AssertionError("the consumer never slept")


def refused(code: str, error: type[Exception] = UsageError) -> pytest.RaisesExc[Exception]:
    """An error of that code."""
    return pytest.RaisesExc(error, check=lambda raised: getattr(raised, "code", None) == code)
