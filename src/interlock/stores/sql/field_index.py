"""Indexes on context fields of a SQL store: kept by each step, built online, searched page by page.

Rule 1: a step writes the keys of the fields that it changes, with its entry. The old keys are known from the snapshot
that the step started from, so nothing is read for it.
Rule 2: the builder adds an entity only if it is still at the version that was read, and holds it until that is
committed: a step cannot be overtaken by the key of an older value.
Rule 3: a search walks the index of one condition, the one with the fewest keys up to `PROBE_MAX`, and compares the
others with the snapshot. It reads at most `WALK_MAX` rows and returns what it found, with a cursor to continue from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from interlock.errors import ConflictError, UsageError
from interlock.model.conditions import KeyRange, key_range
from interlock.model.diagnostics import suggestion
from interlock.model.encoding.index_key import IndexedField, index_key
from interlock.ports.reading.field_indexes import IndexStatus, check_searchable, same_keys
from interlock.ports.store import PAGE_MAX, Append, EntityPage, EntityQuery
from interlock.stores.cursor import decode_field_cursor, encode_field_cursor
from interlock.stores.listing import Found, page, row_position
from interlock.stores.sql.database import Ask, Questions, Statements

IndexedFields = Mapping[str, tuple[tuple[str, str], ...]]
"""The fields whose keys every step writes, with their forms, by kind."""

PROBE_MAX = 1_000
"""Keys of a condition that are counted to choose the index to walk: a fraction of a millisecond."""

WALK_MAX = 2_000
"""Rows that one page reads at most: a few milliseconds, whatever the size of the index."""

READ_TRIES_MAX = 50
"""How often the builder reads an entity again that is changed at the same moment."""

VALUE = 11
"""The column of a row by field that has the key; those before it are columns of a list."""


class _Context(msgspec.Struct):
    """The part of a snapshot that conditions are compared with."""

    context: dict[str, Any]


decode_context = msgspec.json.Decoder(_Context).decode


# Keeping


def indexed_fields(sql: Statements, tenant: str) -> Questions[IndexedFields]:
    """Return the fields whose keys every step writes."""
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for each in (yield from list_indexes(sql, tenant)):
        if each.state != "dropping":
            found[each.kind] = (*found.get(each.kind, ()), (each.field, each.form))
    return found


def field_changes(
    append: Append, fields: tuple[tuple[str, str], ...]
) -> Iterator[tuple[str, bytes | None, bytes | None]]:
    """Yield the fields whose key a step changes, with the keys before and after it.

    Raises UsageError (`append.before`) for a step that does not say what it started from.
    """
    if append.before is None and append.expected:
        message = f"the append of `{append.entity}` lacks `before`, and its kind has indexed fields"
        raise UsageError(message, code="append.before", hint="set `before` to the snapshot that the step started from")
    before = {} if append.before is None else append.before.context
    after = append.snapshot.context
    for field, form in fields:
        old, new = before.get(field), after.get(field)
        if old is not new:
            old_key, new_key = index_key(old, form), index_key(new, form)
            if old_key != new_key:
                yield field, old_key, new_key


# Declaring, building, removing


def list_indexes(sql: Statements, tenant: str) -> Questions[tuple[IndexStatus, ...]]:
    """Return all indexes, by kind and field."""
    return tuple(IndexStatus(*row) for row in (yield Ask(sql.indexes, (tenant,))))


def find_index(sql: Statements, tenant: str, kind: str, field: str) -> Questions[IndexStatus | None]:
    """Return an index; None when there is none."""
    rows = yield Ask(sql.indexes_of_kind, (tenant, kind))
    return next((each for each in map(_status, rows) if each.field == field), None)


def _status(row: Any) -> IndexStatus:
    return IndexStatus(*row)


def undeclared(sql: Statements, tenant: str, fields: tuple[IndexedField, ...]) -> Questions[tuple[IndexedField, ...]]:
    """Return the fields whose declaration would change the store. One with keys in another order is kept as it is."""
    known = {(each.kind, each.field): each.form for each in (yield from list_indexes(sql, tenant))}
    return tuple(
        each
        for each in fields
        if (form := known.get((each.kind, each.field))) is None or (form != each.form and same_keys(form, each.form))
    )


def declare_indexes(sql: Statements, tenant: str, fields: tuple[IndexedField, ...]) -> Questions[None]:
    """Create the indexes that are missing, while no step is in progress."""
    for statement in sql.hold_steps:
        yield Ask(statement)
    for each in sorted((yield from undeclared(sql, tenant, fields)), key=lambda each: (each.kind, each.field)):
        has_entities = yield Ask(sql.has_entities, (tenant, each.kind))
        state = "building" if has_entities else "ready"
        yield Ask(sql.declare_index, (tenant, each.kind, each.field, each.form, state))
    yield from _change_generation(sql, tenant)


def _change_generation(sql: Statements, tenant: str) -> Questions[None]:
    if sql.next_generation is not None:
        yield Ask(sql.next_generation, (tenant,))


def build_part(sql: Statements, tenant: str, kind: str, field: str, limit: int) -> Questions[IndexStatus | None]:
    """Add the next entities to an index, in the order of their ids; return it, or None when it does not exist.

    Raises ConflictError when an entity changed at each of `READ_TRIES_MAX` attempts.
    """
    held = yield Ask(sql.index_to_build, (tenant, kind, field))
    status = _status(held[0]) if held else None
    if status is None or status.state != "building":
        return status
    rows = yield Ask(sql.entities_after, (tenant, kind, status.cursor, limit))
    last = rows[-1][0] if rows else status.cursor
    pending, missed = [tuple(row) for row in rows], list[tuple[str]]()
    for _ in range(READ_TRIES_MAX):
        keys = [(own, version, key) for own, version, key in _keys(pending, status) if key is not None]
        kept = {row[0] for row in (yield Ask(sql.add_fields, (tenant, kind, field), keys))}
        missed = [(own,) for own, _, _ in keys if own not in kept]
        if not missed:
            break
        pending = [tuple(row) for row in (yield Ask(sql.entities_named, (tenant, kind), missed))]
    else:
        message = f"{len(missed)} entities of `{kind}` changed again and again while they were indexed"
        raise ConflictError(message, code="index.busy", hint="run the command again")
    is_complete = len(rows) < limit
    state = "ready" if is_complete else "building"
    values = (tenant, kind, field, status.cursor, last, status.done + len(rows), state)
    yield Ask(sql.advance_index, values)  # unless another process was faster
    return replace(status, cursor=last, done=status.done + len(rows), state=state)


def _keys(rows: list[tuple[Any, ...]], status: IndexStatus) -> Iterator[tuple[str, int, bytes | None]]:
    for own, version, snapshot in rows:
        yield own, version, index_key(decode_context(snapshot).context.get(status.field), status.form)


def drop_part(sql: Statements, tenant: str, kind: str, field: str, limit: int) -> Questions[IndexStatus | None]:
    """Delete rows of an index that steps no longer maintain; return it, or None when it is removed."""
    status = yield from find_index(sql, tenant, kind, field)
    if status is None or status.state != "dropping":
        return status
    deleted = yield Ask(sql.delete_fields, (tenant, kind, field, limit))
    if len(deleted) == limit:
        return status
    yield Ask(sql.forget_index, (tenant, kind, field))
    return None


def stop_keeping(sql: Statements, tenant: str, kind: str, field: str) -> Questions[None]:
    """Mark an index as being removed, while no step is in progress: no later step writes its keys."""
    for statement in sql.hold_steps:
        yield Ask(statement)
    yield Ask(sql.mark_dropping, (tenant, kind, field))
    yield from _change_generation(sql, tenant)


# Searching


def find_by_fields(sql: Statements, tenant: str, query: EntityQuery) -> Questions[EntityPage]:
    """Return a page of the entities that meet all conditions on fields, in the order of one of them.

    Raises UsageError for a field without a complete index, a value that it cannot have, and an invalid cursor.
    """
    assert query.where, "the query has conditions"
    known = {each.field: each for each in map(_status, (yield Ask(sql.indexes_of_kind, (tenant, query.kind))))}
    ranges = []
    for field, wanted in query.where.items():
        status = check_searchable(query.kind, field, known.get(field), tuple(known))
        ranges.append(key_range(field, wanted, status.form))
    if query.after is None:
        walked = yield from _most_selective(sql, tenant, query.kind, ranges)
        position = (walked.low, "")
    else:
        name, key, own = decode_field_cursor(query.after)
        walked = _walked(ranges, name)
        position = (key, own)
    others = [each for each in ranges if each is not walked or not each.exact]
    return (yield from _walk(sql, tenant, query, walked, others, position))


def _walked(ranges: list[KeyRange], field: str) -> KeyRange:
    found = next((each for each in ranges if each.field == field), None)
    if found is None:
        fields = [each.field for each in ranges]
        hint = suggestion(field, fields) or "pass the cursor of the previous page, with the same conditions"
        raise UsageError(f"the cursor belongs to a list by `{field[:80]}`", code="cursor.malformed", hint=hint)
    return found


def _most_selective(sql: Statements, tenant: str, kind: str, ranges: list[KeyRange]) -> Questions[KeyRange]:
    """Return the condition with the fewest keys; the first of those with more than `PROBE_MAX`."""
    best, fewest = ranges[0], PROBE_MAX + 1
    for each in ranges if len(ranges) > 1 else ():
        ((keys,),) = yield Ask(sql.count_fields, (tenant, kind, each.field, each.low, each.high, fewest))
        if keys < fewest:
            best, fewest = each, keys
    return best


def _walk(
    sql: Statements,
    tenant: str,
    query: EntityQuery,
    walked: KeyRange,
    others: list[KeyRange],
    position: tuple[bytes, str],
) -> Questions[EntityPage]:
    limit = min(query.limit, PAGE_MAX)
    found: list[Found] = []
    piece, remaining, last = limit + 1, WALK_MAX, position
    while remaining > 0:
        size = min(piece, remaining)
        rows = yield Ask(sql.list_by_field, (tenant, query.kind, walked.field, *last, walked.high, size))
        listed = [row for row in rows if row_position(row, query) is not None]
        matching = yield from _compare(sql, tenant, query.kind, listed, others)
        for row in rows:
            if len(found) == limit:
                return _page(query, found, walked.field, last)
            last = (bytes(row[VALUE]), row[1])
            if row[1] in matching:
                found.append(row)
        if len(rows) < size:
            return _page(query, found, walked.field, None)
        remaining -= len(rows)
        piece *= 2
    return _page(query, found, walked.field, last)


def _compare(
    sql: Statements, tenant: str, kind: str, rows: list[Found], conditions: list[KeyRange]
) -> Questions[set[str]]:
    """Return the ids of the rows whose snapshots meet all of these conditions."""
    if not conditions:
        return {row[1] for row in rows}
    snapshots = yield Ask(sql.entities_named, (tenant, kind), [(row[1],) for row in rows])
    return {
        own
        for own, _, snapshot in snapshots
        for context in (decode_context(snapshot).context,)
        if all(each.matches(context.get(each.field)) for each in conditions)
    }


def _page(query: EntityQuery, found: list[Found], field: str, last: tuple[bytes, str] | None) -> EntityPage:
    rows = page(query, [row[:VALUE] for row in found], last=None)
    return rows if last is None else replace(rows, after=encode_field_cursor(field, *last))


def add_contexts(sql: Statements, tenant: str, kind: str, found: EntityPage) -> Questions[EntityPage]:
    """Return a page whose rows have the context of their entities."""
    names = [(each.entity.partition("/")[2],) for each in found.rows]
    rows = yield Ask(sql.entities_named, (tenant, kind), names)
    contexts = {own: (version, decode_context(snapshot).context) for own, version, snapshot in rows}
    return replace(
        found,
        rows=tuple(replace(each, context=contexts[name][1]) for each, (name,) in zip(found.rows, names, strict=True)),
    )
