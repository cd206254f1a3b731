"""Writes a batch of commit plans, table by table, inside the writer's transaction.

Rule 1: version and key are read first: a conflict or a duplicate writes nothing.
Rule 2: the steps of a batch are read one by one and written table by table: each statement runs once over the rows of
all steps, which costs less than one statement per row. A step that must see what an earlier one of its batch wrote (the
same entity twice) waits until that is written.
Rule 3: counters are summed over the batch and written once, before COMMIT.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, field

from interlock.errors import CorruptionError, InternalError
from interlock.model.journal.work import WorkDelta
from interlock.ports.store import Append, Appended, Conflict, Duplicate, StaleAttempt
from interlock.stores.sql.commit_plan import CommitPlan, JournalTip, plan_commit, split_entity, tip_of_new_entity
from interlock.stores.sql.database import Answer, Name
from interlock.stores.sqlite.connection import run_questions
from interlock.stores.sqlite.work import apply_delta, newest_attempt
from interlock.stores.statistics_buffer import CONFLICTS, StatisticsBuffer

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
DELETE_STATE = """
    DELETE FROM entity_state WHERE tenant = ? AND kind = ? AND id = ? AND state = ? AND entered_ms = ?"""
INSERT_TAG = "INSERT INTO entity_tag (tenant, kind, tag, id) VALUES (?, ?, ?, ?)"
DELETE_TAG = "DELETE FROM entity_tag WHERE tenant = ? AND kind = ? AND tag = ? AND id = ?"
UPSERT_COUNT = """
    INSERT INTO state_count (tenant, kind, revision, state, entities) VALUES (?, ?, ?, ?, ?)
    ON CONFLICT (tenant, kind, revision, state) DO UPDATE SET entities = entities + excluded.entities"""

Counts = dict[tuple[str, str, str], int]
"""Changes of the number of entities, by (kind, revision, state)."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows that a batch writes, by statement."""

    created: list[tuple[str | int | bytes | None, ...]] = field(default_factory=list)
    swapped: list[tuple[str | int | bytes | None, ...]] = field(default_factory=list)
    journal: list[tuple[str | int | bytes, ...]] = field(default_factory=list)
    keys: list[tuple[str | int, ...]] = field(default_factory=list)
    states_left: list[tuple[str | int, ...]] = field(default_factory=list)
    states_entered: list[tuple[str | int, ...]] = field(default_factory=list)
    tags_left: list[tuple[str, ...]] = field(default_factory=list)
    tags_entered: list[tuple[str, ...]] = field(default_factory=list)
    work: list[tuple[Name, WorkDelta]] = field(default_factory=list)

    def add(self, name: Name, plan: CommitPlan) -> None:
        """Add the rows of one step."""
        append, record, tip, changes = plan.append, plan.record, plan.tip, plan.changes
        time_ms = append.entry.event.time_ms
        values = (
            tip.version,
            tip.revision,
            plan.configuration,
            append.snapshot.ended,
            tip.active,
            tip.tags,
            append.snapshot_json,
            tip.head,
            tip.journal_bytes,
            tip.entered_ms,
            time_ms,
        )
        if plan.before.version == 0:
            self.created.append((*values, time_ms, *name))
        else:
            self.swapped.append((*values, *name, plan.before.version))
        self.journal.append((*name, tip.version, record.line, record.head, time_ms))
        self.keys.append((*name, append.entry.key, tip.version, time_ms))
        if changes is not None:
            tenant, kind, own = name
            for state, since_ms in changes.states_left:
                self.states_left.append((tenant, kind, own, state, since_ms))
            for state, since_ms in changes.states_entered:
                self.states_entered.append((tenant, kind, own, state, since_ms))
            for tag in changes.tags_left:
                self.tags_left.append((tenant, kind, tag, own))
            for tag in changes.tags_entered:
                self.tags_entered.append((tenant, kind, tag, own))
        if append.left.born or append.left.ended or append.left.cancelled:
            self.work.append((name, append.left))

    def write(self, connection: sqlite3.Connection) -> None:
        """Write all rows; entities first, because journals refer to them."""
        if self.created:
            connection.executemany(INSERT_ENTITY, self.created)
        if self.swapped:
            swapped = connection.executemany(UPDATE_ENTITY, self.swapped).rowcount
            if swapped != len(self.swapped):  # the versions were read in this very transaction
                raise InternalError(f"expected {len(self.swapped)} updated rows, got {swapped}", code="store.swap")
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
        for name, delta in self.work:
            run_questions(connection, apply_delta(name, delta))


def write_steps(
    connection: sqlite3.Connection,
    tenant: str,
    steps: Iterable[Append],
    counts: Counts,
    statistics: StatisticsBuffer | None = None,
) -> list[Answer | CorruptionError]:
    """Write steps, each if its entity is still at the expected version and its key is new.

    A row that cannot be decoded is the answer of its own step. Any other error undoes the whole batch.
    """
    answers: list[Answer | CorruptionError] = []
    rows, touched = _Rows(), set[str]()
    for append in steps:
        if append.entity in touched:
            rows.write(connection)
            rows, touched = _Rows(), set()
        try:
            answers.append(_answer_step(connection, tenant, append, rows, counts, statistics))
        except CorruptionError as error:
            answers.append(error)
        touched.add(append.entity)
    rows.write(connection)
    return answers


def _answer_step(
    connection: sqlite3.Connection,
    tenant: str,
    append: Append,
    rows: _Rows,
    counts: Counts,
    statistics: StatisticsBuffer | None,
) -> Answer:
    """Return the answer to one step, and add what it writes to the rows."""
    name = (tenant, *split_entity(append.entity))
    entry = append.entry
    key_version, tip = _find_tip(connection, name, append.entity, entry.key)
    if key_version is not None:
        return Duplicate(key_version)
    if tip.version != append.expected:
        if statistics is not None:
            statistics.count(name[1], CONFLICTS, entry.event.at_ms)
        return Conflict(tip.version)
    if append.fence is not None and newest_attempt(connection, name, append.fence[0]) != append.fence[1]:
        return StaleAttempt(tip.version)
    plan = plan_commit(append, tip)
    rows.add(name, plan)
    changes = plan.changes
    for revision, state, change in () if changes is None else changes.counts:
        place = (name[1], revision, state)
        counts[place] = counts.get(place, 0) + change
    if statistics is not None:
        statistics.count_step(name[1], () if changes is None else changes.states_left, entry.event.at_ms)
    return Appended(entry.version, plan.record.head)


def _find_tip(connection: sqlite3.Connection, name: Name, entity: str, key: str) -> tuple[int | None, JournalTip]:
    """Return the version that used this key, if any, and the tip of the entity's journal."""
    found = connection.execute(SELECT_ENTITY, (key, *name)).fetchone()
    if found is None:
        return None, tip_of_new_entity(entity, name[0])
    return found[0], JournalTip(*found[1:])


def write_counts(connection: sqlite3.Connection, tenant: str, counts: Counts) -> None:
    """Add the changes of a batch to the counters, sorted, so that each page is written once."""
    rows = [(tenant, *place, change) for place, change in sorted(counts.items()) if change]
    if rows:
        connection.executemany(UPSERT_COUNT, rows)
