"""Rows of lists, the same for every database: which of them a query takes, and the page they make.

Rule 1: a row is its place in the order (ms, id), then version, revision, configuration, created, entered, changed,
ended, active states with their times, tags; every statement that lists gives its columns so.
Rule 2: an entity that ended without a final state is in no state and has no tags: it is listed and counted under how
it ended, since then. Every store that keeps lists asks here where an entity stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from interlock.ports.store import ENDED_STATES, Append, EntityPage, EntityQuery, EntityRow
from interlock.stores.cursor import encode_cursor

Found = tuple[Any, ...]
"""A row as the rule says."""

FIRST_MS = -(2**63)
"""A time before every entry: where a list starts."""

decode_active = msgspec.json.Decoder(dict[str, int]).decode
decode_texts = msgspec.json.Decoder(tuple[str, ...]).decode


def listed_under(append: Append) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The states and tags under which an entity is listed and counted after a step."""
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
    return {state: before.get(state, at_ms) for state in states}, tags


def since_ms(active: Mapping[str, int], configuration: tuple[str, ...], default: int) -> int:
    """Since when an entity is in its configuration: the newest of its atomic states; or since when it has ended."""
    times = [active[each] for each in configuration if each in active]
    return max(times or active.values(), default=default)


def placed(found: Found, query: EntityQuery) -> Found:
    """The row with its place in the query's order: since when it is in that state; for a prefix, by its id alone."""
    if query.prefix:
        return (0, *found[1:])
    return found if query.state is None else (decode_active(found[9])[query.state], *found[1:])


def matches(found: Found, query: EntityQuery) -> bool:
    """Whether a row passes every filter, those its index has seen to included."""
    if query.prefix is not None and not found[1].startswith(query.prefix):
        return False
    if query.revision is not None and found[3] != query.revision:
        return False
    if query.tag is not None and query.tag not in decode_texts(found[10]):
        return False
    active = decode_active(found[9]) if query.state is not None else {}
    if query.state is not None and query.state not in active:
        return False
    entered_ms = found[0] if query.state is None else active[query.state]
    return query.entered_before_ms is None or entered_ms < query.entered_before_ms


def page(query: EntityQuery, found: list[Found], *, last: tuple[int, str] | None) -> EntityPage:
    """These rows, with the cursor behind `last` when there may be more."""
    rows = tuple(
        EntityRow(f"{query.kind}/{each[1]}", each[2], each[3], decode_texts(each[4]), *each[5:9]) for each in found
    )
    return EntityPage(rows, None if last is None else encode_cursor(last[0], f"{query.kind}/{last[1]}"))
