"""What a parser under test offers to the harness: inputs made from a seed, and one attempt at an input.

Rule 1: `inputs` depends on its `Random` only, so a batch of inputs is repeated by its seed and number.
Rule 2: `attempt` depends on its bytes only. It returns a short text, the verdict, that is the same each time.
Rule 3: `attempt` returns for every input. Whatever it raises is a finding: the target itself catches the documented
        errors, and asserts what must hold for accepted and refused inputs.
"""

from __future__ import annotations

import asyncio
import atexit
from collections.abc import Coroutine, Iterator
from functools import cache
from random import Random
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

ACCEPTED = "accepted"
"""Verdicts of inputs that the parser took start with this word."""


class Target(Protocol):
    """One parser under test."""

    name: str

    def inputs(self, random: Random) -> Iterator[bytes]:
        """Yield inputs without end."""
        ...

    def attempt(self, data: bytes) -> str:
        """Parse one input, check what came out, and return the verdict."""
        ...


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the one event loop of this process: a new loop costs more than most attempts."""
    return _loop().run_until_complete(work)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    found = asyncio.new_event_loop()
    atexit.register(found.close)
    return found
