"""Admission: what a driver asks before it takes something on, so that many processes can stop as one."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol


class Pass(Protocol):
    """Leave to be inside, until the `with` ends."""

    def __enter__(self) -> object:
        """Go in."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> object:
        """Come out."""


class Door(Protocol):
    """A lifecycle or a gate, seen from those who want in."""

    def try_enter(self) -> Pass | None:
        """Leave to be inside while it is open; None once it drains."""
