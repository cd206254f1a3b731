"""Pauses of handlers: a service that answers "later" is not called until then, by any worker.

Rule 1: a pause is neither a failure nor an attempt: the effect runs again under its key, and no try of its policy is
used.
Rule 2: it is for the name of a handler. The process that pauses claims no further work of that name from then on, and
others notice it within `PAUSES_READ_MS`, where the store has facts. What runs already continues.
Rule 3: the latest end counts. A pause is limited to `PAUSE_MS_MAX`: after that the handler is called, and may pause
again.
Rule 4: a store that cannot answer stops no worker: each continues with the pauses that it knows.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta

from interlock.errors import InterlockError, UsageError
from interlock.model.duration import parse_duration
from interlock.model.encoding.storable import storable_text
from interlock.model.limits import PAUSE_MS_MAX, PAUSE_MS_MIN
from interlock.ports.clock import Clock
from interlock.ports.store_facts import StoreFacts

PAUSES_READ_MS = 1_000
"""How long a process may not know of a pause of another one: a service that is overloaded gets that many more calls."""

PAUSED = "paused"
"""The code stored with the work that a handler has paused."""

FACT_PREFIX = "pause/"
"""The names of the facts: the remainder is the name of the handler, the value the end in milliseconds."""

_log = logging.getLogger("interlock.effects")


class HandlerPause(Exception):
    """What a handler raises to be called later: `raise attempt.pause(until=...)`."""

    def __init__(self, reason: str, *, wait_ms: int | None = None, until_ms: int | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.wait_ms = wait_ms
        self.until_ms = until_ms


def pause_of(until: object, reason: str) -> HandlerPause:
    """Return the pause until a time, or for a while. Raises UsageError for anything else."""
    text = storable_text(reason) if reason else "paused by its handler"
    if isinstance(until, timedelta):
        return HandlerPause(text, wait_ms=round(until.total_seconds() * 1000))
    if isinstance(until, str) and parse_duration(until) is not None:
        return HandlerPause(text, wait_ms=parse_duration(until))
    if isinstance(until, datetime) and until.tzinfo is not None:
        return HandlerPause(text, until_ms=round(until.timestamp() * 1000))
    what = "a datetime without a zone" if isinstance(until, datetime) else repr(until)[:60]
    hint = "pass a timedelta, a duration such as '30s', or a datetime with its zone"
    raise UsageError(f"invalid `until` of a pause: {what}", code="handler.pause", hint=hint)


def pause_end_ms(now_ms: int, *, wait_ms: int | None, until_ms: int | None) -> int:
    """Return when a pause ends, within its limits."""
    end_ms = now_ms + wait_ms if wait_ms is not None else until_ms or 0
    return min(max(end_ms, now_ms + PAUSE_MS_MIN), now_ms + PAUSE_MS_MAX)


class HandlerPauses:
    """The pauses of a store's handlers, as one process knows them."""

    def __init__(self, clock: Clock, facts: StoreFacts | None) -> None:
        self._clock = clock
        self._facts = facts
        self._ends: dict[str, int] = {}
        self._read_ms: int | None = None

    async def pause(self, name: str, end_ms: int) -> None:
        """Pause a handler, for every worker of the store."""
        if end_ms <= self._ends.get(name, 0):
            return
        self._ends[name] = end_ms
        _log.info("a handler is paused", extra={"handler": name, "until_ms": end_ms})
        if self._facts is not None:
            try:
                await self._facts.save_fact(f"{FACT_PREFIX}{name}", str(end_ms))
            except InterlockError as error:
                _log.warning("a pause cannot be stored", extra={"handler": name, "error": error.message})

    async def running_names(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names that are not paused."""
        now_ms = self._clock.now_ms()
        if self._facts is not None and (self._read_ms is None or not 0 <= now_ms - self._read_ms < PAUSES_READ_MS):
            self._read_ms = now_ms
            await self._read(self._facts, now_ms)
        if not self._ends:
            return names
        self._ends = {name: end_ms for name, end_ms in self._ends.items() if end_ms > now_ms}
        return tuple(each for each in names if each not in self._ends)

    def next_end_ms(self) -> int | None:
        """Return when the first pause ends; None when there is none."""
        return min(self._ends.values(), default=None)

    async def _read(self, facts: StoreFacts, now_ms: int) -> None:
        try:
            found = await facts.read_facts()
        except InterlockError as error:
            _log.warning("pauses cannot be read", extra={"error": error.message})
            return
        for name, end_ms in stored_pauses(found).items():
            if now_ms < end_ms <= now_ms + PAUSE_MS_MAX:  # a clock that was wrong must not pause for years
                self._ends[name] = max(end_ms, self._ends.get(name, 0))


def stored_pauses(facts: Mapping[str, str]) -> dict[str, int]:
    """Return the stored pauses, ended ones included: the name of the handler and the end."""
    return {
        name.removeprefix(FACT_PREFIX): int(value)
        for name, value in facts.items()
        if name.startswith(FACT_PREFIX) and value.isascii() and value.isdigit()
    }
