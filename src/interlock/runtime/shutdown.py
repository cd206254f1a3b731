"""The life of a process that works: it runs until a signal, drains, and ends once.

Rule 1: the first SIGTERM or SIGINT takes nothing more up, lets what is in hand finish until a deadline, and puts the
rest back. The second one ends the process at once, with 128 and the signal's number: what it had in hand is found by
its lease, under its key, so nothing is lost by that either.
Rule 2: behind a lifecycle that several processes share, a signal to one of them drains all; each of the others ends
when it has closed.
Rule 3: a signal handler only notes the signal: everything else happens in the loop.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

from msgspec import Struct

from interlock.errors import UsageError
from interlock.ports.admission import AdmissionGate, DrainableGate

SIGNALS = (signal.SIGTERM, signal.SIGINT)
DRAIN_MS = 30_000
"""How long a process that was told to stop lets work finish: as long as container platforms wait before they kill."""


class DrainReport(Struct, frozen=True):
    """How a drain ended: work finished, put back for others, and left running with its lease; requests without an
    answer in time; and how long it took.
    """

    finished: int
    put_back: int
    left: int
    unanswered: int
    took_ms: int


class Working(Protocol):
    """A runtime, as far as its end is concerned."""

    door: AdmissionGate | None

    async def drain(self, timeout_ms: int) -> DrainReport:
        """Take nothing more, and let what is in hand finish in time."""


class Signals:
    """`with Signals(heard)`: the first signal is told, the second ends the process.

    Raises UsageError outside the main thread, where Python hears no signals.
    """

    def __init__(self, heard: Callable[[int], object]) -> None:
        self._heard = heard
        self._before: dict[int, Any] = {}
        self.first: int | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            hint = "call it in the main thread, or call `drain` yourself"
            raise UsageError("only the main thread hears signals", code="signal.thread", hint=hint)
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._told)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _told(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature is Python's
        if self.first is not None:
            os._exit(128 + number)
        self.first = number
        self._heard(number)


async def until_signal(runtime: Working, *, drain_ms: int, told: Callable[[int], object]) -> DrainReport:
    """Work until a signal comes or the shared lifecycle closes; then drain, and tell how that went.

    `told` is called with the number of the signal when the draining begins, or with 0 when others began it.
    """
    loop, heard = asyncio.get_running_loop(), asyncio.Event()
    with Signals(lambda _: loop.call_soon_threadsafe(heard.set)) as signals:
        await until_heard(runtime, heard)
        told(signals.first or 0)
        return await runtime.drain(drain_ms)


async def until_heard(runtime: Working, heard: asyncio.Event) -> None:
    """Wait for a signal, or until the lifecycle that the runtime works behind has closed."""
    waits: set[asyncio.Future[Any]] = {asyncio.ensure_future(heard.wait())}
    if isinstance(runtime.door, DrainableGate):
        waits.add(asyncio.ensure_future(runtime.door.closed()))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()
