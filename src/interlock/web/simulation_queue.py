"""The queue of simulations: few are played at once, and one person has a part of those that wait."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from interlock.errors import UnavailableError
from interlock.model.limits import LAB_RUNNING_MAX, LAB_WAITING_MAX, LAB_WAITING_PERSON_MAX
from interlock.web.errors import HttpProblem


class LabQueue:
    """The simulations of one server that are played or wait."""

    def __init__(self) -> None:
        self._running = asyncio.Semaphore(LAB_RUNNING_MAX)
        self._held: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, who: str) -> AsyncIterator[None]:
        """Wait for a turn. Raises HttpProblem when a person has too many, UnavailableError when too many wait."""
        if self._held[who] >= LAB_WAITING_PERSON_MAX:
            detail = f"{self._held[who]} simulations of `{who}` are played or wait"
            raise HttpProblem(429, "Too many simulations", detail, code="lab.full", hint="wait for one to end")
        if self._held.total() >= LAB_RUNNING_MAX + LAB_WAITING_MAX:
            raise UnavailableError("too many simulations wait for their turn", code="lab.full", hint="try again later")
        self._held[who] += 1
        try:
            async with self._running:
                yield
        finally:
            self._held[who] -= 1
            if not self._held[who]:
                del self._held[who]
