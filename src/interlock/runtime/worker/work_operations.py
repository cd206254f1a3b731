"""The desk: what a person may do about work that waits, and a note of who did it.

Rule 1: only dead letters are retried or dropped, unless the person insists. That also breaks a lease: the work is due
now, and whoever takes it up next has it. A worker that still holds it keeps it if it renews its lease first; otherwise
it loses it at its next renewal, and both run until then.
Rule 2: a retry is under the same key, from the first attempt. What is dropped is gone: a chart that waits for its
result waits on, until somebody sends it an event. An entity that has ended takes none: a compensation behind its end is
not dropped unless the person insists, since those that come after it would never be called.
Rule 3: every act is recorded with who did it, what it was and why. The store keeps that row among its refusals, in the
same write as the act (ADR 0043); the log says it afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Literal

from msgspec.structs import replace

from interlock.effects.unsupported_work import work_unsupported
from interlock.effects.work_status import DESCRIPTIONS, work_status
from interlock.errors import NotFoundError, RejectedError, UsageError
from interlock.model.journal.work import WorkId, parse_work_key
from interlock.ports.clock import Clock
from interlock.ports.store import Loaded, Refusal, Store
from interlock.ports.work import Claim, Settlement, WorkAdmin, WorkQuery, WorkRow, WorkStore
from interlock.runtime.request_checks import check_sender

Act = Literal["retry", "drop"]

_log = logging.getLogger("interlock.audit")

PAGE_ROWS = 500
"""Rows that are read at once when all of a kind are meant."""


class WorkOperations:
    """Work of one store, as a person sees it."""

    def __init__(self, store: Store, clock: Clock) -> None:
        if not isinstance(store, WorkStore) or not isinstance(store, WorkAdmin):
            raise work_unsupported()
        self._store = store
        self._entities: Store = store
        self._desk: WorkAdmin = store
        self._clock = clock

    async def found(self, key: str) -> WorkRow:
        """The work of a key, `kind/id/version/ordinal`. Raises NotFoundError, UsageError for what is no key."""
        entity, version, ordinal = checked_key(key)
        async for row in self.all(WorkQuery(entity=entity)):
            if (row.work.place.version, row.work.place.ordinal) == (version, ordinal):
                return row
        raise _unknown(key)

    async def at(self, entity: str, place: WorkId) -> WorkRow:
        """The work at a place. Raises NotFoundError."""
        page = await self._store.works(WorkQuery(entity=entity, place=place))
        if not page.rows:
            raise _unknown(place.key(entity))
        return page.rows[0]

    async def all(self, query: WorkQuery) -> AsyncIterator[WorkRow]:
        """Every row that a query means, page by page."""
        page = await self._store.works(replace(query, limit=PAGE_ROWS))
        while True:  # ends with the last page
            for row in page.rows:
                yield row
            if page.after is None:
                return
            page = await self._store.works(replace(query, after=page.after, limit=PAGE_ROWS))

    async def act(self, act: Act, row: WorkRow, *, principal: str, force: bool = False, why: str = "") -> None:
        """Retry or drop one piece of work. Raises RejectedError when it stands so that it must not be."""
        self._check(act, row, force=force)
        if act == "drop" and not force:
            await self._check_compensation(row)
        audit = self._audit_row(act, row, principal, why)
        if act == "retry":
            done = await self._retried(row, audit)
        else:
            done = await self._desk.drop(row.entity, row.work.place, audit=audit)
        if not done:
            raise RejectedError(f"`{key_of(row)}` has changed meanwhile", code="work.changed", hint="look again")
        facts = {"event": audit.event, "key": key_of(row), "handler": row.work.name, "principal": principal}
        _log.info("an operator acted on work", extra={**facts, "why": why})

    def _check(self, act: Act, row: WorkRow, *, force: bool) -> None:
        if row.dead_ms is not None:
            return
        word = work_status(row, now_ms=self._clock.now_ms()).word
        if not force:
            message = f"`{key_of(row)}` is no dead letter: it {DESCRIPTIONS[word]}"
            raise RejectedError(message, code="work.alive", hint="--force insists, with what that means for its chart")
        if act == "retry" and word in ("child", "behind", "called_off"):
            message = f"`{key_of(row)}` cannot be tried now: it {DESCRIPTIONS[word]}"
            raise RejectedError(message, code="work.alive", hint="it goes on by itself")

    async def _check_compensation(self, row: WorkRow) -> None:
        """Others may wait for it behind the end of their entity, and nothing else could set them going."""
        loaded, key = await self._entities.load(row.entity), key_of(row)
        snapshot = loaded.snapshot if isinstance(loaded, Loaded) else None
        if snapshot is not None and snapshot.ended is not None and any(each.key == key for each in snapshot.invokes):
            message = f"`{key}` is a compensation behind the end of its entity: the others of its saga may wait for it"
            hint = "retry it when the cause is gone; --force forgets it, and them"
            raise RejectedError(message, code="work.compensation", hint=hint)

    async def _retried(self, row: WorkRow, audit: Refusal) -> bool:
        now_ms = audit.time_ms
        if row.dead_ms is not None:
            return await self._desk.revive(row.entity, row.work.place, now_ms=now_ms, audit=audit)
        claim = Claim(row.entity, row.work, row.attempts, row.failures, row.cancelled)
        again = Settlement(claim, "again", now_ms, row.error, lapsed=True)
        return await self._desk.requeue(again, now_ms=now_ms, audit=audit)

    def _audit_row(self, act: Act, row: WorkRow, principal: str, why: str) -> Refusal:
        """Who does what, as the store keeps it. Raises UsageError for a principal or a reason that cannot be kept."""
        check_sender({"id": principal, "reason": why}, None)
        event = "_work.retried" if act == "retry" else "_work.dropped"
        error = row.error.get("code") if isinstance(row.error, dict) else None
        reason = f"{key_of(row)} {row.work.name}" + (f" ({error})" if error else "") + (f": {why}" if why else "")
        return Refusal(row.entity, event, "applied", reason[:500], self._clock.now_ms(), principal)


def _unknown(key: str) -> NotFoundError:
    return NotFoundError(f"no work `{key}`", code="work.unknown", hint="it may be done: interlock effects ls")


def key_of(row: WorkRow) -> str:
    """The key by which a person names work."""
    return row.work.place.key(row.entity)


def checked_key(key: str) -> tuple[str, int, int]:
    """Entity, version and ordinal of a key. Raises UsageError for what is none."""
    try:
        return parse_work_key(key)
    except ValueError:
        hint = "a key is kind/id/version/ordinal, as interlock effects ls prints it"
        raise UsageError(f"`{key[:200]}` is no key of work", code="work.key", hint=hint) from None
