"""Writes the rows of a batch of steps, table by table, inside the transaction that the writer starts and commits.

Rule 1: version and key are read first, unless this connection wrote the entity last: a conflict or a duplicate writes
nothing.
Rule 2: the steps of a batch are read one by one and written table by table: each statement runs once over the rows of
all steps, which costs less than one statement per row. A step that must see what an earlier one of its batch wrote (the
same entity twice) waits until that is written.
Rule 3: counters are summed over the batch and written once, before COMMIT.
Rule 4: a step that changes an indexed field writes its keys, in the same transaction (`stores.sql.field_index`).
Rule 5: a tip that is known saves the query for its step, and an entity that is created is assumed to be new. That
cannot lead to a wrong row: the update is conditional on the version, and entities and keys are unique. Where one of
these fails, the caller undoes the batch and repeats it without tips, and without this assumption.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from interlock.errors import CorruptionError, InternalError
from interlock.model.journal.work import WorkDelta
from interlock.ports.store import Append, Appended, Conflict, Duplicate, Pruned, StaleAttempt
from interlock.stores.sql.commit_plan import JournalTip, plan_commit, tip_of_new_entity
from interlock.stores.sql.database import Name, SqlAppendResult
from interlock.stores.sql.field_index import IndexedFields, field_changes, indexed_fields
from interlock.stores.sqlite.connection import run_questions
from interlock.stores.sqlite.statements import STATEMENTS
from interlock.stores.sqlite.work import newest_attempt, write_work
from interlock.stores.statistics_buffer import StatisticsBuffer

SELECT_ENTITY = """
    SELECT k.version, e.version, e.revision, e.active, e.tags, e.head, e.journal_bytes,
           e.entered_ms
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
MOVE_STATE = """
    UPDATE entity_state SET state = ?, entered_ms = ?
    WHERE tenant = ? AND kind = ? AND id = ? AND state = ? AND entered_ms = ?"""
REPLACE_STATE = "INSERT OR REPLACE INTO entity_state (state, entered_ms, tenant, kind, id) VALUES (?, ?, ?, ?, ?)"
DELETE_STATE = """
    DELETE FROM entity_state WHERE tenant = ? AND kind = ? AND id = ? AND state = ? AND entered_ms = ?"""
INSERT_TAG = "INSERT INTO entity_tag (tenant, kind, tag, id) VALUES (?, ?, ?, ?)"
DELETE_TAG = "DELETE FROM entity_tag WHERE tenant = ? AND kind = ? AND tag = ? AND id = ?"
INSERT_FIELD = """
    INSERT INTO entity_field (tenant, kind, field, value, id) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"""
DELETE_FIELD = "DELETE FROM entity_field WHERE tenant = ? AND kind = ? AND field = ? AND value = ? AND id = ?"
UPSERT_COUNT = """
    INSERT INTO state_count (tenant, kind, revision, state, entities) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (tenant, kind, revision, state) DO UPDATE SET entities = entities + excluded.entities"""

HAS_TOMBSTONES = "SELECT 1 FROM entity_tombstone WHERE tenant = ? LIMIT 1"

Counts = dict[tuple[str, str, str], int]
"""Changes of the number of entities, by (kind, revision, state)."""


Tips = dict[str, JournalTip]
"""Where journals end, by entity."""


class _Rows:
    """The rows that a batch writes, by statement."""

    __slots__ = (
        "created",
        "fields_entered",
        "fields_left",
        "journal",
        "keys",
        "states_entered",
        "states_left",
        "states_moved",
        "swapped",
        "tags_entered",
        "tags_left",
        "work",
    )

    def __init__(self) -> None:
        self.created: list[tuple[str | int | bytes | None, ...]] = []
        self.swapped: list[tuple[str | int | bytes | None, ...]] = []
        self.journal: list[tuple[str | int | bytes, ...]] = []
        self.keys: list[tuple[str | int, ...]] = []
        self.states_left: list[tuple[str | int, ...]] = []
        self.states_moved: list[tuple[str | int, ...]] = []
        self.states_entered: list[tuple[str | int, ...]] = []
        self.tags_left: list[tuple[str, ...]] = []
        self.tags_entered: list[tuple[str, ...]] = []
        self.fields_left: list[tuple[str | bytes, ...]] = []
        self.fields_entered: list[tuple[str | bytes, ...]] = []
        self.work: list[tuple[Name, WorkDelta]] = []

    def write(self, connection: sqlite3.Connection) -> None:
        """Write all rows; entities first, because journals refer to them."""
        if self.created:
            connection.executemany(INSERT_ENTITY, self.created)
        if self.swapped:
            swapped = connection.executemany(UPDATE_ENTITY, self.swapped).rowcount
            if swapped != len(self.swapped):  # a tip was wrong: the writer undoes the batch, and reads every tip
                raise InternalError(f"expected {len(self.swapped)} updated rows, got {swapped}", code="store.swap")
        if self.states_moved:
            moved = connection.executemany(MOVE_STATE, self.states_moved).rowcount
            if moved != len(self.states_moved):  # a row was missing: every entity is listed again
                connection.executemany(REPLACE_STATE, [row[:5] for row in self.states_moved])
        for statement, rows in (
            (INSERT_JOURNAL, self.journal),
            (INSERT_KEY, self.keys),
            (DELETE_STATE, self.states_left),
            (INSERT_STATE, self.states_entered),
            (DELETE_TAG, self.tags_left),
            (INSERT_TAG, self.tags_entered),
            (DELETE_FIELD, self.fields_left),
            (INSERT_FIELD, self.fields_entered),
        ):
            if rows:
                connection.executemany(statement, rows)
        if self.work:
            write_work(connection, self.work)


def write_steps(
    connection: sqlite3.Connection,
    tenant: str,
    steps: Iterable[Append],
    counts: Counts,
    statistics: StatisticsBuffer | None = None,
    *,
    tips: Tips | None = None,
    indexed: IndexedFields | None = None,
    has_tombstones: bool | None = None,
) -> tuple[list[SqlAppendResult | CorruptionError], Tips]:
    """Write steps, each if its entity is still at the expected version and its key is new.

    Returns the answers, and where the journals end once this is committed. `tips` is where journals end now, as far as
    known; the entities of this batch are taken out of it. A row that cannot be decoded is the answer of its own step.
    Any other error undoes the whole batch; it may be that a tip was wrong, or that a key is known (rule 5).
    `indexed` are the fields whose keys are kept, read from this connection inside its transaction; None: they are read
    now. `has_tombstones`: entities were pruned from this file; None: it is looked up when an entity is created.
    """
    if indexed is None:
        indexed = run_questions(connection, indexed_fields(STATEMENTS, tenant))
    answers: list[SqlAppendResult | CorruptionError] = []
    rows, tips_after = _Rows(), Tips()
    execute = connection.execute
    may_assume = bool(tips)
    for append in steps:
        entity, entry, expected = append.entity, append.entry, append.expected
        kind, _, own = entity.partition("/")
        name = (tenant, kind, own)
        if entity in tips_after:
            rows.write(connection)
            rows = _Rows()
        if expected == 0 and has_tombstones is not False:
            if has_tombstones is None:
                has_tombstones = execute(HAS_TOMBSTONES, (tenant,)).fetchone() is not None
            pruned = execute(STATEMENTS.tombstone, name).fetchone() if has_tombstones else None
            if pruned is not None:
                answers.append(Pruned(pruned[0]))
                continue
        tip = tips.pop(entity, None) if tips else None
        if tip is None and expected == 0 and may_assume:
            tip = tip_of_new_entity(entity, tenant)
        elif tip is None or tip.version != expected:
            found = execute(SELECT_ENTITY, (entry.key, tenant, kind, own)).fetchone()
            if found is not None and found[0] is not None:
                answers.append(Duplicate(found[0]))
                continue
            tip = tip_of_new_entity(entity, tenant) if found is None else JournalTip(*found[1:])
            if tip.version < 0:
                answers.append(Pruned(-tip.version))
                continue
            if tip.version != expected:
                if statistics is not None:
                    statistics.count_conflict(kind, entry.event.at_ms)
                answers.append(Conflict(tip.version))
                continue
        if append.fence is not None and newest_attempt(connection, name, append.fence[0]) != append.fence[1]:
            answers.append(StaleAttempt(tip.version))
            continue
        try:
            plan = plan_commit(append, tip)
        except CorruptionError as error:
            answers.append(error)
            continue
        after, changes, time_ms = plan.tip, plan.changes, entry.event.time_ms
        tips_after[entity] = after
        version, head = after.version, after.head
        values = (
            version,
            after.revision,
            plan.configuration,
            append.snapshot.ended,
            after.active,
            after.tags,
            append.snapshot_json,
            head,
            after.journal_bytes,
            after.entered_ms,
            time_ms,
        )
        if expected:
            rows.swapped.append((*values, tenant, kind, own, expected))
        else:
            rows.created.append((*values, time_ms, tenant, kind, own))
        rows.journal.append((tenant, kind, own, version, plan.line, head, time_ms))
        rows.keys.append((tenant, kind, own, entry.key, version, time_ms))
        left: Sequence[tuple[str, int]] = ()
        entered: Sequence[tuple[str, int]] = ()
        if changes is not None:
            left, entered = changes.states_left, changes.states_entered
            if len(left) == len(entered) == 1:
                rows.states_moved.append((*entered[0], tenant, kind, own, *left[0]))
            else:
                for state, since_ms in left:
                    rows.states_left.append((tenant, kind, own, state, since_ms))
                for state, since_ms in entered:
                    rows.states_entered.append((tenant, kind, own, state, since_ms))
            for tag in changes.tags_left:
                rows.tags_left.append((tenant, kind, tag, own))
            for tag in changes.tags_entered:
                rows.tags_entered.append((tenant, kind, tag, own))
            for of_revision, state, change in changes.counts:
                place = (kind, of_revision, state)
                counts[place] = counts.get(place, 0) + change
        if kind in indexed:
            for field, key_before, key_after in field_changes(append, indexed[kind]):
                if key_before is not None:
                    rows.fields_left.append((tenant, kind, field, key_before, own))
                if key_after is not None:
                    rows.fields_entered.append((tenant, kind, field, key_after, own))
        delta = append.work
        if delta.created or delta.finished or delta.cancelled:
            rows.work.append((name, delta))
        if statistics is not None:
            statistics.count_step(kind, left, entered, entry.event)
        answers.append(Appended(version, head))
    rows.write(connection)
    return answers, tips_after


def write_counts(connection: sqlite3.Connection, tenant: str, counts: Counts) -> None:
    """Add the changes of a batch to the counters, sorted, so that each page is written once."""
    rows = [(tenant, *place, change) for place, change in sorted(counts.items()) if change]
    if rows:
        connection.executemany(UPSERT_COUNT, rows)
