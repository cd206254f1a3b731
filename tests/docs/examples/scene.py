"""What the tests of the examples share: services that keep a ledger, and a way to wait for an entity."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from interlock.errors import RejectedError, UnavailableError
from interlock.runtime.runtime import Runtime
from tests.crash.chaos.ledger import Ledger, RefusedError
from tests.support.eventually import PATIENCE_SECONDS


class Services:
    """Bank, warehouse, carrier, network, disks: with a ledger, and with failures per action."""

    def __init__(self, **troubles: str) -> None:
        self.ledger = Ledger()
        self.troubles = troubles
        self.asked: list[str] = []
        self.may_go_on = asyncio.Event()
        self._heard = asyncio.Event()

    async def do(self, deed: str, key: str, entity: str) -> str:
        """Do it, past the trouble there is."""
        self.asked.append(deed)
        self._heard.set()
        trouble = self.troubles.get(deed)
        if trouble == "refused":
            raise RejectedError(f"no {deed}", code=f"{deed}.refused")
        if trouble == "never comes":
            await asyncio.Event().wait()
        if trouble == "waits":
            await self.may_go_on.wait()
        try:
            number = self.ledger.do(deed, key, entity)
        except RefusedError:
            raise RejectedError(f"no {deed}", code=f"{deed}.closed") from None
        if trouble == "never answers":
            await asyncio.Event().wait()
        if trouble == "answer lost":
            del self.troubles[deed]
            raise UnavailableError("cut", code="bank.unreachable")
        return number

    async def undo(self, name: str) -> None:
        """Make up for it, or refuse to."""
        self.asked.append(f"undo {name.rpartition('.')[2] if '.' in name else name.partition('-')[0]}")
        if "undo" in self.troubles:
            raise RejectedError("nobody is there", code="undo.refused")
        self.ledger.undo(name)

    async def find(self, key: str) -> str | None:
        """Look it up."""
        self.asked.append("find")
        self._heard.set()
        if "find" in self.troubles:
            raise RejectedError("the bank is closed", code="find.refused")
        return self.ledger.find(key)

    async def heard(self, *deeds: str) -> None:
        """Wait until all of these were asked for; fails after half a minute."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not set(deeds) <= set(self.asked):
                self._heard.clear()
                await self._heard.wait()

    def held(self, entity: str) -> list[str]:
        """What an entity has."""
        return sorted(each.operation for each in self.ledger.held(entity))


async def reached(runtime: Runtime, entity: str, states: Iterable[str]) -> list[str]:
    """Where an entity has been, up to the first of some states; fails after half a minute."""
    wanted, path = set(states), list[str]()
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for entry in runtime.watch(entity, poll_ms=50):
            path += [each for each in entry.after if each not in path[-1:]]
            if wanted.intersection(entry.after):
                return path
    raise AssertionError(f"{entity} was closed at {path}")
