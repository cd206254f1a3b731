"""Compares the derived rows of a SQL store with journals and snapshots: columns, lists, tags, keys and counts.

Rule 1: journals and snapshots are verified elsewhere; here they are trusted, and the other rows are compared with them.
Rule 2: it reads and repairs nothing: a difference needs the attention of an operator.
Rule 3: everything is compared as of one moment, whatever is written meanwhile.
Rule 4: for one entity only the rows that must exist are looked up: no index leads from an entity to its list rows. Rows
too many are found when the whole database is walked, page by page along its keys.
Rule 5: a key older than the window may have expired; a key that exists must be that of its entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from interlock.model.encoding.codec import UNDECODABLE, decode_snapshot
from interlock.model.encoding.index_key import index_key
from interlock.model.limits import KEY_WINDOW_MS
from interlock.ports.store import listed_states
from interlock.stores.listing import FIRST_MS, decode_active, decode_texts
from interlock.stores.sql.commit_plan import split_entity
from interlock.stores.sql.database import ANY_STATE, Ask, Name, Questions, Statements
from interlock.stores.sql.field_index import decode_context, list_indexes

DIFFERENCES_MAX = 10
"""Differences reported for one entity or database: enough to see what went wrong."""

PAGE = 2_000
"""Rows of one read: a few milliseconds."""


FIELDS_PAGE = 200
"""Keys of one read, each with a snapshot, which has up to 1 MiB."""


class _KeyOfRecord(msgspec.Struct):
    """The part of a record that is compared: its key."""

    k: str


_decode_key = msgspec.json.Decoder(_KeyOfRecord).decode


def entity_differences(sql: Statements, tenant: str, entity: str) -> Questions[tuple[str, ...]]:
    """Return how the derived rows of one entity differ from its journal and snapshot."""
    name = (tenant, *split_entity(entity))
    rows = yield Ask(sql.derived_row, name)
    if not rows:
        return ()
    try:
        found = [*_compare_columns(rows[0])]
        wanted = _wanted_rows(sql, rows[0])
    except UNDECODABLE as error:
        found = [f"its row cannot be decoded: {error}"]
    else:
        found += yield from _compare_lists(sql, name, *wanted)
        found += yield from _compare_fields(sql, name, rows[0][5])
    found += yield from _compare_keys(sql, name)
    return tuple(_first(found))


def database_differences(sql: Statements, tenant: str) -> Questions[tuple[str, ...]]:
    """Return differences that belong to no single entity: unlisted entities, orphaned rows and wrong counts."""
    counted: Counter[tuple[str, str, str]] = Counter()
    found: list[str] = []
    if sql.walk_entities is not None:
        found += yield from _unlisted_entities(sql.walk_entities, tenant)
    found += yield from _stray_states(sql, tenant, counted)
    found += yield from _stray_tags(sql, tenant)
    found += yield from _stray_fields(sql, tenant)
    found += yield from _orphaned_rows("event_key", sql.walk_keys, tenant, ("", "", ""))
    found += yield from _orphaned_rows("work", sql.walk_work, tenant, ("", "", "", -1, -1))
    stored = {tuple(row[:3]): row[3] for row in (yield Ask(sql.state_counts, (tenant,)))}
    for place in sorted(counted.keys() | stored.keys()):
        if counted[place] != stored.get(place, 0):
            kind, _, state = place
            found.append(f"`state_count` has {stored.get(place, 0)} of {kind} in {state}, expected {counted[place]}")
    return tuple(_first(found))


def _first(differences: list[str]) -> list[str]:
    more = len(differences) - DIFFERENCES_MAX
    return differences if more <= 0 else [*differences[:DIFFERENCES_MAX], f"and {more} more"]


# One entity


def _compare_columns(row: Any) -> Iterator[str]:
    """Compare the columns of the entity's own row with its snapshot."""
    revision, configuration, ended, active, _, body, _ = row
    snapshot = decode_snapshot(body)
    for column, stored, expected in (
        ("revision", revision, snapshot.revision),
        ("configuration", decode_texts(configuration), snapshot.configuration),
        ("ended", ended, snapshot.ended),
    ):
        if stored != expected:
            yield f"its column `{column}` is {stored!r}, but its snapshot has {expected!r}"
    states = listed_states(snapshot.ended, snapshot.configuration)
    missing = [each for each in states if each not in decode_active(active)]
    if missing:
        yield f"its column `active` lacks {', '.join(missing)}"


def _wanted_rows(sql: Statements, row: Any) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the states, with entry times, and the tags that the entity must be listed under."""
    active, tags = decode_active(row[3]), decode_texts(row[4])
    return active if sql.walk_entities is None else {ANY_STATE: row[6], **active}, tags


def _compare_lists(sql: Statements, name: Name, states: dict[str, int], tags: tuple[str, ...]) -> Questions[list[str]]:
    present = {row[0] for row in (yield Ask(sql.present_states, name, list(states.items())))}
    found = [f"`entity_state` has no row for {_described(each)}" for each in sorted(states.keys() - present)]
    tagged = {row[0] for row in (yield Ask(sql.present_tags, name, [(each,) for each in tags]))}
    return [*found, *(f"`entity_tag` has no row for the tag `{each}`" for each in tags if each not in tagged)]


def _compare_fields(sql: Statements, name: Name, snapshot: bytes) -> Questions[list[str]]:
    """Compare the keys of indexed fields with the context; an index that is being built may lack them."""
    tenant, kind, _ = name
    indexes = [each for each in (yield from list_indexes(sql, tenant)) if (each.kind, each.state) == (kind, "ready")]
    context = decode_context(snapshot).context
    keys = {each.field: key for each in indexes if (key := index_key(context.get(each.field), each.form)) is not None}
    present = {row[0] for row in (yield Ask(sql.present_fields, name, list(keys.items())))}
    return [f"`entity_field` has no row for the field `{each}`" for each in sorted(keys.keys() - present)]


def _described(state: str) -> str:
    return f"the state `{state}`" if state != ANY_STATE else "the entity as a whole"


def _compare_keys(sql: Statements, name: Name) -> Questions[list[str]]:
    """Compare the deduplication keys with the entries."""
    found: list[str] = []
    after = 0
    while rows := (yield Ask(sql.journal_keys, (*name, KEY_WINDOW_MS, after, PAGE))):  # versions have no gaps
        for version, line, is_recent, stored in rows:
            try:
                key = _decode_key(line).k
            except UNDECODABLE:
                continue  # a damaged record is reported by the verification of the chain
            if stored is None and is_recent:
                found.append(f"the key of version {version} is missing, although it has not expired")
            elif stored is not None and stored != key:
                found.append(f"the key of version {version} is stored as `{stored}`, but its entry has `{key}`")
        after += PAGE
    return found


# The whole database


def _walk(
    statement: str, tenant: str, start: tuple[Any, ...], check: Callable[[Any], str | None], *, size: int = PAGE
) -> Questions[list[str]]:
    """Check all rows of a table, along its key."""
    found: list[str] = []
    last = start
    while True:  # until a page is not full
        rows = yield Ask(statement, (tenant, *last, size))
        found += [difference for row in rows if (difference := check(row)) is not None]
        if len(rows) < size:
            return found
        last = tuple(rows[-1][: len(start)])


def _unlisted_entities(statement: str, tenant: str) -> Questions[list[str]]:
    """Return entities that a list of all entities misses."""

    def check(row: Any) -> str | None:
        kind, own, is_listed = row
        return None if is_listed else f"`entity_state` has no row for {kind}/{own} as a whole: no list shows it"

    return (yield from _walk(statement, tenant, ("", ""), check))


def _stray_states(sql: Statements, tenant: str, counted: Counter[tuple[str, str, str]]) -> Questions[list[str]]:
    """Return rows of states that their entity is not in, or not since then; count all others."""

    def check(row: Any) -> str | None:
        kind, state, since_ms, own, revision, active, entered_ms = row
        if revision is None:
            return f"`entity_state` has orphaned rows for {kind}/{own}"
        if state != ANY_STATE:
            counted[kind, revision, state] += 1
        if since_ms == (entered_ms if state == ANY_STATE else _decode_or_empty(active).get(state)):
            return None
        return f"`entity_state` has a row for {_described(state)} of {kind}/{own} since {since_ms}, unlike its own row"

    return (yield from _walk(sql.walk_states, tenant, ("", "", FIRST_MS, ""), check))


def _stray_tags(sql: Statements, tenant: str) -> Questions[list[str]]:
    def check(row: Any) -> str | None:
        kind, tag, own, tags = row
        if tags is None:
            return f"`entity_tag` has orphaned rows for {kind}/{own}"
        return (
            None if _has_tag(tags, tag) else f"`entity_tag` has a row for `{tag}` of {kind}/{own}, unlike its own row"
        )

    return (yield from _walk(sql.walk_tags, tenant, ("", "", ""), check))


def _stray_fields(sql: Statements, tenant: str) -> Questions[list[str]]:
    """Return keys of indexed fields that differ from the context; those of an index that is being dropped may."""
    indexes = {(each.kind, each.field): each for each in (yield from list_indexes(sql, tenant))}

    def check(row: Any) -> str | None:
        kind, field, value, own, snapshot = row
        status = indexes.get((kind, field))
        if snapshot is None or status is None:
            return f"`entity_field` has orphaned rows for {kind}/{own}"
        if status.state == "dropping" or bytes(value) == _key_or_none(snapshot, field, status.form):
            return None
        return f"`entity_field` has a row for the field `{field}` of {kind}/{own}, unlike its snapshot"

    return (yield from _walk(sql.walk_fields, tenant, ("", "", b"", ""), check, size=FIELDS_PAGE))


def _key_or_none(snapshot: bytes, field: str, form: str) -> bytes | None:
    try:
        return index_key(decode_context(snapshot).context.get(field), form)
    except UNDECODABLE:
        return None


def _orphaned_rows(table: str, statement: str, tenant: str, start: tuple[Any, ...]) -> Questions[list[str]]:
    def check(row: Any) -> str | None:
        return f"`{table}` has orphaned rows for {row[0]}/{row[1]}" if row[-1] is None else None

    return (yield from _walk(statement, tenant, start, check))


def _decode_or_empty(active: bytes) -> dict[str, int]:
    """Return the states of a row; none when it cannot be decoded, which is reported with its entity."""
    try:
        return decode_active(active)
    except UNDECODABLE:
        return {}


def _has_tag(tags: bytes, tag: str) -> bool:
    try:
        return tag in decode_texts(tags)
    except UNDECODABLE:
        return False
