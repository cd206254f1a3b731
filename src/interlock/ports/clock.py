"""Time and chance, as inputs: the only module that may read a clock or make a random number."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, runtime_checkable


class Clock(Protocol):
    """What a runtime needs of time and chance."""

    def now_ms(self) -> int:
        """Return the wall clock, in whole milliseconds since 1970."""

    async def sleep_ms(self, ms: float) -> None:
        """Wait."""

    def jitter(self) -> float:
        """Return a random number from 0 to 1, for backoff."""

    def token(self) -> str:
        """Return a new unguessable name, for keys and ids that the caller did not give."""


class SystemClock:
    """The clock and the random numbers of the machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def sleep_ms(self, ms: float) -> None:
        await asyncio.sleep(ms / 1000)

    def jitter(self) -> float:
        return random.random()

    def token(self) -> str:
        return secrets.token_hex(16)


def stopwatch_ns() -> int:
    """Return nanoseconds from an arbitrary start that never go back, to measure how long something took."""
    return time.perf_counter_ns()


def random_bytes(count: int) -> bytes:
    """Return new random bytes, for keys that the product gives to users. A test clock does not change them."""
    return secrets.token_bytes(count)


@runtime_checkable
class PollingClock(Protocol):
    """A clock that knows which waits are polls: a test clock skips polls that can find nothing."""

    async def wait_to_poll(
        self, every_ms: float, *, due_ms: float | None = None, at_most_ms: float | None = None
    ) -> float:
        """Wait as the function `wait_to_poll` describes."""


@runtime_checkable
class JumpingClock(Protocol):
    """A clock that can move itself: a test clock does so while a runtime closes, since its test waits for that."""

    def jumping(self) -> AbstractContextManager[None]:
        """For a block, move to the next due time whenever every task waits."""


def jumping(clock: Clock) -> AbstractContextManager[None]:
    """Let a test clock move itself for a block; nothing for every other clock."""
    return clock.jumping() if isinstance(clock, JumpingClock) else nullcontext()


async def wait_to_poll(
    clock: Clock, every_ms: float, *, due_ms: float | None = None, at_most_ms: float | None = None
) -> float:
    """Wait between two looks of a loop, and return how many milliseconds the clock meant to let pass.

    `every_ms`: the interval of the loop. `due_ms`: how long until something is known to be due; the wait ends then.
    `at_most_ms`: how far a test clock may stretch the interval while nothing but polls happens (None: without limit).
    Every other clock sleeps for the interval, or until something is due.
    """
    if isinstance(clock, PollingClock):
        return await clock.wait_to_poll(every_ms, due_ms=due_ms, at_most_ms=at_most_ms)
    ms = every_ms if due_ms is None else min(every_ms, due_ms)
    await clock.sleep_ms(ms)
    return ms
