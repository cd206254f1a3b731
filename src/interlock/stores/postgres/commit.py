"""A step made ready for its statement: the record chained to the one before, and what changes in lists and counts.

Rule 1: nothing here waits. What a step must know of its entity comes as a `JournalTip`; a tip that is behind costs one
conflict, never a wrong record, because the statement compares version and head.
Rule 2: a step that leaves no state and enters none says so, and is written by the shorter statement; so does one that
leaves nothing to do.
Rule 3: when work is due goes with it as the time from its entry on: the server counts that by its own clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from interlock.errors import CorruptionError
from interlock.model.codec import encode
from interlock.model.journal.record import JournalRecord, chain_start, encode_record
from interlock.model.journal.work import WorkDelta
from interlock.ports.store import Append
from interlock.stores.listing import decode_active, decode_texts, since_ms, standing

NO_FENCE = (None, None, None, None)
"""In place of lane, version, ordinal and attempt: the step is kept whoever holds what."""

ANY_STATE = ""
"""The state under which an entity as a whole is listed: since when it is in its configuration."""


class JournalTip(NamedTuple):
    """What a step must know of its entity: where its journal ends, and which lists it stands in."""

    version: int
    revision: str
    active: bytes
    tags: bytes
    head: str
    journal_bytes: int
    entered_ms: int | None


class Changes(NamedTuple):
    """What a step changes in lists and counts."""

    left: list[tuple[str, int]]
    entered: list[tuple[str, int]]
    tags_left: list[str]
    tags_entered: list[str]
    counts: list[tuple[str, str, int]]


NO_CHANGES = Changes([], [], [], [], [])
NOTHING = WorkDelta()
BODY = 5
"""Where the body stands in a row of work that is born."""


class WorkRows(NamedTuple):
    """What a step leaves to do, what it ends or calls off, and the attempt without which it is not kept."""

    born: list[tuple[Any, ...]]
    gone: list[tuple[Any, ...]]
    fence: tuple[Any, ...]


class CommitPlan(NamedTuple):
    """A step ready to be written: its row, its record, the tip it leads to, and its changes and work if it has any."""

    row: tuple[Any, ...]
    record: JournalRecord
    tip: JournalTip
    changes: Changes | None
    work: WorkRows | None
    size: int

    @property
    def is_fenced(self) -> bool:
        """Whether it is kept only while some attempt is the newest."""
        return self.work is not None and self.work.fence != NO_FENCE


def split(entity: str) -> tuple[str, str]:
    """The kind and the id of `kind/id`."""
    kind, _, rest = entity.partition("/")
    return kind, rest


def tip_of_new_entity(entity: str, tenant: str) -> JournalTip:
    """The tip of an entity that is not there yet."""
    return JournalTip(0, "", b"{}", b"[]", chain_start(entity, tenant=tenant), 0, None)


def plan_commit(append: Append, snapshot: bytes, tip: JournalTip) -> CommitPlan:
    """The step of an append on this tip. Raises CorruptionError when the tip does not read."""
    try:
        before, tags_before = decode_active(tip.active), decode_texts(tip.tags)
    except msgspec.MsgspecError as error:
        raise CorruptionError(f"the row of `{append.entity}` does not read: {error}", code="entity.row") from error
    entry, after = append.entry, append.snapshot
    at_ms = entry.event.at_ms
    record = encode_record(entry, durable=tip.journal_bytes, previous=tip.head)
    states, tags = standing(append)
    active = {state: before.get(state, at_ms) for state in states}
    entered_ms = since_ms(active, after.configuration, at_ms)
    stays = bool(active) and before.keys() == active.keys() and tags_before == tags
    changes = None
    if not stays or tip.revision != after.revision:
        moved_tags = [tag for tag in tags_before if tag not in tags], [tag for tag in tags if tag not in tags_before]
        changes = _changes(tip, before, active, after.revision, entered_ms, moved_tags)
    body = tip.active if before == active else encode(active)
    size = tip.journal_bytes + len(record.line)
    led = JournalTip(entry.version, after.revision, body, encode(tags), record.head, size, entered_ms)
    row = (
        *split(append.entity),
        append.expected,
        tip.head,
        entry.key,
        record.line,
        record.head,
        after.revision,
        encode(after.configuration),
        after.ended,
        led.active,
        led.tags,
        snapshot,
        led.journal_bytes,
        entered_ms,
        entry.event.time_ms,
    )
    work = _kept(append, at_ms)
    bodies = 0 if work is None else sum(len(each[BODY]) for each in work.born)
    return CommitPlan(row, record, led, changes, work, len(snapshot) + len(record.line) + bodies)


def _changes(
    tip: JournalTip,
    before: dict[str, int],
    active: dict[str, int],
    revision: str,
    entered_ms: int,
    tags: tuple[list[str], list[str]],
) -> Changes:
    left = [(state, since) for state, since in before.items() if state not in active]
    entered = [(state, since) for state, since in active.items() if state not in before]
    same = tip.revision == revision
    counts = [(tip.revision, state, -1) for state in ([each for each, _ in left] if same else before)]
    counts += [(revision, state, 1) for state in ([each for each, _ in entered] if same else active)]
    if tip.entered_ms != entered_ms:
        entered.append((ANY_STATE, entered_ms))
        if tip.entered_ms is not None:
            left.append((ANY_STATE, tip.entered_ms))
    return Changes(left, entered, *tags, counts)


def _kept(append: Append, at_ms: int) -> WorkRows | None:
    """The work of a step. What is both ended and called off is ended."""
    left = append.left
    if left == NOTHING and append.fence is None:
        return None
    ended = set(left.ended)
    born = [
        (
            each.place.lane,
            each.place.version,
            each.place.ordinal,
            line_of(each.place.lane, each.name),
            each.name,
            encode(each.body),
            each.due_ms,
            None if each.due_ms is None else each.due_ms - at_ms,
        )
        for each in left.born
    ]
    gone = [(each.lane, each.version, each.ordinal, each not in ended) for each in sorted(ended.union(left.cancelled))]
    fence: tuple[Any, ...] = NO_FENCE
    if append.fence is not None:
        place, attempt = append.fence
        fence = (place.lane, place.version, place.ordinal, attempt)
    return WorkRows(born, gone, fence)


def line_of(lane: str, name: str) -> str:
    """Who waits together: the work of one handler, and all of each other lane."""
    return name if lane == "effect" else ""


# The values of the statements


def values_alone(tenant: str, ready: CommitPlan) -> tuple[Any, ...]:
    """The values of `COMMIT_STEP`, or of its variants when the step changes lists or has work."""
    changes = ready.changes
    if changes is None and ready.work is None:
        return (tenant, *ready.row)
    changes = changes or NO_CHANGES
    return (
        tenant,
        *ready.row,
        *_columns(changes.left, 2),
        *_columns(changes.entered, 2),
        changes.tags_left,
        changes.tags_entered,
        *_columns(changes.counts, 3),
        *(() if ready.work is None else _worked([ready])),
    )


def values_together(tenant: str, batch: Sequence[CommitPlan], *, listed: bool) -> tuple[Any, ...]:
    """The values of `COMMIT_STEPS`, or with what changes in the lists, of the statements that keep that too."""
    rows = _columns([each.row for each in batch], len(batch[0].row))
    if not listed:
        return (tenant, *rows)
    numbered = [(n, each.changes) for n, each in enumerate(batch, start=1) if each.changes is not None]
    return (
        tenant,
        *rows,
        *_columns([(n, *each) for n, changes in numbered for each in changes.left], 3),
        *_columns([(n, *each) for n, changes in numbered for each in changes.entered], 3),
        *_columns([(n, each) for n, changes in numbered for each in changes.tags_left], 2),
        *_columns([(n, each) for n, changes in numbered for each in changes.tags_entered], 2),
        *_columns([(n, *each) for n, changes in numbered for each in changes.counts], 4),
    )


def values_worked(tenant: str, batch: Sequence[CommitPlan], *, fenced: bool) -> tuple[Any, ...]:
    """The values of the statements that keep lists and work; with those of fences, `COMMIT_STEPS_WITH_WORK`."""
    fences = [NO_FENCE if each.work is None else each.work.fence for each in batch]
    values = (*values_together(tenant, batch, listed=True), *_worked(batch))
    return (*values, *_columns(fences, len(NO_FENCE))) if fenced else values


def _worked(batch: Sequence[CommitPlan]) -> tuple[list[Any], ...]:
    numbered = [(n, each.work) for n, each in enumerate(batch, start=1) if each.work is not None]
    return (
        *_columns([(n, *each) for n, work in numbered for each in work.born], 9),
        *_columns([(n, *each) for n, work in numbered for each in work.gone], 5),
    )


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> tuple[list[Any], ...]:
    return tuple(map(list, zip(*rows, strict=True))) if rows else tuple([] for _ in range(width))
