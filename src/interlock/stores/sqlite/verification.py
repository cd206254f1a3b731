"""Whether what a SQLite file keeps beside its journals agrees with them: columns, lists, tags, keys and counts.

Rule 1: journals and snapshots are proven elsewhere; here they are believed, and the rest is held against them.
Rule 2: it reads, and repairs nothing: a difference is for a person to look at.
Rule 3: a key older than the window may be forgotten; one that is there must be that of its entry.
Rule 4: rows of states are looked for by what the entity's own row says; one too many shows in the counts of the file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import msgspec

from interlock.model.codec import decode_snapshot
from interlock.model.limits import KEY_WINDOW_MS
from interlock.ports.store import listed_states
from interlock.stores.listing import decode_active, decode_texts
from interlock.stores.sql.commit_plan import split_entity

DIFFERENCES_MAX = 10
"""Differences told of one entity or file: enough to see what kind they are of."""

SELECT_BESIDE = """
    SELECT version, revision, configuration, ended, active, tags, snapshot, changed_ms FROM entity
    WHERE tenant = ? AND kind = ? AND id = ?"""
SELECT_STATE = """
    SELECT 1 FROM entity_state WHERE tenant = ? AND kind = ? AND id = ? AND state = ? AND entered_ms = ?"""
SELECT_TAGS = "SELECT tag FROM entity_tag WHERE tenant = ? AND kind = ? AND id = ? ORDER BY tag"
SELECT_ENTITY_KEYS = "SELECT key, version, time_ms FROM event_key WHERE tenant = ? AND kind = ? AND id = ?"
SELECT_WRITTEN = "SELECT version, record, time_ms FROM journal WHERE tenant = ? AND kind = ? AND id = ?"
SELECT_NEWEST = "SELECT max(time_ms) FROM event_key WHERE tenant = ?"
SELECT_COUNTED = """
    SELECT e.kind, e.revision, s.state, count(*) FROM entity_state AS s
    CROSS JOIN entity AS e ON e.tenant = s.tenant AND e.kind = s.kind AND e.id = s.id
    WHERE s.tenant = ? GROUP BY e.kind, e.revision, s.state"""
SELECT_COUNTS = "SELECT kind, revision, state, entities FROM state_count WHERE tenant = ? AND entities != 0"
SELECT_OWNERLESS = """
    SELECT kind, id FROM {table} AS t WHERE tenant = ?1
      AND NOT EXISTS (SELECT 1 FROM entity AS e WHERE e.tenant = ?1 AND e.kind = t.kind AND e.id = t.id) LIMIT 1"""
BESIDE = ("entity_state", "entity_tag", "event_key", "work")
"""The tables whose rows belong to an entity and are not journals."""


class _Keyed(msgspec.Struct):
    """What of a record is read here: its key."""

    k: str


_keyed = msgspec.json.Decoder(_Keyed)


def entity_differences(connection: sqlite3.Connection, tenant: str, entity: str) -> tuple[str, ...]:
    """How the rows beside an entity's journal differ from it and from the snapshot."""
    name = (tenant, *split_entity(entity))
    connection.execute("BEGIN")  # one moment for all that is compared
    try:
        found = connection.execute(SELECT_BESIDE, name).fetchone()
        return () if found is None else tuple(_first([*_columns(found), *_lists(connection, name, found)]))
    finally:
        connection.execute("COMMIT")


def file_differences(connection: sqlite3.Connection, tenant: str) -> tuple[str, ...]:
    """How what belongs to no single entity differs from the entities: counts, and rows of entities that are not."""
    connection.execute("BEGIN")
    try:
        return tuple(_first([*_counts(connection, tenant), *_ownerless(connection, tenant)]))
    finally:
        connection.execute("COMMIT")


def _first(differences: list[str]) -> list[str]:
    more = len(differences) - DIFFERENCES_MAX
    return differences if more <= 0 else [*differences[:DIFFERENCES_MAX], f"and {more} more"]


def _columns(found: tuple[object, ...]) -> Iterator[str]:
    """The columns of the entity's own row, against its snapshot."""
    _, revision, configuration, ended, active, _, body, _ = found
    assert isinstance(configuration, bytes)
    assert isinstance(active, bytes)
    assert isinstance(body, bytes)
    snapshot = decode_snapshot(body)
    told = (
        ("revision", revision, snapshot.revision),
        ("configuration", decode_texts(configuration), snapshot.configuration),
        ("ended", ended, snapshot.ended),
    )
    for column, kept, given in told:
        if kept != given:
            yield f"its column `{column}` says {kept!r}, and its snapshot {given!r}"
    states = listed_states(snapshot.ended, snapshot.configuration)
    missing = [each for each in states if each not in decode_active(active)]
    if missing:
        yield f"its column `active` lacks {', '.join(missing)}"


def _lists(connection: sqlite3.Connection, name: tuple[str, str, str], found: tuple[object, ...]) -> Iterator[str]:
    """The rows by which the entity is listed and its events are known again."""
    _, _, _, _, active, tags, _, _ = found
    assert isinstance(active, bytes)
    assert isinstance(tags, bytes)
    wanted = decode_active(active)
    states = {each: ms for each, ms in wanted.items() if connection.execute(SELECT_STATE, (*name, each, ms)).fetchone()}
    if states != wanted:
        yield f"the rows of `entity_state` say {_short(states)}, and its row {_short(wanted)}"
    tagged = tuple(tag for (tag,) in connection.execute(SELECT_TAGS, name))
    if tagged != tuple(sorted(decode_texts(tags))):
        yield f"the rows of `entity_tag` say {_short(tagged)}, and its row {_short(decode_texts(tags))}"
    yield from _keys(connection, name)


def _keys(connection: sqlite3.Connection, name: tuple[str, str, str]) -> Iterator[str]:
    kept = {version: (key, time_ms) for key, version, time_ms in connection.execute(SELECT_ENTITY_KEYS, name)}
    newest_ms = connection.execute(SELECT_NEWEST, name[:1]).fetchone()[0] or 0
    for version, line, time_ms in connection.execute(SELECT_WRITTEN, name):
        try:
            key = _keyed.decode(line).k
        except msgspec.MsgspecError:
            continue  # a damaged record is told by whoever proves the chain
        known = kept.get(version)
        if known is None and time_ms >= newest_ms - KEY_WINDOW_MS:
            yield f"the key of version {version} is forgotten, and it is not old"
        elif known is not None and known[0] != key:
            yield f"the key of version {version} is kept as `{known[0]}`, and its entry says `{key}`"


def _counts(connection: sqlite3.Connection, tenant: str) -> Iterator[str]:
    counted = {(kind, revision, state): n for kind, revision, state, n in connection.execute(SELECT_COUNTED, (tenant,))}
    kept = {(kind, revision, state): n for kind, revision, state, n in connection.execute(SELECT_COUNTS, (tenant,))}
    for place in sorted(counted.keys() | kept.keys()):
        if counted.get(place, 0) != kept.get(place, 0):
            kind, _, state = place
            yield f"`state_count` says {kept.get(place, 0)} of {kind} in {state}, and there are {counted.get(place, 0)}"


def _ownerless(connection: sqlite3.Connection, tenant: str) -> Iterator[str]:
    for table in BESIDE:
        row = connection.execute(SELECT_OWNERLESS.format(table=table), (tenant,)).fetchone()
        if row is not None:
            yield f"`{table}` has rows of {row[0]}/{row[1]}, which is not there"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:79] + "…"
