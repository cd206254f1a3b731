"""Waiting for a condition, with one deadline for all tests.

The deadline is for hangs, not for speed: it is long enough for a machine on which many others work at the same time.
`INTERLOCK_TEST_PATIENCE` sets another number of seconds. pytest's own timeout must be longer (`pyproject.toml`).
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

PATIENCE_SECONDS = float(os.environ.get("INTERLOCK_TEST_PATIENCE", "300"))
"""How long a test waits for something that is about to happen."""

LOOK_SECONDS = 0.005
"""Between two looks: short against anything that tests wait for, and cheap."""


async def eventually(condition: Callable[[], Any | Awaitable[Any]], what: str = "the condition") -> Any:
    """Wait until a condition, plain or a coroutine function, returns something true; return that.

    Raises AssertionError after `PATIENCE_SECONDS`.
    """
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < end, f"{what} did not hold within {PATIENCE_SECONDS:g} s"
        await asyncio.sleep(LOOK_SECONDS)


def eventually_blocking(condition: Callable[[], Any], what: str = "the condition") -> Any:
    """Wait as `eventually` does, in code without an event loop."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not hold within {PATIENCE_SECONDS:g} s"
        time.sleep(LOOK_SECONDS)
    return found
