"""Admission: who is let in to send, and how a runtime stops taking requests without losing one that it took.

Rule 1: open, then draining; it only moves forward. Once it drains, a request is refused before anything of it was read
or written: the same key elsewhere, or later, is safe.
Rule 2: behind a door (a lifecycle that several processes share) a request also holds a permit of that door.
Rule 3: results, timers and sends of entities are not requests: they belong to work in hand, which is let finish.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING

from interlock.errors import UnavailableError

if TYPE_CHECKING:
    from interlock.ports.admission import AdmissionGate, AdmissionPermit
    from interlock.ports.clock import Clock


class Admission:
    """Lets requests in, one `with` each, and counts those inside."""

    def __init__(self, door: AdmissionGate | None) -> None:
        self._door = door
        self._inside = 0
        self._empty = asyncio.Event()
        self._draining = False

    def admitted(self) -> AdmissionPermit:
        """Leave to send, used as a `with`. Raises UnavailableError once this process takes nothing more."""
        permit: AdmissionPermit | None = None
        if not self._draining:
            if self._door is None:
                return self
            permit = self._door.try_enter()
        if permit is None:
            hint = "send to another process, with the same key"
            raise UnavailableError("this process takes nothing more: it drains", code="runtime.draining", hint=hint)
        return _Behind(self, permit)

    async def drain(self, timeout_ms: float, clock: Clock) -> int:
        """Let nobody in any more, and wait until those inside are out, for so long at most; give how many are not."""
        self._draining = True
        if self._inside:
            waits = {asyncio.ensure_future(self._empty.wait()), asyncio.ensure_future(clock.sleep_ms(timeout_ms))}
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waits:
                    each.cancel()
        return self._inside

    def __enter__(self) -> None:
        self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._inside -= 1
        if self._draining and not self._inside:
            self._empty.set()


class _Behind:
    """Inside, and behind a door."""

    __slots__ = ("_admission", "_permit")

    def __init__(self, admission: Admission, permit: AdmissionPermit) -> None:
        self._admission = admission
        self._permit = permit

    def __enter__(self) -> None:
        self._permit.__enter__()
        self._admission.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._admission.__exit__(kind, error, trace)
        self._permit.__exit__(kind, error, trace)
