"""Whether what a PostgreSQL schema keeps beside its journals agrees with them: columns, lists, tags, keys and counts.

Rule 1: journals and snapshots are proven elsewhere; here they are believed, and the rest is held against them.
Rule 2: it reads, and repairs nothing: a difference is for a person to look at.
Rule 3: all that is compared is of one moment, whatever is written meanwhile.
Rule 4: of one entity only those rows are looked for that must be there: no index leads from an entity to what lists it.
Rows too many are found when the whole schema is walked, page by page along its keys.
`sqlite_audit` says the same of a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec

from interlock.model.codec import decode_snapshot
from interlock.model.limits import KEY_WINDOW_MS
from interlock.ports.store import listed_states
from interlock.stores.listing import decode_active, decode_texts
from interlock.stores.postgres.commit import ANY_STATE
from interlock.stores.postgres.connection import Connection
from interlock.stores.sql.commit_plan import split_entity

DIFFERENCES_MAX = 10
"""Differences told of one entity or schema: enough to see what kind they are of."""

PAGE = 2_000
"""Rows that are asked for at once: some milliseconds."""

ONE_MOMENT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"

SELECT_BESIDE = """
    SELECT revision, configuration, ended, active, tags, snapshot, entered_ms FROM entity
    WHERE tenant = $1 AND kind = $2 AND id = $3"""
SELECT_LISTED = """
    SELECT g.state, g.since
    FROM unnest($4::text[], $5::bigint[]) AS g (state, since) CROSS JOIN LATERAL (
      SELECT FROM entity_state
      WHERE tenant = $1 AND kind = $2 AND state = g.state AND entered_ms = g.since AND id = $3 OFFSET 0) AS s"""
SELECT_TAGGED = """
    SELECT g.tag
    FROM unnest($4::text[]) AS g (tag) CROSS JOIN LATERAL (
      SELECT FROM entity_tag WHERE tenant = $1 AND kind = $2 AND tag = g.tag AND id = $3 OFFSET 0) AS t"""
SELECT_KEYS = """
    SELECT j.version, j.record, j.at >= now() - make_interval(secs => $4::bigint / 1000.0), k.key
    FROM entity AS e CROSS JOIN LATERAL (
      SELECT version, record, at FROM journal
      WHERE tenant = $1 AND kind = $2 AND id = $3 AND version > $5 AND version <= $5 + $6
        AND at >= e.created_at AND at <= e.last_at OFFSET 0) AS j
    LEFT JOIN (
      SELECT key, version FROM event_key WHERE tenant = $1 AND kind = $2 AND id = $3) AS k ON k.version = j.version
    WHERE e.tenant = $1 AND e.kind = $2 AND e.id = $3
    ORDER BY j.version"""
SELECT_COUNTS = """
    SELECT kind, revision, state, sum(entities)::bigint FROM state_count
    WHERE tenant = $1 GROUP BY kind, revision, state"""

_OWNER = """
    LEFT JOIN LATERAL (
      SELECT revision, active, tags, entered_ms AS since FROM entity
      WHERE tenant = $1 AND kind = p.kind AND id = p.id OFFSET 0) AS e ON true"""
WALK_STATES = f"""
    WITH page AS MATERIALIZED (
      SELECT kind, state, entered_ms, id FROM entity_state
      WHERE tenant = $1 AND (kind, state, entered_ms, id) > ($2, $3, $4::bigint, $5)
      ORDER BY kind, state, entered_ms, id LIMIT $6)
    SELECT p.kind, p.state, p.entered_ms, p.id, e.revision, e.active, e.since
    FROM page AS p {_OWNER}
    ORDER BY p.kind, p.state, p.entered_ms, p.id"""  # noqa: S608 - made of constants
WALK_TAGS = f"""
    WITH page AS MATERIALIZED (
      SELECT kind, tag, id FROM entity_tag
      WHERE tenant = $1 AND (kind, tag, id) > ($2, $3, $4) ORDER BY kind, tag, id LIMIT $5)
    SELECT p.kind, p.tag, p.id, e.tags FROM page AS p {_OWNER} ORDER BY p.kind, p.tag, p.id"""  # noqa: S608 - see above
WALK_KEYS = f"""
    WITH page AS MATERIALIZED (
      SELECT kind, id, key FROM event_key
      WHERE tenant = $1 AND (kind, id, key) > ($2, $3, $4) ORDER BY kind, id, key LIMIT $5)
    SELECT p.kind, p.id, p.key, e.revision FROM page AS p {_OWNER} ORDER BY p.kind, p.id, p.key"""  # noqa: S608 - see above
WALK_WORK = f"""
    WITH page AS MATERIALIZED (
      SELECT kind, id, lane, version, ordinal FROM work
      WHERE tenant = $1 AND (kind, id, lane, version, ordinal) > ($2, $3, $4, $5::bigint, $6::bigint)
      ORDER BY kind, id, lane, version, ordinal LIMIT $7)
    SELECT p.kind, p.id, p.lane, p.version, p.ordinal, e.revision
    FROM page AS p {_OWNER}
    ORDER BY p.kind, p.id, p.lane, p.version, p.ordinal"""  # noqa: S608 - made of constants
WALK_ENTITIES = """
    WITH page AS MATERIALIZED (
      SELECT kind, id, entered_ms FROM entity
      WHERE tenant = $1 AND (kind, id) > ($2, $3) ORDER BY kind, id LIMIT $4)
    SELECT p.kind, p.id, s.id IS NOT NULL
    FROM page AS p LEFT JOIN LATERAL (
      SELECT id FROM entity_state
      WHERE tenant = $1 AND kind = p.kind AND state = '' AND entered_ms = p.entered_ms AND id = p.id
      OFFSET 0) AS s ON true
    ORDER BY p.kind, p.id"""

Name = tuple[str, str, str]
"""Tenant, kind and id."""


class _Keyed(msgspec.Struct):
    """What of a record is read here: its key."""

    k: str


_keyed = msgspec.json.Decoder(_Keyed)


async def entity_differences(connection: Connection, tenant: str, entity: str) -> tuple[str, ...]:
    """How the rows beside an entity's journal differ from it and from the snapshot."""
    name = (tenant, *split_entity(entity))
    async with connection.transaction():
        await connection.execute(ONE_MOMENT)
        found = await connection.fetchrow(SELECT_BESIDE, *name)
        if found is None:
            return ()
        try:
            told = [*_columns(found), *await _lists(connection, name, found)]
        except msgspec.MsgspecError as error:
            told = [f"its row does not read: {error}"]
        return tuple(_first([*told, *[each async for each in _keys(connection, name)]]))


async def schema_differences(connection: Connection, tenant: str) -> tuple[str, ...]:
    """How what belongs to no single entity differs from the entities: rows too many, and counts."""
    async with connection.transaction():
        await connection.execute(ONE_MOMENT)
        counted: Counter[tuple[str, str, str]] = Counter()
        told = [each async for each in _unlisted(connection, tenant)]
        told += [each async for each in _stray_states(connection, tenant, counted)]
        told += [each async for each in _stray_tags(connection, tenant)]
        told += [each async for each in _ownerless(connection, tenant)]
        kept = {tuple(row[:3]): row[3] for row in await connection.fetch(SELECT_COUNTS, tenant)}
    for place in sorted(counted.keys() | kept.keys()):
        if counted[place] != kept.get(place, 0):
            kind, _, state = place
            told.append(f"`state_count` says {kept.get(place, 0)} of {kind} in {state}, and there are {counted[place]}")
    return tuple(_first(told))


def _first(told: list[str]) -> list[str]:
    more = len(told) - DIFFERENCES_MAX
    return told if more <= 0 else [*told[:DIFFERENCES_MAX], f"and {more} more"]


# One entity


def _columns(found: Any) -> Iterator[str]:
    """The columns of the entity's own row, against its snapshot."""
    revision, configuration, ended, active, _, body, _ = found
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


async def _lists(connection: Connection, name: Name, found: Any) -> list[str]:
    """The rows by which the entity is listed: those that must be there."""
    active, tags, entered_ms = decode_active(found[3]), decode_texts(found[4]), found[6]
    wanted = {ANY_STATE: entered_ms, **active}
    rows = await connection.fetch(SELECT_LISTED, *name, list(wanted), list(wanted.values()))
    unlisted = wanted.keys() - {row[0] for row in rows}
    told = [f"`entity_state` lacks its row {_named(each)}" for each in sorted(unlisted)]
    tagged = {row[0] for row in await connection.fetch(SELECT_TAGGED, *name, list(tags))}
    return [*told, *(f"`entity_tag` lacks its row of `{each}`" for each in tags if each not in tagged)]


def _named(state: str) -> str:
    return f"of `{state}`" if state != ANY_STATE else "as a whole"


async def _keys(connection: Connection, name: Name) -> AsyncIterator[str]:
    """The keys by which its events are known again."""
    after = 0
    while True:  # versions have no gaps: a page without rows is behind the last
        rows = await connection.fetch(SELECT_KEYS, *name, KEY_WINDOW_MS, after, PAGE)
        if not rows:
            return
        for version, line, is_young, kept in rows:
            try:
                key = _keyed.decode(line).k
            except msgspec.MsgspecError:
                continue  # a damaged record is told by whoever proves the chain
            if kept is None and is_young:
                yield f"the key of version {version} is forgotten, and it is not old"
            elif kept is not None and kept != key:
                yield f"the key of version {version} is kept as `{kept}`, and its entry says `{key}`"
        after += PAGE


# The whole schema


async def _walked(connection: Connection, statement: str, tenant: str, start: tuple[Any, ...]) -> AsyncIterator[Any]:
    """All rows of a table, along its key."""
    last = start
    while True:  # a page that is not full is the last
        rows = await connection.fetch(statement, tenant, *last, PAGE)
        for row in rows:
            yield row
        if len(rows) < PAGE:
            return
        last = tuple(rows[-1][: len(start)])


async def _unlisted(connection: Connection, tenant: str) -> AsyncIterator[str]:
    """Entities that a list of all passes over; whoever looks at those that are listed does not meet them."""
    async for kind, own, is_listed in _walked(connection, WALK_ENTITIES, tenant, ("", "")):
        if not is_listed:
            yield f"`entity_state` lacks the row of {kind}/{own} as a whole: it is in no list"


async def _stray_states(
    connection: Connection, tenant: str, counted: Counter[tuple[str, str, str]]
) -> AsyncIterator[str]:
    """Rows of states that their entities are not in, or not since then; all others are counted."""
    start = ("", "", -(2**63), "")
    async for kind, state, since, own, revision, active, entered_ms in _walked(connection, WALK_STATES, tenant, start):
        if revision is None:
            yield f"`entity_state` has rows of {kind}/{own}, which is not there"
            continue
        if state != ANY_STATE:
            counted[kind, revision, state] += 1
        if since != (entered_ms if state == ANY_STATE else _active(active).get(state)):
            yield f"`entity_state` has a row {_named(state)} of {kind}/{own} since {since}, and its own row has not"


async def _stray_tags(connection: Connection, tenant: str) -> AsyncIterator[str]:
    async for kind, tag, own, tags in _walked(connection, WALK_TAGS, tenant, ("", "", "")):
        if tags is None:
            yield f"`entity_tag` has rows of {kind}/{own}, which is not there"
        elif tag not in _tags(tags):
            yield f"`entity_tag` has a row of `{tag}` of {kind}/{own}, and its own row does not"


async def _ownerless(connection: Connection, tenant: str) -> AsyncIterator[str]:
    walks = (("event_key", WALK_KEYS, ("", "", "")), ("work", WALK_WORK, ("", "", "", -1, -1)))
    for table, statement, start in walks:
        async for row in _walked(connection, statement, tenant, start):
            if row[-1] is None:
                yield f"`{table}` has rows of {row[0]}/{row[1]}, which is not there"


def _active(body: bytes) -> dict[str, int]:
    """The states of a row; none when it does not read, which is told of its entity."""
    try:
        return decode_active(body)
    except msgspec.MsgspecError:
        return {}


def _tags(body: bytes) -> tuple[str, ...]:
    try:
        return decode_texts(body)
    except msgspec.MsgspecError:
        return ()
