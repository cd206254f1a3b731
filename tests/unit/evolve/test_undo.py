# two charts are easier to compare on one line each
"""A move that is taken back: the entity as it was, with its old deadlines, or the reason why it stays."""

from __future__ import annotations

from msgspec.structs import replace

from interlock.evolve.carry import CarryResult
from interlock.evolve.patch import apply_patch
from interlock.evolve.undo import UndoCarrier
from interlock.model.encoding.codec import encode
from interlock.model.event import Event
from interlock.model.journal.entry import MOVED, Entry
from interlock.model.snapshot import Snapshot
from tests.unit.evolve.pair_files import Pair
from tests.unit.evolve.test_carry import MOVE_MS, START_MS, carrier, kernel_of, living

OLD = "context: {n: {default: 1}}\nstates: {a: {after: {2m: z, 3m: z}, on: {e: z}}, z: {}}\n"
NEW = "context: {m: {default: 2}}\nstates: {a: {after: {2m: z, 5m: z}, on: {e: z}}, z: {}}\n"


def moved(old: str, new: str) -> tuple[Snapshot, Snapshot, Entry]:
    """An entity before and after a move, and the entry of the move."""
    before = living(old)
    result = carrier(Pair("", old, new, ())).carry(before, time_ms=MOVE_MS)
    assert result.step is not None
    after = result.step.snapshot
    event = Event(MOVED, result.patch, time_ms=MOVE_MS, type="platform")
    entry = Entry(
        after.version, event, "applied", ("a",), ("a",), after.revision, "k", "migrate", None, result.step.effects
    )
    return before, after, entry


def undone(before: Snapshot, now: Snapshot, entry: Entry) -> CarryResult:
    """The result of taking a move back."""
    by = UndoCarrier(before, entry, kernel_of(OLD))
    assert (frozenset({entry.revision}), before.revision, ()) == (
        by.old_names,
        by.written,
        by.states_with_new_timers(now),
    )
    return by.carry(now, time_ms=MOVE_MS + 1)


def test_an_entity_returns_with_its_old_deadlines() -> None:
    before, after, entry = moved(OLD, NEW)
    result = undone(before, after, entry)

    assert result.step is not None
    assert result.patch is not None
    back = result.step.snapshot
    assert encode(apply_patch(after, result.patch)) == encode(back)
    assert (before.context, before.configuration, before.revision) == (back.context, back.configuration, back.revision)
    kept, restored = back.timers
    assert before.timers[0] == kept
    assert ("after.3m.a", START_MS + 180_000, back.version) == (restored.name, restored.due_ms, restored.version)
    assert ["timer_cancel", "timer"] == [each.type for each in result.step.effects]
    assert restored.ordinal == result.step.effects[1].ordinal


def test_an_entity_that_stepped_since_stays() -> None:
    before, after, entry = moved(OLD, NEW)
    later = kernel_of(NEW).step(after, Event("e", time_ms=MOVE_MS)).snapshot

    assert ("it has stepped since it was moved",) == undone(before, later, entry).reasons


def test_a_move_that_did_something_outside_is_not_taken_back() -> None:
    before, after, entry = moved(OLD, NEW.replace("on: {e: z}}", "always: y}, y: {entry: [hello]}"))
    assert any(each.type == "call" for each in entry.effects)

    assert ("the move did something outside: call",) == undone(before, after, entry).reasons
    assert undone(before, after, replace(entry, effects=entry.effects[:0])).step is not None
