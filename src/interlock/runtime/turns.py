"""Turns: one step of an entity at a time in this process, so that its callers queue and never conflict.

Rule: an entity is in the table only while somebody steps it or waits to; an idle one costs nothing.
"""

from __future__ import annotations

from asyncio import Lock
from types import TracebackType

Busy = dict[str, tuple[Lock, int]]
"""Entities that are being stepped: the lock of each, and how many hold it or wait for it."""


class Turn:
    """`async with Turn(busy, entity)`: the only step of that entity meanwhile; in the order of asking."""

    __slots__ = ("_busy", "_entity", "_lock")

    def __init__(self, busy: Busy, entity: str) -> None:
        self._busy = busy
        self._entity = entity
        found = busy.get(entity)
        self._lock, waiting = found if found is not None else (Lock(), 0)
        busy[entity] = (self._lock, waiting + 1)

    async def __aenter__(self) -> None:
        try:
            await self._lock.acquire()
        except BaseException:  # cancelled while it waited
            self._leave()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        self._leave()

    def _leave(self) -> None:
        lock, waiting = self._busy[self._entity]
        if waiting == 1:
            del self._busy[self._entity]
        else:
            self._busy[self._entity] = (lock, waiting - 1)
