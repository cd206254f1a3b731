"""A clock for tests: it stands still until the test moves it, and hours pass in milliseconds.

Rule 1: sleeps end in the order in which they are due. Before each of them, everything that can run without time passing
runs to its end, in the event loop and in the threads of a store.
Rule 2: the clock jumps from one due time to the next; nothing happens between two jumps.
Rule 3: a loop that only polls (`ports.clock.wait_to_poll`) waits twice as long each time while nothing but polls
happens, so 48 idle hours cost a few dozen wake-ups. Something happens when a sleep ends, when a signal wakes a polling
loop, and when the test calls `advance`; from then on each loop polls at its own interval again.
Rule 4: when a sleep ends, and at the end of `advance`, loops whose interval is over poll first, those with the longest
interval before the others: a heartbeat is never late.
Rule 5: a handler in a thread runs to its end before time passes, unless it takes longer than `handler_seconds`.
Rule 6: jitter and tokens are fixed, not random: the same test is the same run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any
from weakref import WeakSet

from interlock.ports.threads import handler_calls, pending_thread_calls

TURNS_MAX = 10_000
"""Turns of the event loop without time passing: a task that still runs after that is assumed to run forever."""

THREAD_SECONDS_MAX = 300.0
"""Real seconds that a store's thread may take for one call. It detects hangs: a loaded machine needs far less."""

HANDLER_SECONDS = 2.0
"""Real seconds for which the clock waits for a handler in a thread; one that takes longer hangs on purpose."""

AUTOJUMP_IDLE_MS = 60_000
"""How far `autojump` moves the clock for polls alone. Without this bound, idle loops would move it forever."""


class VirtualClock:
    """Time, jitter and tokens for a runtime under test.

    clock = VirtualClock()
    async with interlock.open("memory:", charts=[order], clock=clock) as orders:
        await orders.create("order/1")
        await clock.advance(60_000)

    With `autojump=True` the test does not move the clock: as soon as every task waits, the clock jumps to the next due
    time. It needs the event loop of the standard library, and one loop for the runtime and the test.
    """

    def __init__(
        self, time_ms: int = 1_000_000, *, autojump: bool = False, handler_seconds: float = HANDLER_SECONDS
    ) -> None:
        self.time_ms = time_ms
        self.chance = 0.5
        self.jumps = 0
        self._autojump = autojump
        self._handler_seconds = handler_seconds
        self._hanging: WeakSet[asyncio.Future[Any]] = WeakSet()
        self._sleeps: list[tuple[float, int, asyncio.Future[None]]] = []
        self._polls: dict[asyncio.Future[None], _Poll] = {}
        self._count = 0
        self._active_ms: float = time_ms
        self._moved_ms = 0.0
        self._advancing = 0
        self._driver: asyncio.Task[None] | None = None

    def now_ms(self) -> int:
        """Return the virtual time."""
        return self.time_ms

    async def sleep_ms(self, ms: float) -> None:
        """Wait until the clock has moved that far."""
        if ms <= 0:
            await asyncio.sleep(0)
            return
        await self._sleep(self._future(), ms)

    async def wait_to_poll(
        self, every_ms: float, *, due_ms: float | None = None, at_most_ms: float | None = None
    ) -> float:
        """Wait between two looks of a loop; return how far the clock moved. See `ports.clock.wait_to_poll`."""
        if every_ms <= 0 or (due_ms is not None and due_ms <= every_ms):
            ms = every_ms if due_ms is None else min(every_ms, due_ms)
            await self.sleep_ms(ms)
            return ms
        future, moved_ms = self._future(), self._moved_ms
        self._polls[future] = _Poll(future, self.time_ms, every_ms, at_most_ms)
        try:
            if due_ms is None:
                self._start_driver()
                await future
            else:
                await self._sleep(future, due_ms)
        except asyncio.CancelledError:
            self._active_ms = self.time_ms  # its loop was woken by something else
            raise
        finally:
            self._polls.pop(future, None)
        return self._moved_ms - moved_ms

    def jitter(self) -> float:
        """Return `chance`, as the test set it."""
        return self.chance

    def token(self) -> str:
        """Return the next of a series of names."""
        self._count += 1
        return f"token{self._count}"

    async def advance(self, ms: float = 0) -> None:
        """Let everything run that can, then move the clock by `ms`, from one due time to the next."""
        target = self.time_ms + ms
        self._advancing += 1
        try:
            self._active_ms = self.time_ms
            await self.settle()
            while (stop := self._next_stop()) is not None and stop <= target:
                await self._jump(stop)
            await self._poll_at(target)
        finally:
            self._advancing -= 1
        self._start_driver()

    async def settle(self) -> None:
        """Wait until every task waits for time to pass, and no thread of a store or a handler works for this loop.

        A handler in a thread that takes longer than `handler_seconds` is no longer waited for: it may hang on purpose.
        Raises AssertionError when a task keeps running, or a store does not answer.
        """
        for _ in range(TURNS_MAX):
            if await self._is_idle():
                return
        raise AssertionError(f"a task is still running after {TURNS_MAX:,} turns of the event loop")

    async def _is_idle(self) -> bool:
        """Give the loop one turn, or wait for a thread; return whether nothing is left to run."""
        loop = asyncio.get_running_loop()
        ready = loop._ready  # type: ignore[attr-defined]  # noqa: SLF001  asyncio has no other sign that all tasks wait
        await asyncio.sleep(0)
        if ready:
            return False
        calls = list(pending_thread_calls(loop))
        if not calls:
            return not await self._wait_for_handlers(loop)
        done, _ = await asyncio.wait(calls, timeout=THREAD_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            raise AssertionError(f"a store has not answered within {THREAD_SECONDS_MAX:g} seconds")
        return False

    async def _wait_for_handlers(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Wait until a handler in a thread has ended; return False when none runs, but those that hang."""
        running = [each for each in handler_calls(loop) if not each.done() and each not in self._hanging]
        if not running:
            return False
        done, pending = await asyncio.wait(running, timeout=self._handler_seconds, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            self._hanging.update(pending)
        return True

    @contextmanager
    def jumping(self) -> Iterator[None]:
        """For a block, jump to the next due time whenever every task waits, as with `autojump`."""
        before, self._autojump = self._autojump, True
        self._start_driver()
        try:
            yield
        finally:
            self._autojump = before

    def _future(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        pending_thread_calls(loop)  # from now on they are counted
        handler_calls(loop)
        return loop.create_future()

    async def _sleep(self, future: asyncio.Future[None], ms: float) -> None:
        self._count += 1
        heappush(self._sleeps, (self.time_ms + ms, self._count, future))
        self._start_driver()
        await future

    # Jumps

    def _due_ms(self) -> float | None:
        """Return when the next sleep ends."""
        while self._sleeps and self._sleeps[0][2].done():  # cancelled, or a poll that has ended before
            heappop(self._sleeps)
        return self._sleeps[0][0] if self._sleeps else None

    def _next_stop(self) -> float | None:
        """Return when the next sleep ends or the next loop polls."""
        due_ms = self._due_ms()
        polls = (poll.next_ms(self._active_ms) for poll in self._polls.values() if not poll.future.done())
        stop = min(polls, default=due_ms)
        return stop if due_ms is None or stop is None else min(due_ms, stop)

    async def _jump(self, stop: float) -> None:
        """Move the clock to a stop, and run what is due there."""
        due_ms = self._due_ms()
        if due_ms is None or stop < due_ms:
            polls = [poll for poll in self._polls.values() if poll.next_ms(self._active_ms) <= stop]
            if any(poll.is_over(stop - 1) for poll in polls):  # stretched: then all that are stretched poll together
                await self._poll_at(stop)
            else:
                self._move_to(stop)
                await self._poll(polls)
            return
        self._active_ms = due_ms
        await self._poll_at(due_ms)
        if self._due_ms() == due_ms:  # unless the polls have ended that sleep
            _, _, future = heappop(self._sleeps)
            future.set_result(None)
            await self.settle()

    async def _poll_at(self, time_ms: float) -> None:
        """Move the clock, and let every loop poll whose interval is over."""
        self._move_to(time_ms)
        await self._poll([poll for poll in self._polls.values() if poll.is_over(time_ms)])

    async def _poll(self, polls: list[_Poll]) -> None:
        for each in sorted(polls, key=lambda poll: -poll.every_ms):
            if not each.future.done():
                each.future.set_result(None)
                await self.settle()

    def _move_to(self, time_ms: float) -> None:
        before_ms, self.time_ms = self.time_ms, max(self.time_ms, round(time_ms))
        self._moved_ms += self.time_ms - before_ms
        self.jumps += self.time_ms > before_ms

    # Autojump

    def _start_driver(self) -> None:
        if self._autojump and not self._advancing and (self._driver is None or self._driver.done()):
            self._active_ms = self.time_ms
            self._driver = asyncio.get_running_loop().create_task(self._drive())

    async def _drive(self) -> None:
        """Jump whenever every task waits. Ends when nothing is due, or while the test moves the clock itself."""
        while True:
            while not await self._is_idle():
                if self._advancing:  # the two would keep each other from ever seeing an idle loop
                    return
            stop = self._next_stop()
            if self._advancing or stop is None or not self._autojump:
                return
            if self._due_ms() is None and stop > self._active_ms + AUTOJUMP_IDLE_MS:
                return
            await self._jump(stop)


@dataclass(frozen=True, slots=True)
class _Poll:
    """One wait of a polling loop: when it started, its interval, and how far the interval may be stretched."""

    future: asyncio.Future[None]
    began_ms: float
    every_ms: float
    at_most_ms: float | None

    def next_ms(self, active_ms: float) -> float:
        """Return when to poll, if something last happened at `active_ms`: the longer ago, the later."""
        wait_ms = max(self.every_ms, self.began_ms - active_ms)
        if self.at_most_ms is not None:
            wait_ms = min(wait_ms, self.at_most_ms)
        return self.began_ms + wait_ms

    def is_over(self, time_ms: float) -> bool:
        """Return whether the interval is over, not stretched."""
        return self.began_ms + self.every_ms <= time_ms
