"""Admission: what a driver asks before it takes something on, so that many processes can stop as one."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol


class Door(Protocol):
    """A lifecycle or a gate, seen from those who want in."""

    def try_enter(self) -> AbstractContextManager[Any] | None:
        """A permit to be inside while it is open, to be left by `with`; None once it drains."""
