"""The statements of one step, inside the writer's transaction.

Rule 1: version and key are read first: a conflict or a known key writes nothing.
Rule 2: what a step changes, it changes here and nowhere else: the entity, its journal, its key, its states and tags.
Rule 3: counters are summed over the batch and written once, before COMMIT.
"""

from __future__ import annotations

import sqlite3
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from interlock.errors import CorruptionError, InternalError
from interlock.model.codec import encode
from interlock.model.record import encode_record, genesis
from interlock.ports.store import Append, Appended, Conflict, Duplicate, Refusal

SELECT_ENTITY = """
    SELECT version, revision, active, tags, head, journal_bytes
    FROM entity WHERE tenant = ? AND kind = ? AND id = ?"""
SELECT_KEY = "SELECT version FROM event_key WHERE tenant = ? AND kind = ? AND id = ? AND key = ?"
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
DELETE_STATE = "DELETE FROM entity_state WHERE tenant = ? AND kind = ? AND id = ? AND state = ?"
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

decode_active = msgspec.json.Decoder(dict[str, int]).decode
decode_texts = msgspec.json.Decoder(tuple[str, ...]).decode


class _Known(NamedTuple):
    """What a step must know of its entity: version 0 when there is none."""

    version: int
    revision: str
    active: dict[str, int]
    tags: tuple[str, ...]
    head: str
    journal_bytes: int


def split(entity: str) -> tuple[str, str]:
    """The kind and the id of `kind/id`."""
    kind, _, rest = entity.partition("/")
    return kind, rest


def write_step(
    connection: sqlite3.Connection, tenant: str, append: Append, snapshot: bytes, counts: Counts
) -> Appended | Duplicate | Conflict:
    """Write one step, if the entity still is at the expected version and its key is new."""
    name = (tenant, *split(append.entity))
    known = _known(connection, name, append.entity)
    entry = append.entry
    kept = connection.execute(SELECT_KEY, (*name, entry.key)).fetchone() if known.version else None
    if kept is not None:
        return Duplicate(kept[0])
    if known.version != append.expected:
        return Conflict(known.version)
    record = encode_record(entry, durable=known.journal_bytes, previous=known.head)
    time_ms = entry.event.time_ms
    active = {state: known.active.get(state, time_ms) for state in append.states}
    values = (
        entry.version,
        append.snapshot.revision,
        encode(append.snapshot.configuration),
        append.snapshot.ended,
        encode(active),
        encode(append.tags),
        snapshot,
        record.head,
        known.journal_bytes + len(record.line),
        max((active[each] for each in append.snapshot.configuration if each in active), default=time_ms),
        time_ms,
    )
    _swap(connection, name, known.version, values)
    connection.execute(INSERT_JOURNAL, (*name, entry.version, record.line, record.head, time_ms))
    connection.execute(INSERT_KEY, (*name, entry.key, entry.version, time_ms))
    _write_lists(connection, name, known, active, append.tags)
    _count(counts, name[1], known, append.snapshot.revision, active)
    return Appended(entry.version, record.head)


def _known(connection: sqlite3.Connection, name: tuple[str, str, str], entity: str) -> _Known:
    found = connection.execute(SELECT_ENTITY, name).fetchone()
    if found is None:
        return _Known(0, "", {}, (), genesis(entity, tenant=name[0]), 0)
    version, revision, active, tags, head, journal_bytes = found
    try:
        return _Known(version, revision, decode_active(active), decode_texts(tags), head, journal_bytes)
    except msgspec.MsgspecError as error:  # stops this entity, and nobody else in the batch
        raise CorruptionError(f"the row of `{entity}` does not read: {error}", code="entity.row") from error


def _swap(
    connection: sqlite3.Connection,
    name: tuple[str, str, str],
    version: int,
    values: tuple[str | int | bytes | None, ...],
) -> None:
    if version == 0:
        connection.execute(INSERT_ENTITY, (*values, values[-1], *name))
        return
    swapped = connection.execute(UPDATE_ENTITY, (*values, *name, version)).rowcount
    if swapped != 1:  # the version was read in this very transaction
        raise InternalError(f"{swapped} rows were swapped where one was read", code="store.swap")


def _write_lists(
    connection: sqlite3.Connection,
    name: tuple[str, str, str],
    known: _Known,
    active: dict[str, int],
    tags: tuple[str, ...],
) -> None:
    tenant, kind, own = name
    for state in known.active:
        if state not in active:
            connection.execute(DELETE_STATE, (*name, state))
    for state, entered_ms in active.items():
        if state not in known.active:
            connection.execute(INSERT_STATE, (*name, state, entered_ms))
    for tag in known.tags:
        if tag not in tags:
            connection.execute(DELETE_TAG, (tenant, kind, tag, own))
    for tag in tags:
        if tag not in known.tags:
            connection.execute(INSERT_TAG, (tenant, kind, tag, own))


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
    for (kind, revision, state), change in sorted(counts.items()):
        if change:
            connection.execute(UPSERT_COUNT, (tenant, kind, revision, state, change))


def write_refusals(connection: sqlite3.Connection, tenant: str, refusals: list[Refusal]) -> None:
    """Append refusals to their chain, which is one for the whole file."""
    found = connection.execute(SELECT_REFUSAL_HEAD).fetchone()
    head = genesis("audit_refusal") if found is None else found[0]
    for refusal in refusals:
        body = encode(refusal)
        head = blake2b(head.encode() + body, digest_size=16).hexdigest()
        row = (tenant, *split(refusal.entity), refusal.principal, refusal.time_ms, body, head)
        connection.execute(INSERT_REFUSAL, row)
