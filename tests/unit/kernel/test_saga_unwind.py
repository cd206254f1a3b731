"""S10: a saga that the end of its entity cuts short turns back: at whatever point, nothing that was done stays done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

import interlock
from interlock.model.effect import Effect
from interlock.model.snapshot import Snapshot
from interlock.model.step import Step

TRIP = """
interlock: 1
kind: trip
context: {room: {type: string, nullable: true}, flight: {type: string, nullable: true}}
initial: booking
states:
  booking:
    expect: {within: 1h}
    saga:
      compensation: COMPENSATION
      steps:
        - {id: room, do: {src: book.room, output: room}, timeout: 1m, retry: {max: 2},
           compensate: {src: free.room, input: {room: "= context.room"}}}
        - {id: flight, do: {src: book.flight, output: flight}, timeout: 1m,
           compensate: {src: free.flight, input: {flight: "= context.flight"}}}
        - {id: taxi, do: {src: book.taxi}, timeout: 1m, compensate: {src: free.taxi}}
      onDone: booked
      onCompensated: refused
      onError: refused
  booked: {expect: {within: forever}}
  refused: {expect: {within: forever}}
"""

CANCEL = interlock.Event("_cancel", type="platform")
BOTH = pytest.mark.parametrize("compensation", ["reverse", "parallel"])


def _trip(compensation: str = "reverse") -> interlock.BoundChart:
    return interlock.loads(TRIP.replace("COMPENSATION", compensation))


def _asked(step: Step) -> list[Effect]:
    return [each for each in step.effects if each.type in ("invoke", "call")]


def _names(step: Step) -> list[str | None]:
    return [each.name for each in _asked(step)]


def _after_two(trip: interlock.BoundChart) -> Step:
    """The room and the flight are booked, the taxi is asked for."""
    step = trip.start(entity="trip/1")
    for result in ("r-1", "f-1"):
        step = trip.step(step.snapshot, interlock.done_event(_asked(step)[0], result))
    return step


def test_a_cancelled_saga_compensates_its_steps_after_the_end_the_last_first() -> None:
    trip = _trip()
    ended = trip.step(_after_two(trip).snapshot, CANCEL)
    flight = trip.step(ended.snapshot, interlock.done_event(_asked(ended)[0], None))
    room = trip.step(flight.snapshot, interlock.done_event(_asked(flight)[0], None))

    assert ("applied", "cancelled", "cancelled") == (ended.outcome, ended.reason, ended.snapshot.ended)
    assert ["free.flight"] == _names(ended)
    assert {"compensates": "trip/1/2/booking.flight", "flight": "f-1"} == _asked(ended)[0].input
    assert ["free.room"] == _names(flight)
    assert {"compensates": "trip/1/1/booking.room", "room": "r-1"} == _asked(flight)[0].input
    assert ("applied", "compensated", []) == (room.outcome, room.reason, _names(room))
    assert ((), "cancelled") == (room.snapshot.invokes, room.snapshot.ended)
    assert {"room": None, "flight": None} == {name: room.snapshot.context[name] for name in ("room", "flight")}
    assert {"room": None, "flight": None, "taxi": None} == room.snapshot.context["saga_booking"]["done"]


def test_parallel_compensations_all_start_at_the_end() -> None:
    """As the saga says; their answers come in any order."""
    trip = _trip("parallel")
    ended = trip.step(_after_two(trip).snapshot, CANCEL)
    room = trip.step(ended.snapshot, interlock.done_event(_asked(ended)[1], None))
    flight = trip.step(room.snapshot, interlock.done_event(_asked(ended)[0], None))

    assert ["free.flight", "free.room"] == _names(ended)
    assert ([], []) == (_names(room), _names(flight))
    assert () == flight.snapshot.invokes


def test_the_policy_of_a_step_holds_for_its_compensation_after_the_end() -> None:
    """Retries and timeout are those of the saga."""
    trip = _trip()
    step = trip.start(entity="trip/1")
    step = trip.step(step.snapshot, interlock.done_event(_asked(step)[0], "r-1"))
    ended = trip.step(step.snapshot, CANCEL)

    assert (2, 60_000) == (_asked(ended)[0].payload["retry"]["max"], _asked(ended)[0].payload["timeout_ms"])


def test_a_running_compensation_continues_after_the_end() -> None:
    trip = _trip()
    step = _after_two(trip)
    back = trip.step(step.snapshot, interlock.failed_event(_asked(step)[0], "full", done="no"))
    ended = trip.step(back.snapshot, CANCEL)
    flight = trip.step(ended.snapshot, interlock.done_event(_asked(back)[0], None))

    assert ["free.flight"] == _names(back)
    assert () == ended.effects
    assert back.snapshot.invokes == ended.snapshot.invokes
    assert ["free.room"] == _names(flight)


def test_a_compensation_that_fails_after_the_end_is_rejected_and_can_succeed_later() -> None:
    trip = _trip()
    ended = trip.step(_after_two(trip).snapshot, CANCEL)
    asked = _asked(ended)[0]
    failed = trip.step(ended.snapshot, interlock.failed_event(asked, "gone", done="unknown"))
    done = trip.step(failed.snapshot, interlock.done_event(asked, None))

    assert ("rejected", "compensation_failed", ended.snapshot) == (failed.outcome, failed.reason, failed.snapshot)
    assert ["free.room"] == _names(done)


def test_a_duplicate_result_removes_one_step() -> None:
    trip = _trip()
    ended = trip.step(_after_two(trip).snapshot, CANCEL)
    answer = interlock.done_event(_asked(ended)[0], None)
    once = trip.step(ended.snapshot, answer)
    twice = trip.step(once.snapshot, answer)

    assert ("ignored", "ended", once.snapshot) == (twice.outcome, twice.reason, twice.snapshot)


def test_the_result_of_another_compensation_of_the_same_name_changes_nothing() -> None:
    """The saga may have been entered and left before: its key identifies the invoke."""
    trip = _trip()
    ended = trip.step(_after_two(trip).snapshot, CANCEL)
    other = replace(interlock.done_event(_asked(ended)[0], None), source="invoke/trip/1/2/7")
    stray = trip.step(ended.snapshot, other)

    assert ("ignored", "ended", ended.snapshot) == (stray.outcome, stray.reason, stray.snapshot)


@pytest.mark.parametrize("errors", ["", "errors: raise\n"], ids=["events", "raise"])
def test_a_compensation_with_a_failing_input_is_a_fault_and_the_next_one_starts(errors: str) -> None:
    """It stays listed, as a fact; the end is not held up by it, whatever errors mean to the chart."""
    text = TRIP.replace("COMPENSATION", "reverse").replace('"= context.flight"', '"= 1 // 0"')
    trip = interlock.loads(text.replace("kind: trip\n", f"kind: trip\n{errors}"))
    ended = trip.step(_after_two(trip).snapshot, CANCEL)

    assert ("cancelled", ["free.room"]) == (ended.snapshot.ended, _names(ended))
    assert ["booking.flight_compensation.invoke"] == [each.place for each in ended.faults]
    assert ended.snapshot.context["saga_booking"]["done"]["flight"] is not None


def test_a_completed_saga_is_not_compensated() -> None:
    """Its state may be active still, when its `onDone` has a guard; what it did is what was wanted."""
    text = TRIP.replace("COMPENSATION", "reverse")
    trip = interlock.loads(
        text.replace("onDone: booked", """onDone: {target: booked, guard: "= context.room == 'none'"}""")
    )
    step = _after_two(trip)
    done = trip.step(step.snapshot, interlock.done_event(_asked(step)[0], None))
    ended = trip.step(done.snapshot, CANCEL)

    assert ("booking.completed",) == done.snapshot.configuration
    assert ("cancelled", ()) == (ended.snapshot.ended, ended.effects)


def test_without_compensation_an_end_leaves_things_as_they_are() -> None:
    """`compensation: none` says so."""
    trip = interlock.loads(TRIP.replace("COMPENSATION", "none").replace("onCompensated: refused", ""))
    ended = trip.step(_after_two(trip).snapshot, CANCEL)

    assert [] == _names(ended)


def test_the_result_of_an_unknown_compensation_is_corruption_and_loses_nothing() -> None:
    trip = _trip()
    ended = trip.step(_after_two(trip).snapshot, CANCEL)
    renamed = interlock.loads(TRIP.replace("COMPENSATION", "reverse").replace("id: flight", "id: plane"))
    with pytest.raises(interlock.CorruptionError, match="flight_compensation") as caught:
        renamed.step(ended.snapshot, interlock.done_event(_asked(ended)[0], None))

    assert "snapshot.invokes" == caught.value.code


@pytest.mark.parametrize("end", [interlock.Event("went"), CANCEL], ids=["done", "cancelled"])
def test_an_invoke_that_another_revision_began_is_not_waited_for_behind_the_end(end: interlock.Event) -> None:
    """A compatible chart may have no such invoke any more: its answer has no effect, as any after the end."""
    text = """
interlock: 1
kind: trip
initial: planned
states:
  planned: {invoke: {id: search, src: search, onDone: over}, on: {went: over}}
  over: {type: final}
"""
    older = interlock.loads(text)
    newer = interlock.loads(text.replace("invoke: {id: search, src: search, onDone: over}", "expect: {within: 1h}"))
    began = older.start(entity="trip/1")
    ended = newer.step(began.snapshot, end)
    answered = newer.step(ended.snapshot, interlock.done_event(_asked(began)[0], None))

    assert (True, ()) == (ended.snapshot.ended is not None, ended.snapshot.invokes)
    assert ("ignored", "ended") == (answered.outcome, answered.reason)


class World(Struct, frozen=True):
    """A trip, the work in progress, and the steps done outside."""

    snapshot: Snapshot
    busy: tuple[Effect, ...]
    stands: frozenset[str] = frozenset()
    cancelled: bool = False


def _key(effect: Effect) -> str:
    """Return the key of a step, or of the step that a compensation reverses."""
    given: Any = effect.input
    return str(given["compensates"] if str(effect.name).startswith("free.") else effect.payload["key"])


def _moved(world: World, step: Step, effect: Effect | None, **changes: Any) -> World:
    called_off = {each.payload["key"] for each in step.effects if each.type == "invoke_cancel"}
    assert called_off <= {each.key for each in world.busy if str(each.name).startswith("book.")}
    busy = tuple(each for each in (*world.busy, *_asked(step)) if each is not effect)
    return replace(world, snapshot=step.snapshot, busy=busy, **changes)


def _moves(trip: interlock.BoundChart, world: World) -> Iterator[World]:
    if not world.cancelled and world.snapshot.configuration != ("booked",):
        yield _moved(world, trip.step(world.snapshot, CANCEL), None, cancelled=True)
    for effect in world.busy:
        key = _key(effect)
        if effect.type == "call":  # its result is not sent back
            done = Step(world.snapshot, (), "applied")
        else:
            done = trip.step(world.snapshot, interlock.done_event(effect, f"of {effect.key}"))
        if str(effect.name).startswith("free."):
            yield _moved(world, done, effect, stands=world.stands - {key})
            continue
        yield _moved(world, done, effect, stands=world.stands | {key})
        unknown = trip.step(world.snapshot, interlock.failed_event(effect, "x", done="unknown"))
        yield _moved(world, unknown, effect, stands=world.stands | {key})
        yield _moved(world, trip.step(world.snapshot, interlock.failed_event(effect, "x", done="no")), effect)


@BOTH
def test_after_a_cancel_at_any_point_and_in_any_order_nothing_stays_done(compensation: str) -> None:
    """Every interleaving of the cancel with every answer: done, perhaps done, not done; early and late."""
    trip = _trip(compensation)
    first = trip.start(entity="trip/1")
    level, ends, seen = [World(first.snapshot, tuple(_asked(first)))], 0, 0
    while level:  # each move takes an effect away or cancels: it ends
        following: dict[bytes, World] = {}
        for world in level:
            seen += 1
            moves = list(_moves(trip, world))
            if world.cancelled and not world.busy:
                ends += 1
                assert frozenset() == world.stands, world.snapshot.context
                assert () == world.snapshot.invokes
            for each in moves:
                name = (each.snapshot, [one.key for one in each.busy], sorted(each.stands), each.cancelled)
                following[interlock.encode(name)] = each
        level = list(following.values())

    assert ends > 20
    assert seen > 60
