"""S30: the good result of a saga step that arrives after its saga was left is compensated."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

import interlock
from interlock.model.effect import Effect
from interlock.model.step import Step

TRIP = """
interlock: 1
kind: trip
context: {room: {type: string, nullable: true}, flight: {type: string, nullable: true}}
initial: booking_pending
states:
  booking_pending:
    allow: {saga.left_midway: this is what the test is about}
    on: {trip.cancelled: cancelled}
    expect: {within: 1h}
    saga:
      steps:
        - {id: room, do: {src: hotel.book, output: room}, timeout: 1m,
           compensate: {src: hotel.free, input: {room: "= context.room"}}}
        - {id: flight, do: {src: flight.book, output: flight, key: "= 'fl-' + entity.id"}, timeout: 1m,
           compensate: {src: flight.free, input: {broken: "= 1 // 0"}}}
        - {id: taxi, do: {src: taxi.book}, timeout: 1m}
      onDone: booked
      onCompensated: cancelled
      onError: cancelled
  booked: {type: final}
  cancelled: {expect: {within: forever}, on: {forgotten: gone}}
  gone: {type: final}
"""


def _left_during(number: int) -> tuple[interlock.BoundChart, Step, Effect]:
    """The trip, cancelled while its step of this number is under way, and the invoke that is then too late."""
    trip = interlock.loads(TRIP)
    step = trip.start(entity="trip/1")
    for result in ("r-1", "f-1")[:number]:
        step = trip.step(step.snapshot, interlock.done_event(_asked(step), result))
    asked = _asked(step)
    return trip, trip.step(step.snapshot, "trip.cancelled"), asked


def _asked(step: Step) -> Effect:
    return next(each for each in step.effects if each.type == "invoke")


def _calls(step: Step) -> list[tuple[str | None, Any]]:
    return [(each.name, each.input) for each in step.effects if each.type == "call"]


def test_a_late_good_result_is_compensated_with_the_result_in_its_field() -> None:
    """The compensation sees the result; the context does not change; the entry is kept."""
    trip, left, asked = _left_during(0)
    step = trip.step(left.snapshot, interlock.done_event(asked, "r-9"))

    assert ("applied", "compensated") == (step.outcome, step.reason)
    assert [("hotel.free", {"compensates": "trip/1/1/booking_pending.room", "room": "r-9"})] == _calls(step)
    assert left.snapshot.context == step.snapshot.context
    assert left.snapshot.version + 1 == step.snapshot.version


def test_a_late_perhaps_is_compensated_without_a_result() -> None:
    trip, left, asked = _left_during(0)
    step = trip.step(left.snapshot, interlock.failed_event(asked, "lapsed"))

    assert [("hotel.free", {"compensates": "trip/1/1/booking_pending.room", "room": None})] == _calls(step)


def test_a_late_failure_that_did_nothing_is_only_journaled() -> None:
    trip, left, asked = _left_during(0)
    step = trip.step(left.snapshot, interlock.failed_event(asked, "declined", done="no"))

    assert ("ignored", "invoke_gone", []) == (step.outcome, step.reason, _calls(step))
    assert left.snapshot.version + 1 == step.snapshot.version


def test_a_compensation_with_a_failing_input_is_called_with_its_key_and_recorded_as_a_fault() -> None:
    trip, left, asked = _left_during(1)
    step = trip.step(left.snapshot, interlock.done_event(asked, "f-9"))

    assert [("flight.free", {"compensates": "fl-trip/1"})] == _calls(step)
    assert ["expression.zero_division"] == [each.code for each in step.faults]


@pytest.mark.parametrize("data", [None, {"done": "unknown"}])
def test_a_step_without_compensation_has_none_when_late(data: Any) -> None:
    """The last step of the saga names no compensation."""
    trip, left, asked = _left_during(2)
    step = trip.step(left.snapshot, interlock.done_event(asked, data))

    assert ("ignored", "invoke_gone") == (step.outcome, step.reason)


def _late(text: str, number: int, event: interlock.Event | None = None) -> Step:
    """The step of a late good result, in another edition of the trip."""
    trip = interlock.loads(text)
    step = trip.start(entity="trip/1")
    for result in ("r-1", "f-1")[:number]:
        step = trip.step(step.snapshot, interlock.done_event(_asked(step), result))
    left = trip.step(step.snapshot, "trip.cancelled")
    return trip.step(left.snapshot, event or interlock.done_event(_asked(step), "r-9"))


def test_a_broken_compensation_ends_the_step_under_errors_raise() -> None:
    """S34: nothing is called. The result still raises the version; otherwise it would be sent again and again."""
    step = _late(TRIP.replace("kind: trip", "kind: trip\nerrors: raise"), 1)

    assert ("rejected", "failed", ()) == (step.outcome, step.reason, step.effects)
    assert [("expression.zero_division", "booking_pending.flight.compensation")] == [
        (each.code, each.place) for each in step.faults
    ]
    assert 4 == step.snapshot.version


def test_a_late_result_may_belong_into_a_part_of_a_field() -> None:
    """`output` is a path."""
    text = TRIP.replace("room: {type: string, nullable: true}", "stay: {type: object, default: {room: null}}")
    step = _late(text.replace("output: room", "output: stay.room").replace("context.room", "context.stay.room"), 0)

    assert [("hotel.free", {"compensates": "trip/1/1/booking_pending.room", "room": "r-9"})] == _calls(step)
    assert {"room": None} == step.snapshot.context["stay"]


def test_a_compensation_whose_input_is_not_a_mapping_gets_no_key() -> None:
    """As in the saga itself: it cannot carry the key."""
    step = _late(TRIP.replace('input: {room: "= context.room"}', 'input: "= context.room"'), 0)

    assert [("hotel.free", "r-9")] == _calls(step)


def test_a_step_without_output_is_compensated_all_the_same() -> None:
    step = _late(TRIP.replace("output: room", "").replace("{src: hotel.book, }", "{src: hotel.book}"), 0)

    assert [("hotel.free", {"compensates": "trip/1/1/booking_pending.room", "room": None})] == _calls(step)


def test_a_source_without_version_breaks_nothing() -> None:
    step = "booking_pending.room"
    event = interlock.Event(f"done.invoke.{step}", "r-9", type="platform", invokeid=step, source="x")

    assert [("hotel.free", {"compensates": "trip/1//booking_pending.room", "room": "r-9"})] == _calls(
        _late(TRIP, 0, event)
    )


def _ended_during(number: int, text: str = TRIP) -> tuple[interlock.BoundChart, Step, Effect]:
    """The trip, over for good while its step of this number is under way."""
    trip = interlock.loads(text)
    step = trip.start(entity="trip/1")
    for result in ("r-1", "f-1")[:number]:
        step = trip.step(step.snapshot, interlock.done_event(_asked(step), result))
    asked = _asked(step)
    left = trip.step(step.snapshot, "trip.cancelled")
    return trip, trip.step(left.snapshot, "forgotten"), asked


def test_a_step_whose_result_arrives_after_the_end_is_compensated() -> None:
    trip, over, asked = _ended_during(0)
    step = trip.step(over.snapshot, interlock.done_event(asked, "r-9"))

    assert "done" == over.snapshot.ended
    assert ("applied", "compensated") == (step.outcome, step.reason)
    assert [("hotel.free", {"compensates": "trip/1/1/booking_pending.room", "room": "r-9"})] == _calls(step)
    assert over.snapshot == replace(step.snapshot, version=over.snapshot.version)
    assert over.snapshot.version + 1 == step.snapshot.version


def test_a_lapse_after_the_end_is_compensated_without_a_result() -> None:
    trip, over, asked = _ended_during(0)
    step = trip.step(over.snapshot, interlock.failed_event(asked, "lapsed"))

    assert [("hotel.free", {"compensates": "trip/1/1/booking_pending.room", "room": None})] == _calls(step)


@pytest.mark.parametrize("number", [0, 2])
def test_a_result_after_the_end_that_has_no_answer_changes_nothing(number: int) -> None:
    trip, over, asked = _ended_during(number)
    step = trip.step(over.snapshot, interlock.failed_event(asked, "declined", done="no"))

    assert ("ignored", "ended", over.snapshot) == (step.outcome, step.reason, step.snapshot)


def test_a_sender_cannot_start_a_compensation_after_the_end() -> None:
    """Only the driver brings results: an event without a source is a sender's, whatever it is called."""
    trip, over, _ = _ended_during(0)
    event = interlock.Event("done.invoke.booking_pending.room", "r-9", invokeid="booking_pending.room")
    step = trip.step(over.snapshot, event)

    assert ("rejected", "ended", ()) == (step.outcome, step.reason, step.effects)


def test_no_state_is_active_for_a_compensation_after_the_end() -> None:
    """S10: every state was left, the final one too."""
    text = TRIP.replace('input: {room: "= context.room"}', "input: {over: \"= In('gone')\"}")
    trip, over, asked = _ended_during(0, text)
    step = trip.step(over.snapshot, interlock.done_event(asked, "r-9"))

    assert False is step.effects[0].input["over"]


def test_replay_meets_the_same_compensation_after_the_end() -> None:
    """The same events on the same snapshot: `fold` gives what the steps gave, beyond the end."""
    trip = interlock.loads(TRIP)
    first = trip.start(entity="trip/1")
    events = [
        interlock.Event("trip.cancelled"),
        interlock.Event("forgotten"),
        interlock.done_event(_asked(first), "r-9"),
        interlock.Event("trip.cancelled"),
    ]
    live = first.snapshot
    for event in events:
        live = trip.step(live, event).snapshot

    assert live == trip.fold(first.snapshot, events)
    assert (4, "done") == (live.version, live.ended)


def test_a_cancelled_child_compensates_its_steps() -> None:
    """Its parent left it in the middle of its saga: it ended, but not in a final state."""
    trip = interlock.loads(TRIP)
    first = trip.start(entity="trip/1")
    over = trip.step(first.snapshot, interlock.Event("_cancel", type="platform"))
    step = trip.step(over.snapshot, interlock.done_event(_asked(first), "r-9"))

    assert ("cancelled", ["hotel.free"]) == (step.snapshot.ended, [each.name for each in step.effects])
