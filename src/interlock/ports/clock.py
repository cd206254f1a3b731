"""Time and chance, as inputs: the only module that may read a clock or make a random number."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from typing import Protocol


class Clock(Protocol):
    """What a driver needs of time and chance."""

    def now_ms(self) -> int:
        """The wall clock, in whole milliseconds since 1970."""

    async def sleep_ms(self, ms: float) -> None:
        """Wait."""

    def jitter(self) -> float:
        """A number from 0 to 1, for backoff."""

    def token(self) -> str:
        """A fresh unguessable name, for keys and ids that nobody gave."""


class SystemClock:
    """The machine's own clock and chance."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_ms(self, ms: float) -> None:
        await asyncio.sleep(ms / 1000)

    def jitter(self) -> float:
        return random.random()

    def token(self) -> str:
        return secrets.token_hex(16)
