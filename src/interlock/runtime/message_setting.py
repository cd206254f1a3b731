"""Whether entries are published: a fact of the store, which every process that writes to it follows.

Rule 1: a runtime that is opened with a bus sets the fact. From then on every process writes messages with its entries,
the command line and the console too; a process with a bus publishes them.
Rule 2: a process that runs already reads the fact again after `CHECKED_MS`.
Rule 3: the fact names the bus for people. It contains no password, and no process connects to a bus because of it.
Rule 4: a store without facts publishes the entries of the processes that have a bus.
"""

from __future__ import annotations

import json
from urllib.parse import urlsplit, urlunsplit

from interlock.errors import UnavailableError
from interlock.ports.clock import Clock
from interlock.ports.store import Store
from interlock.ports.store_facts import StoreFacts
from interlock.trust.audit import act_row

MESSAGES_FACT = "messages"

CHECKED_MS = 5_000
"""How long a process may follow an old setting: it changes once in the life of a store."""


class MessageSetting:
    """Whether the entries of a store are published, as one process knows it."""

    def __init__(self, facts: StoreFacts | None, clock: Clock, *, has_bus: bool = False) -> None:
        self._facts = facts
        self._clock = clock
        self._has_bus = has_bus
        self._read_ms: int | None = None
        self.is_on = has_bus

    @property
    def is_stale(self) -> bool:
        """Whether `refresh` has to be called before an entry is written."""
        if self._facts is None or self._has_bus:
            return False
        return self._read_ms is None or not 0 <= self._clock.now_ms() - self._read_ms < CHECKED_MS

    def fixed(self) -> MessageSetting:
        """Return the setting as it is known now, which is never stale: for a call that cannot wait for the store."""
        return MessageSetting(None, self._clock, has_bus=self.is_on)

    async def refresh(self) -> None:
        """Read the fact. Raises UnavailableError when it was never read and cannot be read now."""
        assert self._facts is not None
        try:
            self.is_on = MESSAGES_FACT in await self._facts.read_facts()
        except UnavailableError:
            if self._read_ms is None:
                raise
        self._read_ms = self._clock.now_ms()


async def turn_on(store: Store, bus: str | None) -> None:
    """Record that the entries of a store are published, to a bus with this address."""
    if store.facts is None:
        return
    value = json.dumps({} if bus is None else {"bus": shown_address(bus)})
    if (await store.facts.read_facts()).get(MESSAGES_FACT) != value:
        await store.facts.save_fact(MESSAGES_FACT, value)


async def turn_off(store: Store, *, by: str = "", now_ms: int = 0) -> None:
    """Record that the entries of a store are no longer published, and who did it. Messages that wait are kept."""
    if store.facts is not None:
        row = act_row("", "_messages.off", "entries are no longer published", by=by, now_ms=now_ms)
        await store.facts.save_fact(MESSAGES_FACT, None, audit=row)


async def bus_of(store: Store) -> str | None:
    """Return the address of the bus of a store, without secrets; empty when it has none; None: not published."""
    found = None if store.facts is None else (await store.facts.read_facts()).get(MESSAGES_FACT)
    if found is None:
        return None
    try:
        decoded = json.loads(found)
    except ValueError:
        return ""
    return str(decoded.get("bus", "")) if isinstance(decoded, dict) else ""


def shown_address(address: str) -> str:
    """Return the address of a bus without user, password, options and fragment: any of them may be a secret."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))[:1_000]
