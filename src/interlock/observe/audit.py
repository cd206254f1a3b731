"""The audit as a whole: the entries of journals and the rows of the audit, exported as one list, and verified.

Rule 1: an attempt that wrote an entry is exported from the journal, any other from its row. The columns are always the
same twelve.
Rule 2: the list is in the order of time, then entity and version. It is merged from two streams that are nearly in this
order: rows that are more than `MERGE_ROWS` places late stay late.
Rule 3: to verify means: the chain of the audit, the chain of every journal, and every signed checkpoint against both.
Damage is a result and not an exception; all of it is reported.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from interlock.errors import ArchivedError, CorruptionError, NotFoundError, UsageError
from interlock.model.audit import CHECKPOINT, Actor, AuditRecord, AuditRow, actor_of_event, originator_of
from interlock.model.journal.entry import Entry
from interlock.ports.store import Store
from interlock.ports.trust.audit import AuditLog
from interlock.runtime.history.verify import Verification, verify_store
from interlock.runtime.reading.feed import feed_of
from interlock.trust.audit_chain import verify_chain
from interlock.trust.checkpoints import Checkpoint, JournalHead, SignedCheckpoint, VerifyingKey

COLUMNS = (
    "transition_id",
    "entity_id",
    "entity_kind",
    "actor_id",
    "actor_kind",
    "event",
    "state_from",
    "state_to",
    "occurred_at",
    "trace_id",
    "outcome",
    "reason",
)
"""The columns of an export, in their order."""

OUTCOMES: Mapping[str, str] = {"rejected": "rejected_invalid", "denied": "rejected_auth"}
"""Outcomes that have another name in an export."""

MERGE_ROWS = 10_000
"""Rows of each stream that wait for their place: some megabytes."""

PAGE = 1_000

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class AuditExport(NamedTuple):
    """One row of an export. The fields are the columns; a text that is not known is empty."""

    transition_id: str
    entity_id: str
    entity_kind: str
    actor_id: str
    actor_kind: str
    event: str
    state_from: str
    state_to: str
    occurred_at: str
    trace_id: str
    outcome: str
    reason: str


class AuditFilter(Struct, frozen=True, kw_only=True):
    """Which rows are exported: from a time on, before a time, of a kind, of an entity, of an actor."""

    since_ms: int | None = None
    until_ms: int | None = None
    kind: str | None = None
    entity: str | None = None
    actor: str | None = None

    def includes(self, found: _Place) -> bool:
        """Whether a row is exported."""
        return (
            (self.since_ms is None or found.time_ms >= self.since_ms)
            and (self.until_ms is None or found.time_ms < self.until_ms)
            and (self.kind is None or found.entity.partition("/")[0] == self.kind)
            and (self.entity is None or found.entity == self.entity)
            and (self.actor is None or found.actor == self.actor)
        )


class _Place(NamedTuple):
    """A row with the place where it belongs: time, entity, and a number that orders rows of one entity and time."""

    time_ms: int
    entity: str
    number: int
    actor: str
    row: AuditExport


async def export_audit(store: Store, wanted: AuditFilter | None = None) -> AsyncIterator[AuditExport]:
    """Yield the whole audit of a tenant in order. Raises UsageError (`audit.unsupported`) if the store has none."""
    log = audit_of(store)
    chosen = wanted or AuditFilter()
    async for found in _merged(_entries(store, log.first_audit_head, chosen), _rows(log)):
        if chosen.includes(found):
            yield found.row


def audit_of(store: Store) -> AuditLog:
    """Return the audit of a store. Raises UsageError (`audit.unsupported`)."""
    if store.audit is None:
        raise UsageError("this store has no audit", code="audit.unsupported", hint="use files, SQLite or PostgreSQL")
    return store.audit


async def _merged(*streams: AsyncGenerator[_Place, None]) -> AsyncIterator[_Place]:
    """Yield the rows of two streams in order; each is nearly in order itself."""
    waiting: list[tuple[tuple[int, str, int, int], _Place, int]] = []
    counts = [0] * len(streams)
    is_open = [True] * len(streams)
    while True:
        for number, stream in enumerate(streams):
            while is_open[number] and counts[number] < MERGE_ROWS:
                try:
                    found = await anext(stream)
                except StopAsyncIteration:
                    is_open[number] = False
                    break
                heapq.heappush(waiting, ((found.time_ms, found.entity, found.number, number), found, number))
                counts[number] += 1
        if not waiting:
            return
        _, found, number = heapq.heappop(waiting)
        counts[number] -= 1
        yield found


async def _entries(store: Store, stream: str, wanted: AuditFilter) -> AsyncGenerator[_Place, None]:
    feed = feed_of(store)
    cursor = None if wanted.since_ms is None else await feed.cursor_at(wanted.since_ms)
    kinds = None if wanted.kind is None else (wanted.kind,)
    while True:
        page = await feed.feed(cursor, kinds=kinds, limit=PAGE)
        for each in page.entries:
            yield _place_of_entry(stream, each.entity, each.entry)
        if page.is_last:
            return
        cursor = page.after


async def _rows(log: AuditLog) -> AsyncGenerator[_Place, None]:
    sequence = 0
    while page := await log.audit_after(sequence, limit=PAGE):
        for record in page:
            sequence = record.sequence
            row = record.decode()
            if row.event != CHECKPOINT:
                yield _place_of_row(log.first_audit_head, record, row)


def _place_of_entry(stream: str, entity: str, entry: Entry) -> _Place:
    event = entry.event
    actor = actor_of_event(event)
    row = AuditExport(
        transition_id=transition_id(stream, entity, entry.key),
        entity_id=entity,
        entity_kind=entity.partition("/")[0],
        actor_id=actor.id,
        actor_kind=actor.kind,
        event=event.name,
        state_from=",".join(entry.before),
        state_to=",".join(entry.after),
        occurred_at=time_text(event.at_ms),
        trace_id=trace_id(entry.trace),
        outcome=OUTCOMES.get(entry.outcome, entry.outcome),
        reason=_reason(entry.reason, entry.reason_given, originator_of(event.principal)),
    )
    return _Place(event.at_ms, entity, entry.version, actor.id, row)


def _place_of_row(stream: str, record: AuditRecord, row: AuditRow) -> _Place:
    states = ",".join(row.state_from or ())
    note = row.note
    if row.is_summary:
        note = f"{row.count} attempts, {time_text(row.first_ms or 0)} to {time_text(row.last_ms or 0)}"
    export = AuditExport(
        transition_id=transition_id(stream, row.entity, row.key or "", record.sequence),
        entity_id=row.entity,
        entity_kind=row.kind,
        actor_id=row.actor or "",
        actor_kind=row.actor_kind or ("system" if row.actor is None else "user"),
        event=row.event,
        state_from=states,
        state_to=states if row.state_to is None else ",".join(row.state_to),
        occurred_at=time_text(row.time_ms),
        trace_id=trace_id(row.trace),
        outcome=OUTCOMES.get(row.outcome, row.outcome),
        reason=_reason(row.reason, note, row.originator),
    )
    return _Place(row.time_ms, row.entity, 2**62 + record.sequence, export.actor_id, export)


def transition_id(stream: str, entity: str, key: str, sequence: int | None = None) -> str:
    """Return the UUID (version 8) of an attempt, from the stream of its tenant, the entity and the key.

    So a duplicate has the same one. A refused attempt has the number of its row in it, too: it may be repeated.
    """
    text = "\0".join((stream, entity, key, *(() if sequence is None else (str(sequence),))))
    digest = bytearray(blake2b(text.encode(errors="replace"), digest_size=16).digest())
    digest[6] = digest[6] & 0x0F | 0x80
    digest[8] = digest[8] & 0x3F | 0x80
    return str(UUID(bytes=bytes(digest)))


def time_text(time_ms: int) -> str:
    """Return a time as RFC 3339 writes it, in UTC with milliseconds."""
    try:
        found = _EPOCH + timedelta(milliseconds=time_ms)
    except OverflowError:
        return ""
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def trace_id(trace: str | None) -> str:
    """Return the trace id of a traceparent; any other text as it is."""
    found = None if trace is None else _TRACEPARENT.fullmatch(trace)
    return (trace or "") if found is None else found[1]


def _reason(code: str | None, note: str | None, originator: Actor | None) -> str:
    whom = None if originator is None else f"for {originator.kind} {originator.id}"
    return ": ".join(each for each in (code, whom, note) if each)


# Verification


class AuditProblem(Struct, frozen=True, omit_defaults=True):
    """Damage: its stable code, its place, and a description. `place` is `audit`, `checkpoint` or an entity."""

    code: str
    place: str
    message: str
    number: int | None = None


class AuditProof(Struct, frozen=True):
    """What was verified, and what is still proven.

    `rows` of the audit are linked, up to `sequence`; `entries` of `entities` are linked. `checkpoints` were found, and
    `signed` of them carry a valid signature. `proven_ms` is the time of the last checkpoint that holds: what was there
    then has not been changed since. None: no checkpoint could be verified.
    """

    rows: int
    sequence: int
    entities: int
    entries: int
    archived: int
    checkpoints: int
    signed: int
    proven_ms: int | None
    problems: tuple[AuditProblem, ...]


async def verify_audit(
    store: Store,
    *,
    now_ms: int,
    key: VerifyingKey | None = None,
    published: Iterable[SignedCheckpoint] = (),
) -> AuditProof:
    """Verify the audit, every journal, and all checkpoints: those in the audit and those that were published.

    Without a key, signatures are not verified, and an audit that was replaced as a whole is not found.
    """
    verifier = _AuditVerifier(audit_of(store), key)
    given = tuple(published)
    await verifier.follow_audit(given)
    async for result in verify_store(store, None, now_ms=now_ms):
        verifier.add_entity(result)
    await verifier.compare_journals(store)
    return verifier.proof()


class _AuditVerifier:
    """Collects what is found, from the audit to the journals."""

    def __init__(self, log: AuditLog, key: VerifyingKey | None) -> None:
        self._log = log
        self._key = key
        self._problems: list[AuditProblem] = []
        self._stored: dict[int, SignedCheckpoint] = {}
        self._rows = self._sequence = 0
        self._heads: dict[int, str] = {}
        self._valid: list[Checkpoint] = []
        self._journals: dict[str, tuple[JournalHead, int]] = {}
        self._verified: dict[str, Verification] = {}
        self._broken_numbers: set[int] = set()
        self._signed = self._entries = self._entities = self._archived = 0

    async def follow_audit(self, published: tuple[SignedCheckpoint, ...]) -> None:
        """Follow the chain, and read the checkpoints in it; then compare all checkpoints with it."""
        first = self._log.first_audit_head
        self._heads[0] = first
        found: list[AuditRecord] = []
        wanted = {0}
        for each in published:
            wanted.add(each.checkpoint.sequence)
        recent: dict[int, str] = {}

        def on_row(record: AuditRecord) -> None:
            recent[record.sequence] = record.head
            if record.sequence in wanted:
                self._heads[record.sequence] = record.head
            if len(recent) > MERGE_ROWS:
                del recent[next(iter(recent))]
            if record.actor is not None and (row := record.decode()).event == CHECKPOINT:
                found.append(record)
                self._add_stored(row, record.sequence, recent)

        chain = await verify_chain(self._log, on_row=on_row)
        self._rows, self._sequence = chain.linked, chain.sequence
        if chain.broken is not None:
            text = {
                "altered": "was changed",
                "missing": "is missing",
                "repeated": "appears twice, or out of order",
            }[chain.damage or "altered"]
            message = f"row {chain.broken} {text}; the {chain.linked:,} rows before it are linked"
            self._fail(f"audit.{chain.damage}", "audit", message, chain.broken)
        self._compare(published, is_whole=chain.broken is None)

    def _add_stored(self, row: AuditRow, sequence: int, recent: Mapping[int, str]) -> None:
        try:
            signed = SignedCheckpoint.of_row(row)
            number, named = signed.checkpoint.number, signed.checkpoint.sequence
        except UsageError as error:
            self._fail("checkpoint.malformed", "checkpoint", f"row {sequence}: {error.message}", sequence)
            return
        if number in self._stored:
            self._fail("checkpoint.repeated", "checkpoint", f"checkpoint {number} is there twice", number)
        self._stored[number] = signed
        head = recent.get(named)
        if head is not None:
            self._heads[named] = head

    def _compare(self, published: tuple[SignedCheckpoint, ...], *, is_whole: bool) -> None:
        """Compare the checkpoints with the chain, with each other, and with those that were published."""
        outside = {each.checkpoint.number: each for each in published}
        for number, signed in sorted({**self._stored, **outside}.items()):
            stored = self._stored.get(number)
            if stored is None:
                message = f"checkpoint {number} was published and is not in the audit: its end was removed"
                self._fail(
                    "checkpoint.missing", "audit", message if is_whole else f"checkpoint {number} is lost", number
                )
            elif number in outside and stored.text != outside[number].text:
                message = f"checkpoint {number} differs from the one that was published: the audit was replaced"
                self._fail("checkpoint.differs", "audit", message, number)
            self._check(number, signed, is_whole=is_whole)
        for number in range(1, max(self._stored, default=0)):
            if number not in self._stored:
                self._fail("checkpoint.missing", "checkpoint", f"checkpoint {number} is not in the audit", number)

    def _check(self, number: int, signed: SignedCheckpoint, *, is_whole: bool) -> None:
        found = signed.checkpoint
        if self._key is not None:
            if not self._key.is_signed(signed):
                self._fail("checkpoint.signature", "checkpoint", f"checkpoint {number} has another signature", number)
                return
            self._signed += 1
        if found.stream != self._log.first_audit_head:
            message = f"checkpoint {number} is of another tenant"
            self._fail("checkpoint.stream", "checkpoint", message, number)
            return
        before = self._stored.get(number - 1)
        if before is not None and found.previous != before.digest:
            self._fail("checkpoint.order", "checkpoint", f"checkpoint {number} does not follow {number - 1}", number)
            return
        head = self._heads.get(found.sequence)
        if head is not None and head != found.head:
            message = f"the rows up to {found.sequence} differ from checkpoint {number}: the chain was replaced"
            self._fail("audit.rewritten", "audit", message, found.sequence)
            return
        if head is None:
            if is_whole:
                message = f"checkpoint {number} names row {found.sequence}, and the audit ends at {self._sequence}"
                self._fail("audit.cut", "audit", message, found.sequence)
            return
        self._valid.append(found)
        for entity, journal in found.journals.items():
            self._journals[entity] = (journal, number)

    def add_entity(self, result: Verification) -> None:
        """Add the result of a journal."""
        self._verified[result.entity] = result
        self._entities += 1
        self._entries += result.entries
        self._archived += result.archive is not None
        if result.problem is not None:
            self._fail(result.problem.code, result.entity, result.problem.message, result.problem.version)

    async def compare_journals(self, store: Store) -> None:
        """Compare the journals with the heads that checkpoints name."""
        for entity, (journal, number) in self._journals.items():
            result = self._verified.get(entity)
            removed = await _removed(store, entity, journal)
            if removed:
                continue
            if result is None:
                message = f"`{entity}` was there at checkpoint {number}, at version {journal.version}, and was deleted"
                self._fail_journal("journal.deleted", entity, message, journal.version, number)
            elif result.archive is None and result.problem is None:
                head = await _head_at(store, entity, journal.version)
                if head is None:
                    message = f"`{entity}` had version {journal.version} at checkpoint {number}; its journal was cut"
                    self._fail_journal("journal.cut", entity, message, journal.version, number)
                elif head != journal.head:
                    message = f"the journal of `{entity}` differs from checkpoint {number}: it was replaced"
                    self._fail_journal("journal.rewritten", entity, message, journal.version, number)

    def proof(self) -> AuditProof:
        """Return the result."""
        intact = [each.time_ms for each in self._valid if each.number not in self._broken_numbers]
        return AuditProof(
            rows=self._rows,
            sequence=self._sequence,
            entities=self._entities,
            entries=self._entries,
            archived=self._archived,
            checkpoints=len(self._stored),
            signed=self._signed,
            proven_ms=max(intact, default=None) if self._key is not None else None,
            problems=tuple(self._problems),
        )

    def _fail(self, code: str, place: str, message: str, number: int | None = None) -> None:
        self._problems.append(AuditProblem(code, place, message, number))

    def _fail_journal(self, code: str, entity: str, message: str, version: int, number: int) -> None:
        self._broken_numbers.add(number)
        self._fail(code, entity, message, version)


async def _removed(store: Store, entity: str, journal: JournalHead) -> bool:
    """Whether retention removed the entry that a checkpoint names: its entity was pruned, or its journal compacted.

    The store says so, and its record of that entry agrees with the checkpoint. Otherwise a removal is not proven.
    """
    if store.retention is None:
        return False
    last = await store.retention.tombstone(entity) or await store.retention.journal_base(entity)
    if last is None or last.version < journal.version:
        return False
    return last.version > journal.version or last.head == journal.head


async def _head_at(store: Store, entity: str, version: int) -> str | None:
    """Return the head of an entity's record; None if there is none."""
    try:
        records = await store.read(entity, after=version - 1, limit=1)
    except (ArchivedError, CorruptionError, NotFoundError):
        return None
    return records[0].head if records and records[0].version == version else None
