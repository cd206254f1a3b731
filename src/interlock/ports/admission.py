"""Admission: what a runtime asks before it accepts a request or claims work, so that many processes can stop as one."""

from __future__ import annotations

from collections.abc import Awaitable
from types import TracebackType
from typing import Protocol, runtime_checkable


class AdmissionPermit(Protocol):
    """Permission to work, until the `with` ends."""

    def __enter__(self) -> object:
        """Start."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object:
        """End."""


class AdmissionGate(Protocol):
    """A lifecycle or a gate, as a runtime uses it."""

    def try_enter(self) -> AdmissionPermit | None:
        """Return a permit while the gate is open; None once it drains."""


@runtime_checkable
class DrainableGate(AdmissionGate, Protocol):
    """A gate that a runtime may close for all processes that share it."""

    def drain(self, *, timeout: float) -> Awaitable[object]:
        """Give out no more permits; the result waits until all are returned, for `timeout` seconds at most."""

    async def closed(self) -> None:
        """Wait until it has closed."""
