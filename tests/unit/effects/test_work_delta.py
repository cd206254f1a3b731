"""What a step leaves to do."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.effects.work_delta import child_address, work_delta, work_id_of
from interlock.model.actor import whom_of
from interlock.model.event import Event
from interlock.model.journal.cause import Cause
from interlock.model.journal.entry import Entry
from interlock.model.journal.work import Work, WorkDelta, WorkId
from interlock.model.snapshot import Parent, Snapshot
from interlock.model.step import Step
from tests.unit.kernel.charts import ENTITY, kernel_of

NOW = 1_000

TO_A = {"event": "go", "from": (), "to": ("a",), "version": 1}


def left_by(
    text: str, *events: Event | str, parent: Parent | None = None, messages: bool = False, hidden: bool = False
) -> WorkDelta:
    """What the last step leaves: creation, or that of the last event."""
    kernel = kernel_of(text)
    before: Snapshot | None = None
    step: Step = kernel.start(None, entity=ENTITY, time_ms=NOW, parent=parent)
    for each in events:
        before = step.snapshot
        step = kernel.step(before, Event(each, time_ms=NOW) if isinstance(each, str) else each)
    return work_delta(before, step, NOW, published=told(before, step) if messages else None, hidden=hidden)


def told(before: Snapshot | None, step: Step) -> Entry:
    """The entry of a step."""
    after = step.snapshot
    states = () if before is None else before.configuration
    event = Event("go", time_ms=NOW)
    return Entry(after.version, event, step.outcome, states, after.configuration, after.revision, "k")


def the_event(work: Work) -> dict[str, Any]:
    """The event that a piece of outbox work delivers."""
    event: dict[str, Any] = work.body["event"]
    return event


def test_a_named_action_is_work_for_its_handler() -> None:
    """Known by version and ordinal, due immediately."""
    found = left_by("initial: a\nstates: {a: {entry: [{do: charge, with: {amount: 3}}]}}")

    work_id = WorkId("effect", 1, 0)
    assert (Work(work_id, "charge", {"name": "charge", "input": {"amount": 3}}, NOW),) == found.created


def test_a_log_creates_no_work() -> None:
    assert WorkDelta() == left_by("initial: a\nstates: {a: {entry: [{log: hello}]}}")


def test_an_invoke_is_work_for_its_handler() -> None:
    """By the name of its `src`."""
    (work,) = left_by("initial: a\nstates: {a: {invoke: {id: pay, src: payment.charge}}}").created

    assert (WorkId("effect", 1, 0), "payment.charge", NOW) == (work.id, work.name, work.due_ms)


def test_leaving_a_state_cancels_its_invoke() -> None:
    found = left_by("initial: a\nstates: {a: {invoke: {id: pay, src: charge}, on: {go: b}}, b: {}}", "go")

    assert WorkDelta(cancelled=(WorkId("effect", 1, 0),)) == found


CHILD = "{id: net, type: chart, src: network}"


def test_a_child_is_one_piece_of_work() -> None:
    (work,) = left_by(f"initial: a\nstates: {{a: {{invoke: {CHILD}}}}}").created

    assert (WorkId("effect", 1, 0), "_child", "network", NOW) == (work.id, work.name, work.body["src"], work.due_ms)


def test_the_cancellation_of_a_child_comes_after_everything_sent_to_it() -> None:
    found = left_by(f"initial: a\nstates: {{a: {{invoke: {CHILD}, on: {{go: b}}}}, b: {{}}}}", "go")

    (work,) = found.created
    assert ("child/1/0", "_cancel") == (work.name, the_event(work)["name"])
    assert () == found.cancelled


@pytest.mark.parametrize(("how", "addresses"), [("chart", ["child/1/0"]), ("handler", [])])
def test_an_invoke_of_a_computed_type_is_cancelled_by_its_result(how: str, addresses: list[str]) -> None:
    text = f"""
    initial: a
    context: {{how: {{type: string, default: {how}}}}}
    states: {{a: {{invoke: {{id: net, type: "= context.how", src: network}}, on: {{go: b}}}}, b: {{}}}}
    """

    assert addresses == [each.name for each in left_by(text, "go").created]


@pytest.mark.parametrize(("first", "second"), [("chart", "handler"), ("handler", "chart")])
def test_an_invoke_is_cancelled_as_itself_and_not_as_its_successor_with_the_same_id(first: str, second: str) -> None:
    text = f"""
    initial: a
    states:
      a: {{invoke: {{id: net, type: {first}, src: network}}, on: {{go: b}}}}
      b: {{invoke: {{id: net, type: {second}, src: network}}}}
    """
    found = left_by(text, "go")

    assert (first == "chart") == ("child/1/0" in {each.name for each in found.created})
    assert (first == "handler") == (found.cancelled == (WorkId("effect", 1, 0),))


def test_an_event_sent_on_exit_reaches_the_child_of_the_state_that_is_left() -> None:
    child = "{id: net, type: chart, src: network, autoforward: true}"
    on = "{go: {target: a, reenter: true}}"
    text = f"initial: a\nstates: {{a: {{invoke: {child}, exit: [{{send: {{event: bye, to: net}}}}], on: {on}}}}}"
    sent = [each for each in left_by(text, "go").created if each.id.lane == "outbox"]

    assert [("child/1/0", "go"), ("child/1/0", "bye"), ("child/1/0", "_cancel")] == [
        (each.name, the_event(each)["name"]) for each in sorted(sent, key=lambda each: each.id)
    ]


def test_a_send_to_an_invoke_cancelled_in_the_same_step_is_dropped() -> None:
    text = """
    initial: a
    context: {none: {type: integer, default: 0}}
    states:
      a:
        invoke: [{id: net, type: chart, src: network}, {id: pay, src: charge, input: "= 1 / context.none"}]
        exit: [{send: {event: bye, to: net}}]
        on: {error.execution: b}
      b: {}
    """

    assert WorkDelta() == left_by(text)


def test_a_timer_is_work_with_a_due_time() -> None:
    (work,) = left_by("initial: a\nstates: {a: {after: {5s: b}}, b: {}}").created

    assert (WorkId("timer", 1, 0), NOW + 5_000) == (work.id, work.due_ms)


def test_a_cancelled_timer_ends_with_its_state() -> None:
    """By the place of the work that set it."""
    found = left_by("initial: a\nstates: {a: {after: {5s: b}, on: {go: b}}, b: {}}", "go")

    assert WorkDelta(finished=(WorkId("timer", 1, 0),)) == found


def test_a_timer_that_continues_creates_no_second_work() -> None:
    text = "initial: a\nstates: {a: {after: {5s: b}, on: {stay: {actions: [{log: x}]}}}, b: {}}"

    assert WorkDelta() == left_by(text, "stay")


def test_a_timer_set_and_cancelled_in_one_step_was_never_there() -> None:
    """The net difference of two snapshots counts."""
    text = "initial: a\nstates: {a: {after: {5s: c}, always: b}, b: {}, c: {}}"

    assert WorkDelta() == left_by(text)


def test_a_send_has_the_system_as_principal_and_its_sender_as_origin() -> None:
    (work,) = left_by("initial: a\nstates: {a: {entry: [{send: {event: hi, to: \"= 'door/7'\", data: 3}}]}}").created

    event = the_event(work)
    assert ("entity/door/7", "hi", 3, f"#_scxml_{ENTITY}") == (work.name, event["name"], event["data"], event["origin"])
    assert {"id": ENTITY, "kind": "system", "roles": ["system"]} == event["principal"]


def test_a_send_to_a_child_is_addressed_by_its_invoke() -> None:
    text = (
        f"initial: a\nstates: {{a: {{invoke: {CHILD}, on: {{go: {{actions: [{{send: {{event: up, to: net}}}}]}}}}}}}}"
    )
    (work,) = left_by(text, "go").created

    assert ("child/1/0", "up") == (work.name, the_event(work)["name"])


def test_an_event_is_forwarded_to_the_child_even_when_it_ends_the_invoke() -> None:
    """First the event, then the end."""
    child = "{id: net, type: chart, src: network, autoforward: true}"
    found = left_by(f"initial: a\nstates: {{a: {{invoke: {child}, on: {{go: b}}}}, b: {{}}}}", "go")

    assert [("go", True), ("_cancel", False)] == [
        (the_event(each)["name"], the_event(each).get("forwarded", False))
        for each in sorted(found.created, key=lambda each: each.id)
    ]


PARENT = Parent("vm/1", "net", "vm/1/4/2")


def test_a_send_to_the_parent_names_the_invoke() -> None:
    (work,) = left_by("initial: a\nstates: {a: {entry: [{send: {event: up, to: parent}}]}}", parent=PARENT).created

    event = the_event(work)
    assert ("entity/vm/1", "net", "invoke/vm/1/4/2") == (work.name, event["invokeid"], event["source"])
    assert "last" not in event


def test_the_result_of_a_child_is_its_last_event() -> None:
    text = "initial: a\nstates: {a: {on: {go: z}}, z: {type: final, output: {ip: 3}}}"
    (work,) = left_by(text, "go", parent=PARENT).created

    event = the_event(work)
    assert ("done.invoke.net", {"ip": 3}, True) == (event["name"], event["data"], event["last"])


def test_a_failed_child_sends_its_parent_an_error() -> None:
    text = "errors: raise\ninitial: a\nstates: {a: {on: {go: b}}, b: {}}"
    kernel = kernel_of(text)
    before = kernel.start(None, entity=ENTITY, time_ms=NOW, parent=PARENT).snapshot
    failed = Step(snapshot_ended(before, "failed"), (), "applied")
    (work,) = work_delta(before, failed, NOW).created

    event = the_event(work)
    assert ("error.invoke.net", "child_failed") == (event["name"], event["data"]["code"])


def test_a_child_that_failed_before_sends_no_second_error() -> None:
    kernel = kernel_of("initial: a\nstates: {a: {}}")
    before = kernel.start(None, entity=ENTITY, time_ms=NOW, parent=Parent("vm/1", "net", "vm/1/1/0")).snapshot
    ended = snapshot_ended(before, "failed")

    assert () == work_delta(ended, Step(ended, (), "applied", "compensated"), NOW).created


def snapshot_ended(snapshot: Snapshot, how: Any) -> Snapshot:
    """The snapshot, ended."""
    return Snapshot(
        snapshot.kind,
        snapshot.entity,
        snapshot.version + 1,
        snapshot.revision,
        snapshot.configuration,
        snapshot.context,
        ended=how,
        parent=snapshot.parent,
    )


def test_messages_leave_work_only_when_there_is_a_bus() -> None:
    """Else they would pile up; the journal holds them."""
    text = "initial: a\nstates: {a: {entry: [{emit: {type: order.opened, data: {n: 1}}}]}}"

    assert WorkDelta() == left_by(text)
    assert [("order.opened", 0, {"n": 1}), (f"{ENTITY.partition('/')[0]}.state.changed", 1, TO_A)] == [
        (each.body["type"], each.id.ordinal, each.body["data"]) for each in left_by(text, messages=True).created
    ]


def test_a_hidden_change_publishes_only_the_messages_of_the_chart() -> None:
    text = "initial: a\nstates: {a: {entry: [{emit: {type: order.opened}}]}}"

    assert ["order.opened"] == [each.body["type"] for each in left_by(text, messages=True, hidden=True).created]


def test_messages_have_a_lane_of_their_own() -> None:
    """A bus that is away holds back no sends."""
    text = "initial: a\nstates: {a: {entry: [{send: {event: up, to: door/1}}, {emit: {type: t}}]}}"

    assert ["outbox", "message", "message"] == [each.id.lane for each in left_by(text, messages=True).created]


def test_an_ignored_event_publishes_no_message() -> None:
    kernel = kernel_of("initial: a\nunhandled: ignore\nstates: {a: {}}")
    before = kernel.start(None, entity=ENTITY, time_ms=NOW).snapshot
    step = kernel.step(before, Event("what", time_ms=NOW))

    assert WorkDelta() == work_delta(before, step, NOW, published=told(before, step))


def test_a_deferred_event_keeps_all_its_fields() -> None:
    text = """
    unhandled: defer
    initial: a
    states: {a: {on: {go: b}}, b: {on: {later: c}}, c: {}}
    """
    sender = {"id": "anna", "kind": "user", "roles": []}
    later = Event("later", id="e7", key="k7", principal=sender, time_ms=NOW)
    found = left_by(text, later, "go")

    assert [("later", "e7/3", sender)] == [
        (the_event(each)["name"], the_event(each)["id"], the_event(each)["principal"]) for each in found.created
    ]


def test_work_ids_and_addresses_come_from_keys() -> None:
    assert WorkId("effect", 4, 2) == work_id_of("effect", "vm/rack/1/4/2")
    assert "child/4/2" == child_address("vm/rack/1/4/2")


@pytest.mark.parametrize(
    ("principal", "whom"),
    [
        (None, None),
        ({"id": "ada", "kind": "person", "roles": ["clerk"]}, {"id": "ada", "kind": "user"}),
        ({"id": "order/1", "kind": "system", "for": {"id": "ada", "kind": "user"}}, {"id": "ada", "kind": "user"}),
        ({"id": "order/1", "kind": "system"}, None),
    ],
)
def test_what_an_entity_sends_says_for_whom_without_their_roles(principal: Any, whom: Any) -> None:
    kernel = kernel_of("initial: a\nstates: {a: {on: {go: {actions: [{send: {event: paid, to: order/2}}]}}}}")
    before = kernel.start(None, entity=ENTITY, time_ms=NOW).snapshot
    cause = Cause(whom=whom_of(principal))
    (work,) = work_delta(before, kernel.step(before, Event("go", time_ms=NOW)), NOW, cause=cause).created
    sender = the_event(work)["principal"]

    assert (ENTITY, "system", ["system"], whom) == (
        sender["id"], sender["kind"], sender["roles"], sender.get("for")
    )  # fmt: skip
