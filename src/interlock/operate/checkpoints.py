"""Writes signed checkpoints of a store: one process at a time, at intervals.

Rule 1: the process holds a lease. A second one waits until the first has stopped.
Rule 2: a checkpoint is a row of the audit first, and is published then. One that could not be published is published
before the next one; the same one twice has the same id.
Rule 3: a checkpoint includes at most `AUDIT_CHECKPOINT_ENTRIES` entries; when there are more, several are written.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from interlock.errors import UnavailableError, UsageError
from interlock.model.audit import AuditRecord
from interlock.model.encoding.codec import encode, to_builtins
from interlock.model.journal.message import SOURCE, Message
from interlock.model.limits import AUDIT_CHECKPOINT_ENTRIES, AUDIT_CHECKPOINT_MS
from interlock.ports.bus import Bus
from interlock.ports.clock import Clock
from interlock.ports.reading.journal_feed import JournalFeed
from interlock.ports.store import Store
from interlock.ports.trust.audit import AuditLog
from interlock.trust.checkpoints import (
    CHECKPOINT_ACTOR,
    Checkpoint,
    JournalHead,
    SignedCheckpoint,
    SigningKey,
    decode_published,
)

LEASE = "audit/checkpoint"
LEASE_MS_MIN = 3_000
"""How long a process that was killed keeps others from writing checkpoints, at least; otherwise three intervals."""

TYPE = "interlock.audit.checkpoint"
"""The type of the message that publishes a checkpoint."""

PAGE = 1_000

Publish = Callable[[SignedCheckpoint], Awaitable[None]]

_log = logging.getLogger("interlock.audit")


class CheckpointWriter:
    """The checkpoints of one tenant of a store."""

    def __init__(self, store: Store, clock: Clock, key: SigningKey, *, publish: Publish) -> None:
        """Raises UsageError (`audit.unsupported`) for a store without an audit, a feed or leases."""
        if store.audit is None or store.journal_feed is None or store.leases is None:
            message = "this store cannot have checkpoints: it needs an audit, a feed of all entries, and leases"
            raise UsageError(message, code="audit.unsupported", hint="use files, SQLite or PostgreSQL")
        self._log: AuditLog = store.audit
        self._feed: JournalFeed = store.journal_feed
        self._leases = store.leases
        self._clock = clock
        self._key = key
        self._publish = publish
        self._owner = clock.token()
        self._unpublished: SignedCheckpoint | None = None
        self._is_started = False
        self._lease_ms = 3 * AUDIT_CHECKPOINT_MS

    async def run(self, *, every_ms: int = AUDIT_CHECKPOINT_MS) -> None:
        """Write checkpoints at intervals, until cancelled. A store or a bus that does not respond is tried again."""
        self._lease_ms = max(LEASE_MS_MIN, 3 * every_ms)
        while True:  # until cancelled
            try:
                await self.write_all()
            except UnavailableError as error:
                _log.warning("cannot write a checkpoint", extra={"code": error.code, "error": error.message})
            await self._clock.sleep_ms(every_ms)

    async def write_all(self) -> tuple[SignedCheckpoint, ...]:
        """Write checkpoints of everything up to now; none if nothing has changed, or another process writes them."""
        if not await self._has_lease():
            return ()
        last = await self._last()
        if not self._is_started:  # a process may have died between the row and its publication
            self._unpublished, self._is_started = last, True
        await self._publish_pending()
        written: list[SignedCheckpoint] = []
        while (signed := await self._next(last)) is not None:
            if not await self._has_lease():  # another process has continued meanwhile
                break
            await self._log.append_audit((signed.row(),))
            self._unpublished = last = signed
            written.append(signed)
            await self._publish_pending()
        return tuple(written)

    async def _has_lease(self) -> bool:
        """Take the lease, or extend it. A process that lost it may have missed checkpoints of the one that had it."""
        now_ms = self._clock.now_ms()
        until_ms = now_ms + self._lease_ms
        lease = await self._leases.acquire_lease(LEASE, owner=self._owner, now_ms=now_ms, until_ms=until_ms)
        if lease is None:
            self._is_started = False
        return lease is not None

    async def close(self) -> None:
        """Release the lease, so that another process can continue immediately."""
        now_ms = self._clock.now_ms()
        lease = await self._leases.acquire_lease(LEASE, owner=self._owner, now_ms=now_ms, until_ms=now_ms + 1_000)
        if lease is not None:
            await self._leases.release_lease(lease)

    async def _publish_pending(self) -> None:
        if self._unpublished is not None:
            await self._publish(self._unpublished)
            self._unpublished = None

    async def _last(self) -> SignedCheckpoint | None:
        found = await self._log.audit_before(None, actor=CHECKPOINT_ACTOR, limit=1)
        return SignedCheckpoint.of_row(found[0].decode()) if found else None

    async def _next(self, last: SignedCheckpoint | None) -> SignedCheckpoint | None:
        """Return the checkpoint after the last one; None when nothing has changed since."""
        before = None if last is None else last.checkpoint
        rows = await self._log.audit_before(None, limit=1)
        tip: AuditRecord | None = rows[0] if rows else None
        journals, cursor = await self._changes(None if before is None else before.cursor)
        # The row of the checkpoint itself is the next one, unless another row was faster.
        is_new = tip is not None and (before is None or tip.sequence > before.sequence + 1)
        if not journals and not is_new:
            return None
        return self._key.sign(
            Checkpoint(
                number=1 if before is None else before.number + 1,
                stream=self._log.first_audit_head,
                previous="" if last is None else last.digest,
                sequence=0 if tip is None else tip.sequence,
                head=self._log.first_audit_head if tip is None else tip.head,
                journals=journals,
                cursor=cursor,
                time_ms=self._clock.now_ms(),
            )
        )

    async def _changes(self, cursor: str | None) -> tuple[dict[str, JournalHead], str | None]:
        """Return the heads of the entities that have changed after a position, and the position up to which."""
        found: dict[str, JournalHead] = {}
        read = 0
        while read < AUDIT_CHECKPOINT_ENTRIES:
            page = await self._feed.feed(cursor, limit=min(PAGE, AUDIT_CHECKPOINT_ENTRIES - read))
            for each in page.entries:
                found[each.entity] = JournalHead(each.entry.version, each.head)
            read += len(page.entries)
            cursor = page.after
            if page.is_last:
                break
        return found, cursor


def publish_to_file(path: Path) -> Publish:
    """Return what appends a checkpoint to a file as one line, unless the file ends with it. Keep the file elsewhere."""

    async def publish(signed: SignedCheckpoint) -> None:
        line = encode(signed) + b"\n"
        try:
            with path.open("a+b") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - len(line)))
                if file.read() != line:
                    file.write(line)
                    file.flush()
        except OSError as error:
            message = f"cannot publish a checkpoint to {path}: {error.strerror or error}"
            raise UnavailableError(message, code="checkpoint.publish") from error

    return publish


def publish_to_bus(bus: Bus) -> Publish:
    """Return what publishes checkpoints as messages of the type `interlock.audit.checkpoint`."""

    async def publish(signed: SignedCheckpoint) -> None:
        found = signed.checkpoint
        await bus.publish(
            Message(
                id=f"{TYPE}/{found.stream}/{found.number}",
                source=f"{SOURCE}/audit",
                type=TYPE,
                time_ms=found.time_ms,
                sequence=f"{found.number:012}",
                data=to_builtins(signed),
            )
        )

    return publish


def read_published(path: Path) -> tuple[SignedCheckpoint, ...]:
    """Return the checkpoints of a file. Raises UsageError for an invalid line."""
    return tuple(decode_published(line) for line in path.read_bytes().splitlines() if line.strip())
