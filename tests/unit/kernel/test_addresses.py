"""Where a send goes (S24, S25): this entity, its queue, its parent, an invoke, another entity, or nowhere."""

from typing import Any

import pytest

from interlock.model.event import SCXML_PROCESSOR, Event
from tests.unit.kernel.charts import ENTITY, PARENT, faults, kernel_of, last_step, payloads, started

CHART = """
context: {to: {type: any, default: null}, id: {type: string, default: ''}}
states:
  a:
    invoke: {src: bot, id: kid.1}
    on:
      send: {actions: [{send: {event: ping, to: "= event.data", id: s1, data: {n: 1}}}]}
      ping: {actions: [pinged]}
      error.communication: {actions: [{do: not_delivered, with: {data: "= event.data", sendid: "= event.sendid"}}]}
      error.execution: {actions: [{do: not_sent, with: {data: "= event.data", sendid: "= event.sendid"}}]}
"""


def sent(to: object) -> list[tuple[str, dict[str, Any]]]:
    """The effects of one send to this address, by an entity with a parent and an invoke."""
    kernel = kernel_of(CHART)
    snapshot = started(kernel, parent=PARENT)
    step = kernel.step(snapshot, Event("send", to))
    return [(effect.type, effect.payload) for effect in step.effects]


def errors_of(to: object) -> list[tuple[str, str, str]]:
    """Return the action, the code and the send id of each error event of one send."""
    inputs = [(payload["name"], payload["input"]) for _, payload in sent(to)]
    return [(name, given["data"]["code"], given["sendid"]) for name, given in inputs]


@pytest.mark.parametrize(
    ("to", "address"),
    [
        (None, ENTITY),
        ("self", ENTITY),
        (ENTITY, ENTITY),
        (f"#_scxml_{ENTITY}", ENTITY),
        ("parent", "#_parent"),
        ("#_parent", "#_parent"),
        ("kid.1", "#_kid.1"),
        ("#_kid.1", "#_kid.1"),
        ("order/7", "order/7"),
        ("#_scxml_order/7", "order/7"),
        ("order/a b", "order/a b"),
    ],
)
def test_a_send_becomes_an_effect_with_one_spelling_of_its_address(to: object, address: str) -> None:
    """S24: also to the entity itself, whose event comes back from outside."""
    assert [("send", {"event": "ping", "to": address, "data": {"n": 1}, "sendid": "s1"})] == sent(to)


@pytest.mark.parametrize("to", ["internal", "#_internal"])
def test_a_send_to_the_internal_queue_is_taken_in_the_same_step(to: str) -> None:
    """S24: as `raise`, with a send id."""
    assert [("call", {"name": "pinged"})] == sent(to)


@pytest.mark.parametrize("to", ["stranger", "#_stranger", "kid-2.x", "#_scxml_order", "#_!"])
def test_an_unknown_address_is_a_communication_error_with_the_send_id(to: str) -> None:
    """S25: immediately, in the internal queue."""
    assert [("not_delivered", "send.undeliverable", "s1")] == errors_of(to)


def test_an_entity_without_parent_cannot_send_to_it() -> None:
    """S25"""
    kernel = kernel_of("states: {a: {on: {go: {actions: [{send: {event: e, to: parent}}]}}}}")

    assert ["send.undeliverable"] == faults(last_step(kernel, "go"))


@pytest.mark.parametrize("to", [5, "", [], "!order/7", "#order/7", "a b"])
def test_a_malformed_target_is_an_execution_error_with_the_send_id(to: object) -> None:
    """S25, W3C 194 and 332."""
    assert [("not_sent", "send.target", "s1")] == errors_of(to)


def test_a_cancelled_invoke_is_not_an_address() -> None:
    """S25: only an active invoke can be reached."""
    kernel = kernel_of("""
        states:
          a: {invoke: {src: f, id: kid}, on: {go: b}}
          b: {on: {say: {actions: [{send: {event: e, to: kid}}]}}}
    """)

    assert ["send.undeliverable"] == faults(last_step(kernel, "go", "say"))


@pytest.mark.parametrize("type_", ["", "scxml", SCXML_PROCESSOR])
def test_the_event_processor_of_entities_may_be_named(type_: str) -> None:
    kernel = kernel_of(
        f"dialect: scxml\nstates: {{a: {{on: {{go: {{actions: [{{send: {{event: e, type: {type_!r}}}}}]}}}}}}}}"
    )

    assert [{"event": "e", "to": ENTITY}] == payloads(last_step(kernel, "go"), "send")


def test_a_generated_send_id_is_written_before_the_send() -> None:
    """`idLocation`: made of version and ordinal, so that it is the same on replay; the payload names it."""
    kernel = kernel_of("""
        context: {last: {type: string, default: ''}}
        states: {a: {on: {go: {actions: [note, {send: {event: e, idLocation: last}}]}}}}
    """)
    step = last_step(kernel, "go")

    assert "send.2.1" == step.snapshot.context["last"]
    assert [{"event": "e", "to": ENTITY, "sendid": "send.2.1"}] == payloads(step, "send")


def test_a_send_evaluates_its_arguments_when_it_runs() -> None:
    """186: later writes do not change what was sent."""
    kernel = kernel_of("""
        context: {n: {type: integer, default: 1}}
        states: {a: {on: {go: {actions: [{send: {event: e, data: "= context.n"}}, {assign: {n: 2}}]}}}}
    """)

    assert [1] == [each["data"] for each in payloads(last_step(kernel, "go"), "send")]
