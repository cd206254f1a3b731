"""What one append changes in every table of a SQL store. Pure: the caller reads the tip and writes the plan.

Rule 1: a plan is computed from the end of the entity's journal, a `JournalTip`. A tip that is out of date costs one
conflict and never writes a wrong record: the write is conditional on the version (and on PostgreSQL on the head).
Rule 2: list and count changes are net differences: a state that the entity stays in is neither left nor entered.
Rule 3: the entry and the snapshot are not encoded here: the append has the bytes that the driver measured.
"""

from __future__ import annotations

from msgspec import Struct

from interlock.errors import CorruptionError
from interlock.model.encoding.codec import UNDECODABLE, encode
from interlock.model.journal.record import chain_start, encode_line
from interlock.ports.store import Append
from interlock.stores.listing import decode_active, decode_texts, listed_under, since_ms, visible_times

NEW_ACTIVE, NEW_TAGS = b"{}", b"[]"


class JournalTip(Struct, frozen=True, gc=False):
    """Where the journal of an entity ends, and where the entity is listed. Version 0: the entity does not exist yet."""

    version: int
    revision: str
    active: bytes
    tags: bytes
    head: str
    journal_bytes: int
    entered_ms: int | None


class ListChanges(Struct, frozen=True, gc=False):
    """Changes to lists and counts: states with their entry times, tags, and (revision, state, +1 or -1)."""

    states_left: list[tuple[str, int]]
    states_entered: list[tuple[str, int]]
    tags_left: list[str]
    tags_entered: list[str]
    counts: list[tuple[str, str, int]]


class CommitPlan(Struct, frozen=True, gc=False):
    """What to write for one append: the record, the encoded configuration, where the journal ends before and after.

    `changes` is None when the entity stays in every list that it is in.
    """

    append: Append
    line: bytes
    configuration: bytes
    before: JournalTip
    tip: JournalTip
    changes: ListChanges | None


def split_entity(entity: str) -> tuple[str, str]:
    """Return the kind and the id of `kind/id`."""
    kind, _, own = entity.partition("/")
    return kind, own


def tip_of_new_entity(entity: str, tenant: str) -> JournalTip:
    """Return the tip of an entity that does not exist yet."""
    return JournalTip(0, "", NEW_ACTIVE, NEW_TAGS, chain_start(entity, tenant=tenant), 0, None)


def plan_commit(append: Append, tip: JournalTip) -> CommitPlan:
    """Return what this append writes on this tip.

    Raises CorruptionError (`entity.row`) when the tip cannot be decoded.
    """
    try:
        before, tags_before = decode_active(tip.active), decode_texts(tip.tags)
    except UNDECODABLE as error:
        raise CorruptionError(f"cannot decode the row of `{append.entity}`: {error}", code="entity.row") from error
    entry, after = append.entry, append.snapshot
    version, revision, configuration = entry.version, after.revision, after.configuration
    at_ms = entry.event.at_ms
    head, line = encode_line(version, entry.key, append.entry_json, durable=tip.journal_bytes, previous=tip.head)
    states, tags = (append.states, append.tags) if after.ended is None else listed_under(append)
    active = {state: before.get(state, at_ms) for state in states}
    if append.others:
        active |= visible_times(append, before)
    entered_ms = active.get(configuration[0]) if len(configuration) == 1 else None
    if entered_ms is None:  # regions, or an entity that ended without a final state
        entered_ms = since_ms(active, configuration, at_ms)
    new_tip = JournalTip(
        version,
        revision,
        tip.active if before == active else encode(active),
        tip.tags if tags_before == tags else encode(tags),
        head,
        tip.journal_bytes + len(line),
        entered_ms,
    )
    changes = None
    if tip.revision != revision or tags_before != tags:
        changes = ListChanges(
            [each for each in before.items() if active.get(each[0]) != each[1]],
            [each for each in active.items() if before.get(each[0]) != each[1]],
            [tag for tag in tags_before if tag not in tags],
            [tag for tag in tags if tag not in tags_before],
            _count_changes(tip.revision, before, revision, active),
        )
    elif tip.entered_ms != entered_ms or before != active:
        changes = ListChanges([], [], [], [], [])
        for each in before.items():
            if active.get(each[0]) != each[1]:
                changes.states_left.append(each)
                if each[0] not in active:
                    changes.counts.append((revision, each[0], -1))
        for each in active.items():
            if before.get(each[0]) != each[1]:
                changes.states_entered.append(each)
                if each[0] not in before:
                    changes.counts.append((revision, each[0], 1))
    return CommitPlan(append, line, encode(configuration), tip, new_tip, changes)


def _count_changes(
    revision_before: str, before: dict[str, int], revision: str, active: dict[str, int]
) -> list[tuple[str, str, int]]:
    """Return the counters that change: those of states left and entered, or all when the revision is another."""
    is_same = revision_before == revision
    changes = [(revision_before, state, -1) for state in before if not (is_same and state in active)]
    changes += [(revision, state, 1) for state in active if not (is_same and state in before)]
    return changes
