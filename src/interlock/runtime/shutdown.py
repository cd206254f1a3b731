"""Shutdown: a process works until a signal, drains, and ends.

Rule 1: on the first SIGTERM or SIGINT the process claims no further work, lets running work finish until a deadline,
and requeues unfinished work. On the second signal it exits immediately, with 128 plus the signal's number. Nothing is
lost by that: the leases of its work expire, and another process runs it under the same key.
Rule 2: with a lifecycle that several processes share, a signal to one of them drains all. Each of the others ends when
the lifecycle has closed.
Rule 3: the signal handler only records the signal. Everything else happens in the event loop.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Awaitable, Callable
from types import FrameType, TracebackType
from typing import Any, Protocol, Self

from msgspec import Struct

from interlock.effects.waiting import first_of
from interlock.errors import UsageError
from interlock.ports.admission import AdmissionGate, DrainableGate

SIGNALS = (signal.SIGTERM, signal.SIGINT)
DRAIN_MS = 30_000
"""How long a process lets work finish after a signal: as long as container platforms wait before they kill it."""


class DrainReport(Struct, frozen=True):
    """How a drain ended: work that finished, was requeued for other processes, or still runs under its lease; requests
    without an answer in time; and how long the drain took.
    """

    finished: int
    requeued: int
    still_running: int
    unanswered: int
    duration_ms: int


class DrainableRuntime(Protocol):
    """What a shutdown needs of a runtime."""

    gate: AdmissionGate | None

    async def drain(self, timeout_ms: int) -> DrainReport:
        """Accept no new requests, and let what runs finish in time."""


class Signals:
    """`with Signals(callback)`: call back on the first signal, exit on the second.

    Raises UsageError outside the main thread, where Python delivers no signals.
    """

    def __init__(self, callback: Callable[[int], object]) -> None:
        self._callback = callback
        self._previous: dict[int, Any] = {}
        self.first: int | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            hint = "call it in the main thread, or call `drain` yourself"
            raise UsageError("signals can only be handled in the main thread", code="signal.thread", hint=hint)
        for number in SIGNALS:
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature is Python's
        if self.first is not None:
            os._exit(128 + number)
        self.first = number
        self._callback(number)


async def until_signal(runtime: DrainableRuntime, *, drain_ms: int, on_signal: Callable[[int], object]) -> DrainReport:
    """Work until a signal arrives or the shared lifecycle closes; then drain, and return the report.

    `on_signal` is called with the number of the signal when the drain starts, or with 0 when another process started
    it.
    """
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()
    with Signals(lambda _: loop.call_soon_threadsafe(arrived.set)) as signals:
        await until_stopped(runtime, arrived)
        on_signal(signals.first or 0)
        return await runtime.drain(drain_ms)


async def until_stopped(runtime: DrainableRuntime, arrived: asyncio.Event) -> None:
    """Wait for a signal, or until the lifecycle of the runtime has closed."""
    waits: list[Awaitable[object]] = [arrived.wait()]
    if isinstance(runtime.gate, DrainableGate):
        waits.append(runtime.gate.closed())
    await first_of(*waits)
