"""A clock that stands until a test moves it: timers, backoffs and leases pass in no time, in their order.

Rule 1: waits end in the order in which they are due; between two of them everybody who can go on does so.
Rule 2: chance and tokens are counted, not drawn: the same test is the same run.
"""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush

TURNS_MAX = 10_000
"""Turns of the loop after which whoever still runs is taken to run for ever."""


class VirtualClock:
    """Time and chance for a runtime under test.

    clock = VirtualClock()
    async with interlock.open("memory:", charts=[order], clock=clock) as orders:
        await orders.create("order/1")
        await clock.advance(60_000)
    """

    def __init__(self, time_ms: int = 1_000_000) -> None:
        self.time_ms = time_ms
        self.chance = 0.5
        self._waits: list[tuple[float, int, asyncio.Future[None]]] = []
        self._count = 0

    def now_ms(self) -> int:
        """Where the test put it."""
        return self.time_ms

    async def sleep_ms(self, ms: float) -> None:
        """Wait until the test has moved the clock that far."""
        if ms <= 0:
            await asyncio.sleep(0)
            return
        self._count += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waits, (self.time_ms + ms, self._count, future))
        await future

    def jitter(self) -> float:
        """`chance`, as the test set it."""
        return self.chance

    def token(self) -> str:
        """The next of a row of names."""
        self._count += 1
        return f"token{self._count}"

    async def advance(self, ms: float = 0) -> None:
        """Let everybody go on, then move the clock from wait to wait up to `ms` from now."""
        target = self.time_ms + ms
        await self.settle()
        while self._waits and self._waits[0][0] <= target:
            due, _, future = heappop(self._waits)
            if future.done():  # whoever waited has gone
                continue
            self.time_ms = max(self.time_ms, round(due))
            future.set_result(None)
            await self.settle()
        self.time_ms = max(self.time_ms, round(target))

    async def settle(self) -> None:
        """Give the loop turns until nobody goes on by himself. Work in threads is not waited for."""
        loop = asyncio.get_running_loop()
        ready = loop._ready  # type: ignore[attr-defined]  # noqa: SLF001  the only way to see that nobody can go on
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
            if not ready:
                return
        raise AssertionError(f"somebody is still running after {TURNS_MAX:,} turns of the loop")
