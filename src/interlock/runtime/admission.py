"""Admission of requests: how a runtime stops accepting requests without losing one that it accepted.

Rule 1: it is open, then draining, and never opens again. While it drains, a request is refused before anything was read
or written, so the same key is safe to send elsewhere or later.
Rule 2: with a gate (a lifecycle that several processes share), a request also holds a permit of that gate.
Rule 3: results, timers and messages between entities are not requests. They belong to running work, which may finish.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from types import TracebackType
from typing import TYPE_CHECKING

from interlock.effects.waiting import first_of
from interlock.errors import UnavailableError

if TYPE_CHECKING:
    from interlock.ports.admission import AdmissionGate, AdmissionPermit
    from interlock.ports.clock import Clock


class Admission:
    """Admits requests, one `with` each, and counts those in progress."""

    def __init__(self, gate: AdmissionGate | None) -> None:
        self._gate = gate
        self._inside = 0
        self._empty = asyncio.Event()
        self._draining = False

    def admit(self) -> AdmissionPermit:
        """Return a permit, used in a `with`. Raises UnavailableError while the runtime drains."""
        permit: AdmissionPermit | None = None
        if not self._draining:
            if self._gate is None:
                return self
            permit = self._gate.try_enter()
        if permit is None:
            raise _draining_error()
        return _GatedPermit(self, permit)

    def of_any_thread(self) -> ThreadAdmission:
        """Return the admission of requests from other threads, which a drain refuses but does not wait for."""
        return ThreadAdmission(lambda: self._draining, self._gate)

    async def drain(self, timeout_ms: float, clock: Clock) -> int:
        """Refuse new requests, wait for those in progress until the timeout, and return how many are left."""
        self._draining = True
        if self._inside:
            await first_of(self._empty.wait(), clock.sleep_ms(timeout_ms))
        return self._inside

    def __enter__(self) -> None:
        self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        self._inside -= 1
        if self._draining and not self._inside:
            self._empty.set()


_FREE: AdmissionPermit = nullcontext()


class ThreadAdmission:
    """Admits requests of any thread."""

    def __init__(self, is_draining: Callable[[], bool], gate: AdmissionGate | None) -> None:
        self._is_draining = is_draining
        self._gate = gate

    def admit(self) -> AdmissionPermit:
        """As `Admission.admit`."""
        if self._is_draining():
            raise _draining_error()
        if self._gate is None:
            return _FREE
        permit = self._gate.try_enter()
        if permit is None:
            raise _draining_error()
        return permit


class _GatedPermit:
    """A permit that also holds one of the gate."""

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


def _draining_error() -> UnavailableError:
    message = "the runtime is draining and accepts no new events"
    hint = "send the event to another process, with the same key"
    return UnavailableError(message, code="runtime.draining", hint=hint)
