"""Retry or drop work on request of an operator, with an audit record of who did it.

Rule 1: without `force` only dead letters are retried or dropped. With `force` a lease is broken: the work is due now
and the next worker may claim it. A worker that still runs it keeps it if it renews its lease first; otherwise it loses
it at its next renewal, and until then both run.
Rule 2: a retry uses the same key and starts at the first attempt. Dropped work is deleted: a chart that waits for its
result waits until it receives another event. An ended entity accepts no event, so a compensation after its end is
dropped with `force` only: the compensations after it would never run.
Rule 3: every act is recorded with the principal, the act and the reason. The store keeps that row in its audit, in the
same write as the act (ADR 0043); the log record follows.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Literal

from msgspec.structs import replace

from interlock.effects.unsupported_work import work_unsupported
from interlock.errors import NotFoundError, RejectedError, UsageError
from interlock.model.audit import AuditRow
from interlock.model.journal.work import WorkId
from interlock.observe.work_status import DESCRIPTIONS, work_status
from interlock.ports.clock import Clock
from interlock.ports.reading.paging import pages
from interlock.ports.store import Loaded, Store
from interlock.ports.work import Claim, Settlement, WorkQuery, WorkRow
from interlock.runtime.request_checks import check_principal
from interlock.trust.audit import act_row

Act = Literal["retry", "drop"]

_log = logging.getLogger("interlock.audit")

PAGE_ROWS = 500
"""Rows of one page when all matching work is read."""


class WorkOperations:
    """The work of one store, for an operator."""

    def __init__(self, store: Store, clock: Clock) -> None:
        """Raises UsageError if the store does not run effects."""
        if store.work is None:
            raise work_unsupported()
        self._store = store
        self._work = store.work
        self._clock = clock

    async def find(self, key: str) -> WorkRow:
        """Return the work of a key, `kind/id/version/ordinal`. Raises NotFoundError; UsageError for an invalid key."""
        entity, version, ordinal = parse_key(key)
        async for row in self.all(WorkQuery(entity=entity)):
            if (row.work.id.version, row.work.id.ordinal) == (version, ordinal):
                return row
        raise _unknown(key)

    async def at(self, entity: str, work_id: WorkId) -> WorkRow:
        """Return the work at a place. Raises NotFoundError."""
        page = await self._work.list_work(WorkQuery(entity=entity, id=work_id))
        if not page.rows:
            raise _unknown(f"{entity}/{work_id.version}/{work_id.ordinal}")
        return page.rows[0]

    async def all(self, query: WorkQuery) -> AsyncIterator[WorkRow]:
        """Yield every row of a query."""
        async for page in pages(self._work.list_work, replace(query, limit=PAGE_ROWS)):
            for row in page.rows:
                yield row

    async def act(self, act: Act, row: WorkRow, *, principal: str, force: bool = False, why: str = "") -> None:
        """Retry or drop one piece of work. Raises RejectedError if its status does not allow it."""
        self._check(act, row, force=force)
        if act == "drop" and not force:
            await self._check_compensation(row)
        audit = self._audit_row(act, row, principal, why)
        if act == "retry":
            done = await self._retry(row, audit)
        else:
            done = await self._work.delete_work(row.entity, row.work.id, audit=audit)
        if not done:
            message = f"`{key_of(row)}` changed in the meantime"
            raise RejectedError(message, code="work.changed", hint="list the work again")
        if act == "retry" and self._store.wakeups is not None:
            self._store.wakeups.ring(frozenset({row.work.id.lane}))
        fields = {"event": audit.event, "key": key_of(row), "handler": row.work.name, "principal": principal}
        _log.info("an operator acted on work", extra={**fields, "why": why})

    def _check(self, act: Act, row: WorkRow, *, force: bool) -> None:
        if row.dead_ms is not None:
            return
        word = work_status(row, now_ms=self._clock.now_ms()).word
        if not force:
            message = f"`{key_of(row)}` is not a dead letter: it {DESCRIPTIONS[word]}"
            raise RejectedError(message, code="work.alive", hint="use --force to act on it anyway")
        if act == "retry" and word in ("waiting_child", "queued", "cancelled"):
            message = f"`{key_of(row)}` cannot be retried now: it {DESCRIPTIONS[word]}"
            raise RejectedError(message, code="work.alive", hint="it continues without a retry")

    async def _check_compensation(self, row: WorkRow) -> None:
        """Raise RejectedError for a compensation after the end of its entity: the ones after it would never run."""
        loaded, key = await self._store.load(row.entity), key_of(row)
        snapshot = loaded.snapshot if isinstance(loaded, Loaded) else None
        if snapshot is not None and snapshot.ended is not None and any(each.key == key for each in snapshot.invokes):
            message = f"`{key}` is a compensation of an ended entity; other compensations of its saga may wait for it"
            hint = "fix the cause and retry it; --force drops it, and the ones after it never run"
            raise RejectedError(message, code="work.compensation", hint=hint)

    async def _retry(self, row: WorkRow, audit: AuditRow) -> bool:
        now_ms = audit.time_ms
        if row.dead_ms is not None:
            return await self._work.requeue_dead_letter(row.entity, row.work.id, now_ms=now_ms, audit=audit)
        claim = Claim(row.entity, row.work, row.attempts, row.failures, row.cancelled)
        again = Settlement(claim, "again", now_ms, row.error, without_failure=True)
        return await self._work.requeue(again, now_ms=now_ms, audit=audit)

    def _audit_row(self, act: Act, row: WorkRow, principal: str, why: str) -> AuditRow:
        """The audit row. Raises UsageError for a principal or a reason that cannot be stored."""
        check_principal({"id": principal, "reason": why}, now_ms=self._clock.now_ms())
        event = "_work.retried" if act == "retry" else "_work.dropped"
        error = row.error.get("code") if isinstance(row.error, dict) else None
        reason = f"{key_of(row)} {row.work.name}" + (f" ({error})" if error else "")
        return act_row(row.entity, event, reason, by=principal, why=why, now_ms=self._clock.now_ms())


def _unknown(key: str) -> NotFoundError:
    return NotFoundError(f"unknown work `{key}`", code="work.unknown", hint="it may be done: interlock effects ls")


def key_of(row: WorkRow) -> str:
    """Return the key of work, `kind/id/version/ordinal`."""
    return row.work.key(row.entity)


def parse_key(key: str) -> tuple[str, int, int]:
    """Return the entity, version and ordinal of a key. Raises UsageError for an invalid key."""
    entity, _, rest = key.rpartition("/")
    entity, _, place = entity.rpartition("/")
    version = place.partition(".")[0]  # after a restore the key has the epoch there, too
    if "/" not in entity or not (_is_number(version) and _is_number(rest)):
        hint = "expected kind/id/version/ordinal, as interlock effects ls prints it"
        raise UsageError(f"invalid work key `{key[:200]}`", code="work.key", hint=hint)
    return entity, int(version), int(rest)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19
