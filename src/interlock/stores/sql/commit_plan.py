"""What one append changes in every table of a SQL store. Pure: the caller reads the tip and writes the plan.

Rule 1: a plan is computed from the end of the entity's journal, a `JournalTip`. A tip that is out of date costs one
conflict and never writes a wrong record: the write is conditional on the version (and on PostgreSQL on the head).
Rule 2: list and count changes are net differences: a state that the entity stays in is neither left nor entered.
Rule 3: the entry and the snapshot are not encoded here: the append has the bytes that the driver measured.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from interlock.errors import CorruptionError
from interlock.model.codec import encode
from interlock.model.journal.record import JournalRecord, chain_start, encode_record
from interlock.ports.store import Append
from interlock.stores.listing import active_states, decode_active, decode_texts, since_ms

NEW_ACTIVE, NEW_TAGS = b"{}", b"[]"


class JournalTip(NamedTuple):
    """Where the journal of an entity ends, and where the entity is listed. Version 0: there is no such entity yet."""

    version: int
    revision: str
    active: bytes
    tags: bytes
    head: str
    journal_bytes: int
    entered_ms: int | None


class ListChanges(NamedTuple):
    """Changes to lists and counts: states with their entry times, tags, and (revision, state, +1 or -1)."""

    states_left: list[tuple[str, int]]
    states_entered: list[tuple[str, int]]
    tags_left: list[str]
    tags_entered: list[str]
    counts: list[tuple[str, str, int]]


class CommitPlan(NamedTuple):
    """What to write for one append. `changes` is None when the entity stays in every list that it is in."""

    append: Append
    record: JournalRecord
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
    except msgspec.MsgspecError as error:
        raise CorruptionError(f"cannot decode the row of `{append.entity}`: {error}", code="entity.row") from error
    entry, after = append.entry, append.snapshot
    at_ms = entry.event.at_ms
    record = encode_record(entry, durable=tip.journal_bytes, previous=tip.head, entry_json=append.entry_json)
    active, tags = active_states(append, before)
    entered_ms = since_ms(active, after.configuration, at_ms)
    new_tip = JournalTip(
        entry.version,
        after.revision,
        tip.active if before == active else encode(active),
        tip.tags if tags_before == tags else encode(tags),
        record.head,
        tip.journal_bytes + len(record.line),
        entered_ms,
    )
    changes = None
    if (
        before.keys() != active.keys()
        or tags_before != tags
        or tip.revision != after.revision
        or tip.entered_ms != entered_ms
    ):
        changes = ListChanges(
            [each for each in before.items() if each[0] not in active],
            [each for each in active.items() if each[0] not in before],
            [tag for tag in tags_before if tag not in tags] if tags_before else [],
            [tag for tag in tags if tag not in tags_before] if tags else [],
            _count_changes(tip.revision, before, after.revision, active),
        )
    return CommitPlan(append, record, encode(after.configuration), tip, new_tip, changes)


def _count_changes(
    revision_before: str, before: dict[str, int], revision: str, active: dict[str, int]
) -> list[tuple[str, str, int]]:
    """Return the counters that change: those of states left and entered, or all when the revision is another."""
    is_same = revision_before == revision
    changes = [(revision_before, state, -1) for state in before if not (is_same and state in active)]
    changes += [(revision, state, 1) for state in active if not (is_same and state in before)]
    return changes
