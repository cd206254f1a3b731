"""Admission: what a driver asks before it takes something on, so that many processes can stop as one."""

from __future__ import annotations

from collections.abc import Awaitable
from types import TracebackType
from typing import Protocol, runtime_checkable


class AdmissionPermit(Protocol):
    """Leave to be inside, until the `with` ends."""

    def __enter__(self) -> object:
        """Go in."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object:
        """Come out."""


class AdmissionGate(Protocol):
    """A lifecycle or a gate, seen from those who want in."""

    def try_enter(self) -> AdmissionPermit | None:
        """Leave to be inside while it is open; None once it drains."""


@runtime_checkable
class DrainableGate(AdmissionGate, Protocol):
    """A door that whoever works behind it may close for all."""

    def drain(self, *, timeout: float) -> Awaitable[object]:
        """Refuse everybody from now on; await it for the end, at most so many seconds."""

    async def closed(self) -> None:
        """Wait until it has closed."""
