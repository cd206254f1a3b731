"""How entities are listed, in every store: where an entity is listed, which rows a query takes, and the page they make.

Rule 1: a row of a SQL store is its position in the order (ms, id), then version, revision, configuration, created,
entered, changed, ended, active states with their entry times, tags; every statement that lists gives its columns so.
Rule 2: an entity that ended without a final state is in no state and has no tags: it is listed and counted under how
it ended, since then. Every store that keeps lists asks here where an entity is listed.
Rule 3: a list is in the order of the time when the entity entered the state of the query, or its configuration; a list
by prefix, or `by_id`, is in the order of ids.
Rule 4: for readers who may not see hidden states, an entity is listed under further names (`Append.others`), each with
its own time. A step that changes nothing for them leaves these rows as they are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import msgspec

from interlock.ports.reading.visible_names import is_for_others, state_for_others
from interlock.ports.store import ENDED_STATES, PAGE_MAX, Append, EntityPage, EntityQuery, EntityRow
from interlock.stores.cursor import decode_cursor, encode_cursor

Found = tuple[Any, ...]
"""A row as rule 1 says."""

FIRST_MS = -(2**63)
"""A time before every entry: where a list starts."""

decode_active = msgspec.json.Decoder(dict[str, int]).decode
decode_texts = msgspec.json.Decoder(tuple[str, ...]).decode


def listed_under(append: Append) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the states and tags under which an entity is listed and counted after a step."""
    ended = append.snapshot.ended
    if ended not in ENDED_STATES:
        return append.states, append.tags
    return (ENDED_STATES[ended],), ()


def active_states(append: Append, before: Mapping[str, int]) -> tuple[dict[str, int], tuple[str, ...]]:
    """Return the states that an entity is listed under after a step, each with its entry time, and its tags.

    A state that was active before keeps its entry time.
    """
    at_ms = append.entry.event.at_ms
    states, tags = listed_under(append)
    active = {state: before.get(state, at_ms) for state in states}
    return active | visible_times(append, before) if append.others else active, tags


def visible_times(append: Append, before: Mapping[str, int]) -> dict[str, int]:
    """Return the names under which others find an entity after a step, each with its time.

    A state has the time when others saw the entity enter it. All other names have the time when the states that they
    see last changed.
    """
    at_ms, others = append.entry.event.at_ms, append.others
    known = sum(map(is_for_others, before))
    if known == len(others) and all(name in before for name in others):
        return {name: before[name] for name in others}
    return {name: at_ms if state_for_others(name) is None else before.get(name, at_ms) for name in others}


def since_ms(active: Mapping[str, int], configuration: tuple[str, ...], default: int) -> int:
    """Return when an entity entered its configuration: the newest of its atomic states; or when it ended."""
    times = [active[each] for each in configuration if each in active]
    return max(times or active.values(), default=default)


def list_position(
    query: EntityQuery,
    own: str,
    *,
    revision: str,
    entered_ms: int,
    active: Mapping[str, int],
    tags: tuple[str, ...],
) -> int | None:
    """Return the time by which an entity is listed in the answer to a query; None when a filter excludes it.

    `own` is the id without the kind. `active` and `tags` may be empty when the query does not ask for them.
    """
    if query.prefix is not None and not own.startswith(query.prefix):
        return None
    if query.revision is not None and revision != query.revision:
        return None
    if query.tag is not None and query.tag not in tags:
        return None
    if query.state is not None:
        if query.state not in active:
            return None
        entered_ms = active[query.state]
    if query.entered_before_ms is not None and entered_ms >= query.entered_before_ms:
        return None
    return 0 if query.is_in_id_order else entered_ms


def page_of(query: EntityQuery, positions: list[tuple[int, str]]) -> tuple[list[str], str | None]:
    """Return the entities of one page, from sorted positions of all that match, and the cursor of the next page."""
    start = 0 if query.after is None else bisect_right(positions, decode_cursor(query.after))
    end = start + min(query.limit, PAGE_MAX)
    rows = positions[start:end]
    return [entity for _, entity in rows], encode_cursor(*rows[-1]) if len(positions) > end else None


# Rows of SQL stores


def row_position(row: Found, query: EntityQuery) -> int | None:
    """Return the time by which a row is listed; None when a filter excludes it, or while retention removes it."""
    if row[2] < 0:
        return None
    return list_position(
        query,
        row[1],
        revision=row[3],
        entered_ms=row[0],
        active={} if query.state is None else decode_active(row[9]),
        tags=() if query.tag is None else decode_texts(row[10]),
    )


def page(query: EntityQuery, rows: list[Found], *, last: tuple[int, str] | None) -> EntityPage:
    """Return these rows as a page, with the cursor after `last` when there may be more."""
    found = tuple(
        EntityRow(f"{query.kind}/{each[1]}", each[2], each[3], decode_texts(each[4]), *each[5:9]) for each in rows
    )
    return EntityPage(found, None if last is None else encode_cursor(last[0], f"{query.kind}/{last[1]}"))
