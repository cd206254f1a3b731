"""The statements of steps, inside the writer's transaction.

Rule 1: version and key are read first: a conflict or a known key writes nothing.
Rule 2: what a step changes, it changes here and nowhere else: the entity, its journal, its key, its states and tags.
Rule 3: the steps of a batch are read one by one and written table by table: each statement runs once over the rows of
all of them, which costs less than a statement for each row. A step that must see what an earlier one of its
batch wrote (the same entity twice) waits until that is written.
Rule 4: counters are summed over the batch and written once, before COMMIT. A `StatisticsBuffer` is only summed here.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from interlock.errors import CorruptionError, InternalError
from interlock.model.codec import encode
from interlock.model.journal.record import chain_start, encode_record
from interlock.model.journal.work import WorkDelta
from interlock.ports.store import Append, Appended, Conflict, Duplicate, Refusal, StaleAttempt
from interlock.stores.listing import decode_active, decode_texts, since_ms, standing
from interlock.stores.sqlite import work as sqlite_work
from interlock.stores.statistics_buffer import CONFLICTS, StatisticsBuffer

SELECT_ENTITY = """
    SELECT k.version, e.version, e.revision, e.active, e.tags, e.head, e.journal_bytes
    FROM entity AS e LEFT JOIN event_key AS k
      ON k.tenant = e.tenant AND k.kind = e.kind AND k.id = e.id AND k.key = ?
    WHERE e.tenant = ? AND e.kind = ? AND e.id = ?"""
INSERT_ENTITY = """
    INSERT INTO entity (version, revision, configuration, ended, active, tags, snapshot, head, journal_bytes,
                        entered_ms, changed_ms, created_ms, tenant, kind, id)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
UPDATE_ENTITY = """
    UPDATE entity SET version = ?, revision = ?, configuration = ?, ended = ?, active = ?, tags = ?, snapshot = ?,
                      head = ?, journal_bytes = ?, entered_ms = ?, changed_ms = ?
    WHERE tenant = ? AND kind = ? AND id = ? AND version = ?"""
INSERT_JOURNAL = """
    INSERT INTO journal (tenant, kind, id, version, record, head, time_ms) VALUES (?, ?, ?, ?, ?, ?, ?)"""
INSERT_KEY = "INSERT INTO event_key (tenant, kind, id, key, version, time_ms) VALUES (?, ?, ?, ?, ?, ?)"
INSERT_STATE = "INSERT INTO entity_state (tenant, kind, id, state, entered_ms) VALUES (?, ?, ?, ?, ?)"
DELETE_STATE = """
    DELETE FROM entity_state WHERE tenant = ? AND kind = ? AND id = ? AND state = ? AND entered_ms = ?"""
INSERT_TAG = "INSERT INTO entity_tag (tenant, kind, tag, id) VALUES (?, ?, ?, ?)"
DELETE_TAG = "DELETE FROM entity_tag WHERE tenant = ? AND kind = ? AND tag = ? AND id = ?"
UPSERT_COUNT = """
    INSERT INTO state_count (tenant, kind, revision, state, entities) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (tenant, kind, revision, state) DO UPDATE SET entities = entities + excluded.entities"""
SELECT_REFUSAL_HEAD = "SELECT head FROM audit_refusal ORDER BY sequence DESC LIMIT 1"
INSERT_REFUSAL = """
    INSERT INTO audit_refusal (tenant, kind, id, principal, time_ms, body, head) VALUES (?, ?, ?, ?, ?, ?, ?)"""

Counts = dict[tuple[str, str, str], int]
"""How many entities more, or fewer, by (kind, revision, state)."""


Answer = Appended | Duplicate | Conflict | StaleAttempt

Name = tuple[str, str, str]
"""Tenant, kind and id."""


class _Known(NamedTuple):
    """What a step must know of its entity: version 0 when there is none. `kept` is the version that has its key."""

    kept: int | None
    version: int
    revision: str
    active: dict[str, int]
    tags: tuple[str, ...]
    head: str
    journal_bytes: int


@dataclass(frozen=True, slots=True)
class _Rows:
    """What steps are to write, by statement."""

    created: list[tuple[str | int | bytes | None, ...]] = field(default_factory=list)
    swapped: list[tuple[str | int | bytes | None, ...]] = field(default_factory=list)
    journal: list[tuple[str | int | bytes, ...]] = field(default_factory=list)
    keys: list[tuple[str | int, ...]] = field(default_factory=list)
    states_left: list[tuple[str | int, ...]] = field(default_factory=list)
    states_entered: list[tuple[str | int, ...]] = field(default_factory=list)
    tags_left: list[tuple[str, ...]] = field(default_factory=list)
    tags_entered: list[tuple[str, ...]] = field(default_factory=list)
    work: list[tuple[Name, WorkDelta]] = field(default_factory=list)

    def write(self, connection: sqlite3.Connection) -> None:
        """Write all of them; entities first, because journals refer to them."""
        if self.created:
            connection.executemany(INSERT_ENTITY, self.created)
        if self.swapped:
            swapped = connection.executemany(UPDATE_ENTITY, self.swapped).rowcount
            if swapped != len(self.swapped):  # the versions were read in this very transaction
                raise InternalError(f"{swapped} rows were swapped, not {len(self.swapped)}", code="store.swap")
        for statement, rows in (
            (INSERT_JOURNAL, self.journal),
            (INSERT_KEY, self.keys),
            (DELETE_STATE, self.states_left),
            (INSERT_STATE, self.states_entered),
            (DELETE_TAG, self.tags_left),
            (INSERT_TAG, self.tags_entered),
        ):
            if rows:
                connection.executemany(statement, rows)
        for name, left in self.work:
            sqlite_work.keep(connection, name, left)


def split(entity: str) -> tuple[str, str]:
    """The kind and the id of `kind/id`."""
    kind, _, rest = entity.partition("/")
    return kind, rest


def write_steps(
    connection: sqlite3.Connection,
    tenant: str,
    steps: Iterable[tuple[Append, bytes]],
    counts: Counts,
    tally: StatisticsBuffer | None = None,
) -> list[Answer | CorruptionError]:
    """Write steps with the bytes of their snapshots, each if its entity still is at the expected version and its key
    is new. A row that does not read is the answer of whoever asked for it; any other error says nothing of the others.
    """
    answers: list[Answer | CorruptionError] = []
    rows, touched = _Rows(), set[str]()
    for append, snapshot in steps:
        if append.entity in touched:
            rows.write(connection)
            rows, touched = _Rows(), set()
        try:
            answers.append(_planned(connection, tenant, append, snapshot, rows, counts, tally))
        except CorruptionError as error:
            answers.append(error)
        touched.add(append.entity)
    rows.write(connection)
    return answers


def _planned(
    connection: sqlite3.Connection,
    tenant: str,
    append: Append,
    snapshot: bytes,
    rows: _Rows,
    counts: Counts,
    tally: StatisticsBuffer | None,
) -> Answer:
    """The answer to one step, with what it writes added to the rows."""
    kind, _, own = append.entity.partition("/")
    name = (tenant, kind, own)
    entry = append.entry
    known = _known(connection, name, append.entity, entry.key)
    if known.kept is not None:
        return Duplicate(known.kept)
    if known.version != append.expected:
        if tally is not None:
            tally.count(kind, CONFLICTS, entry.event.at_ms)
        return Conflict(known.version)
    if append.fence is not None and sqlite_work.fence(connection, name, append.fence[0]) != append.fence[1]:
        return StaleAttempt(known.version)
    record = encode_record(entry, durable=known.journal_bytes, previous=known.head)
    time_ms, at_ms = entry.event.time_ms, entry.event.at_ms
    states, tags = standing(append)
    active = {state: known.active.get(state, at_ms) for state in states}
    values = (
        entry.version,
        append.snapshot.revision,
        encode(append.snapshot.configuration),
        append.snapshot.ended,
        encode(active),
        encode(tags),
        snapshot,
        record.head,
        known.journal_bytes + len(record.line),
        since_ms(active, append.snapshot.configuration, at_ms),
        time_ms,
    )
    if known.version == 0:
        rows.created.append((*values, time_ms, *name))
    else:
        rows.swapped.append((*values, *name, known.version))
    rows.journal.append((*name, entry.version, record.line, record.head, time_ms))
    rows.keys.append((*name, entry.key, entry.version, time_ms))
    _list(rows, name, known, active, tags)
    if append.left.born or append.left.ended or append.left.cancelled:
        rows.work.append((name, append.left))
    _count(counts, kind, known, append.snapshot.revision, active)
    if tally is not None:
        tally.step(kind, known.active, active, at_ms)
    return Appended(entry.version, record.head)


def _known(connection: sqlite3.Connection, name: Name, entity: str, key: str) -> _Known:
    found = connection.execute(SELECT_ENTITY, (key, *name)).fetchone()
    if found is None:
        return _Known(None, 0, "", {}, (), chain_start(entity, tenant=name[0]), 0)
    kept, version, revision, active, tags, head, journal_bytes = found
    try:
        return _Known(kept, version, revision, decode_active(active), decode_texts(tags), head, journal_bytes)
    except msgspec.MsgspecError as error:  # stops this entity, and nobody else in the batch
        raise CorruptionError(f"the row of `{entity}` does not read: {error}", code="entity.row") from error


def _list(rows: _Rows, name: Name, known: _Known, active: dict[str, int], tags: tuple[str, ...]) -> None:
    """Note which rows of lists the step changes."""
    for state, since in known.active.items():
        if state not in active:
            rows.states_left.append((*name, state, since))
    for state, since in active.items():
        if state not in known.active:
            rows.states_entered.append((*name, state, since))
    if tags != known.tags:
        tenant, kind, own = name
        rows.tags_left.extend((tenant, kind, tag, own) for tag in known.tags if tag not in tags)
        rows.tags_entered.extend((tenant, kind, tag, own) for tag in tags if tag not in known.tags)


def _count(counts: Counts, kind: str, known: _Known, revision: str, active: dict[str, int]) -> None:
    """Note which counters the step changes: those of states left and entered, or all when the revision is another."""
    stays = known.revision == revision
    for state in known.active:
        if not (stays and state in active):
            place = (kind, known.revision, state)
            counts[place] = counts.get(place, 0) - 1
    for state in active:
        if not (stays and state in known.active):
            place = (kind, revision, state)
            counts[place] = counts.get(place, 0) + 1


def write_counts(connection: sqlite3.Connection, tenant: str, counts: Counts) -> None:
    """Add what a batch changed to the counters; in one order, so that a page is touched once."""
    rows = [(tenant, *place, change) for place, change in sorted(counts.items()) if change]
    if rows:
        connection.executemany(UPSERT_COUNT, rows)


def write_refusals(connection: sqlite3.Connection, tenant: str, refusals: Sequence[Refusal]) -> None:
    """Append refusals to their chain, which is one for the whole file."""
    found = connection.execute(SELECT_REFUSAL_HEAD).fetchone()
    head = chain_start("audit_refusal") if found is None else found[0]
    for refusal in refusals:
        body = encode(refusal)
        head = blake2b(head.encode() + body, digest_size=16).hexdigest()
        row = (tenant, *split(refusal.entity), refusal.principal, refusal.time_ms, body, head)
        connection.execute(INSERT_REFUSAL, row)
