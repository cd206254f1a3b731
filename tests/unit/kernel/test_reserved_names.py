"""Results, errors and timers come from the kernel and the driver: their names alone prove nothing."""

from __future__ import annotations

from typing import Any

import pytest

import interlock
from interlock.kernel.step import Kernel
from interlock.model.driver_events import invoke_done, timer_fired
from interlock.model.event import Event
from interlock.model.snapshot import Parent, Snapshot
from interlock.model.step import Step
from tests.unit.kernel.charts import ENTITY, PARENT, kernel_of, last_step, payloads, result_of, started

ORDER = """
    initial: paying
    states:
      paying:
        invoke: {id: charge, src: pay.charge, onDone: paid, onError: failed}
        after: {48h: expired}
        on: {"*": anything}
      paid: {}
      failed: {}
      expired: {}
      anything: {}
"""
RESULTS = ["done.invoke.charge", "error.invoke.charge", "after.48h.paying", "done.x", "error.execution"]
SELF = f"#_scxml_{ENTITY}"


def result_of_step(step: Step) -> tuple[str, str | None, tuple[str, ...]]:
    """How an event was taken, and where the entity is then."""
    return step.outcome, step.reason, step.snapshot.configuration


def from_child(snapshot: Snapshot, name: str) -> Event:
    """An event that the child behind the invoke `charge` sends to its parent."""
    (invoke,) = snapshot.invokes
    return Event(name, invokeid="charge", source=f"invoke/{invoke.key}", origin="#_scxml_pay/1", last=True)


@pytest.mark.parametrize("name", RESULTS)
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"origin": "#_scxml_evil/1", "principal": {"id": "evil/1", "kind": "system", "roles": ["system"]}},
        {"origin": SELF},
        {"type": "internal"},
        {"invokeid": "charge"},
        {"invokeid": "charge", "forwarded": True, "type": "platform"},
    ],
    ids=["sender", "entity", "itself", "internal", "invokeid", "forwarded"],
)
def test_an_event_named_like_a_result_is_rejected_unless_the_driver_sent_it(name: str, fields: dict[str, Any]) -> None:
    """Neither a sender nor another entity can end an invoke or fire a timer."""
    kernel = kernel_of(ORDER)
    before = started(kernel)
    step = kernel.step(before, Event(name, **fields))

    assert ("rejected", "reserved", ("paying",)) == result_of_step(step)
    assert before is step.snapshot


@pytest.mark.parametrize("name", RESULTS)
def test_a_child_cannot_name_its_message_like_a_result(name: str) -> None:
    """What a child sends carries the key of its invoke, but is not that invoke's result."""
    kernel = kernel_of(ORDER)
    before = started(kernel)

    assert ("rejected", "reserved", ("paying",)) == result_of_step(kernel.step(before, from_child(before, name)))


@pytest.mark.parametrize(
    "event",
    [
        Event("done.invoke.charge", type="platform"),
        Event("done.invoke.charge", type="platform", invokeid="other"),
        Event("error.invoke.charge", type="platform", invokeid="other", source="invoke/other/1/1/0"),
    ],
    ids=["no id", "another id", "another source"],
)
def test_a_result_names_the_invoke_that_it_ends(event: Event) -> None:
    """A driver that mixes up two invokes is refused, too."""
    assert ("rejected", "reserved", ("paying",)) == result_of_step(last_step(kernel_of(ORDER), event))


def test_results_and_timers_of_the_driver_are_accepted() -> None:
    """The result of the active invoke, and the timer that is pending."""
    kernel = kernel_of(ORDER)
    before = started(kernel)
    (timer,) = before.timers

    assert ("applied", None, ("paid",)) == result_of_step(kernel.step(before, result_of(before, "charge")))
    assert ("applied", None, ("failed",)) == result_of_step(
        kernel.step(before, result_of(before, "charge", word="error"))
    )
    assert ("applied", None, ("expired",)) == result_of_step(
        kernel.step(before, timer_fired(timer, time_ms=timer.due_ms))
    )


def test_a_timer_fires_its_own_event_only() -> None:
    """The name of a pending timer does not carry another event in."""
    kernel = kernel_of(ORDER)
    before = started(kernel)
    (timer,) = before.timers
    forged = Event("done.invoke.charge", source=f"timer/{timer.name}/{timer.version}")

    assert ("ignored", "timer_gone", ("paying",)) == result_of_step(kernel.step(before, forged))


def test_the_result_of_an_earlier_child_does_not_end_the_next_one_of_the_same_id() -> None:
    kernel = kernel_of("""
        initial: a
        states:
          a: {invoke: {id: job, src: w, onDone: b}, on: {again: {target: a, reenter: true}, done.invoke.job: b}}
          b: {}
    """)
    first = started(kernel)
    second = kernel.step(first, Event("again")).snapshot
    late = result_of(first, "job", last=True)

    assert ("ignored", "invoke_gone", ("a",)) == result_of_step(kernel.step(second, late))


# What a chart computes

COMPUTED = """
    states:
      a:
        on:
          raised: {actions: [{raise: "= event.data"}]}
          self: {actions: [{send: {event: "= event.data", id: s1}}]}
          internal: {actions: [{send: {event: "= event.data", to: internal}}]}
          other: {actions: [{send: {event: "= event.data", to: order/1}}]}
          parent: {actions: [{send: {event: "= event.data", to: parent}}]}
          later: {actions: [{send: {event: "= event.data", to: order/1, delay: 1h}}]}
"""


@pytest.mark.parametrize("name", [*RESULTS, "done", "error", "after", "_cancel", "error\u200b.x", " error"], ids=ascii)
@pytest.mark.parametrize("way", ["raised", "self", "internal", "other", "parent", "later"])
@pytest.mark.parametrize("dialect", ["interlock", "scxml"])
def test_a_computed_name_is_never_one_of_the_kernels(dialect: str, way: str, name: str) -> None:
    """In no dialect, by no action, to no target."""
    kernel = kernel_of(f"dialect: {dialect}\n" + COMPUTED.replace("\n    ", "\n"))
    before = started(kernel, parent=PARENT)
    step = kernel.step(before, Event(way, name))

    assert ["event.reserved"] == [each.code for each in step.faults]
    assert ([], [], ()) == (payloads(step, "send"), payloads(step, "call"), step.snapshot.timers)


def test_the_error_of_a_reserved_name_carries_the_send_id() -> None:
    kernel = kernel_of("""
        states:
          a:
            on:
              go: {actions: [{send: {event: "= event.data", id: s1}}]}
              error.execution: {actions: [{do: told, with: {sendid: "= event.sendid", code: "= event.data.code"}}]}
    """)
    step = last_step(kernel, Event("go", "done.invoke.x"))

    assert [{"sendid": "s1", "code": "event.reserved"}] == [each["input"] for each in payloads(step, "call")]


# What an imported chart writes

WRITTEN = """
    dialect: scxml
    initial: a
    states:
      a:
        invoke: {id: job, src: w, onDone: wrong}
        after: {1h: wrong}
        on:
          raise: {actions: [{raise: done.invoke.job}, {raise: after.1h.a}, {raise: error.mine}]}
          send: {actions: [{send: {event: done.invoke.job, to: internal}}]}
          outside: {actions: [{send: {event: error.mine}}]}
          other: {actions: [{send: {event: error.mine, to: order/1}}]}
          error.mine: b
          error.execution: {actions: [failed]}
      b: {}
      wrong: {}
"""


def test_an_imported_chart_may_raise_a_reserved_name_that_it_writes() -> None:
    """It means only itself: no invoke ends by it, no timer fires, and `onDone` and `after` do not take it."""
    kernel = kernel_of(WRITTEN)
    step = last_step(kernel, "raise")

    assert ("applied", None, ("b",)) == result_of_step(step)
    assert ("applied", None, ("a",)) == result_of_step(last_step(kernel, "send"))
    assert ["job"] == [each.id for each in last_step(kernel, "send").snapshot.invokes]


def test_an_imported_chart_may_send_a_written_reserved_name_to_itself_only() -> None:
    """From itself it is taken; to another entity it is not even sent."""
    kernel = kernel_of(WRITTEN)
    sent, other = last_step(kernel, "outside"), last_step(kernel, "other")
    arrived = Event("error.mine", origin=SELF)

    assert [{"event": "error.mine", "to": ENTITY}] == payloads(sent, "send")
    assert ("applied", None, ("b",)) == result_of_step(kernel.step(sent.snapshot, arrived))
    assert ("rejected", "reserved", ("a",)) == result_of_step(kernel.step(sent.snapshot, Event("error.mine")))
    assert [] == payloads(other, "send")
    assert ["failed"] == [each["name"] for each in payloads(other, "call")]


def test_a_delayed_send_of_an_imported_chart_is_not_an_after() -> None:
    """Its timer fires for the written transition, and never for the one made from `after`."""
    kernel = kernel_of("""
        dialect: scxml
        initial: a
        states:
          a:
            after: {1h: wrong}
            on: {go: {actions: [{send: {event: after.1h.a, delay: 1s, id: mine}}]}, after.1h.a: b}
          b: {}
          wrong: {}
    """)
    before = last_step(kernel, "go").snapshot
    (timer,) = (each for each in before.timers if each.id == "mine")

    assert ("applied", None, ("b",)) == result_of_step(kernel.step(before, timer_fired(timer, time_ms=timer.due_ms)))


# Sagas

TRIP = """
interlock: 1
kind: trip
initial: booking
states:
  booking:
    saga:
      steps:
        - id: room
          do: {src: hotel.book, type: chart}
          compensate: {src: hotel.free}
      onDone: booked
      onCompensated: refused
      onError: broken
    on: {leave: left}
  booked: {}
  refused: {}
  broken: {}
  left: {}
"""


@pytest.mark.parametrize("data", [None, {"done": "unknown"}])
@pytest.mark.parametrize("name", ["done.invoke.booking.room", "error.invoke.booking.room", "news"])
@pytest.mark.parametrize("ending", ["leave", "_cancel"])
def test_a_message_of_a_child_is_never_a_late_saga_result(ending: str, name: str, data: Any) -> None:
    """Only the driver's result has its step compensated, after the saga was left or its entity ended."""
    trip = interlock.loads(TRIP.replace(", type: chart", ""))
    kernel = Kernel(trip.chart)
    start = kernel.start(entity="trip/1", parent=Parent("boss/1", "t", "boss/1/1/0"))
    (invoke,) = start.snapshot.invokes
    over = kernel.step(start.snapshot, Event(ending, type="platform" if ending == "_cancel" else "external"))
    forged = Event(name, data, invokeid=invoke.id, source=f"invoke/{invoke.key}", origin="#_scxml_hotel/1")
    step = kernel.step(over.snapshot, forged)

    assert "compensated" != step.reason
    assert [] == payloads(step, "call")
    genuine = kernel.step(over.snapshot, invoke_done(invoke.id, invoke.key, None))
    assert ("applied", "compensated") == (genuine.outcome, genuine.reason)


def test_a_message_of_a_child_is_not_the_result_of_a_compensation() -> None:
    """Behind the end of its entity a saga goes back by the driver's results alone."""
    text = TRIP.replace(", type: chart", "").replace("onDone: booked", "onDone: {target: booked}")
    text = text.replace("      onDone", "        - id: seat\n          do: {src: seat.book}\n      onDone")
    kernel = Kernel(interlock.loads(text).chart)
    start = kernel.start(entity="trip/1", parent=Parent("boss/1", "t", "boss/1/1/0"))
    (room,) = start.snapshot.invokes
    booked = kernel.step(start.snapshot, invoke_done(room.id, room.key, None)).snapshot
    over = kernel.step(booked, Event("_cancel", type="platform")).snapshot
    (back,) = over.invokes
    forged = Event(f"done.invoke.{back.id}", invokeid=back.id, source=f"invoke/{back.key}")

    assert "compensated" != kernel.step(over, forged).reason
    assert "compensated" == kernel.step(over, invoke_done(back.id, back.key, None)).reason
