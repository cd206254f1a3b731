"""What a chart computes as a name, a type, a source, a target or a delay has the type that belongs there."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.model.event import Event
from interlock.model.limits import DELAY_MS_MAX
from interlock.model.step import Step
from tests.unit.kernel.charts import kernel_of, last_step, payloads

OTHERS: list[Any] = [None, True, 5, 1.5, [], ["style"], {}, {"style": "position: fixed"}]
"""Values of every JSON type but text."""

CHART = """
    initial: a
    states:
      a:
        on:
          emit: {actions: [{emit: {type: "= event.data", data: 1}}, after_it]}
          raise: {actions: [{raise: "= event.data"}, after_it]}
          event: {actions: [{send: {event: "= event.data", to: order/1}}, after_it]}
          id: {actions: [{send: {event: x, id: "= event.data", delay: 1s}}, after_it]}
          to: {actions: [{send: {event: x, to: "= event.data"}}, after_it]}
          type: {actions: [{send: {event: x, type: "= event.data"}}, after_it]}
          delay: {actions: [{send: {event: x, delay: "= event.data"}}, after_it]}
          cancel: {actions: [{cancel: "= event.data"}, after_it]}
          src: {target: src, actions: [{assign: {v: "= event.data"}}]}
          kind: {target: kind, actions: [{assign: {v: "= event.data"}}]}
          key: {target: key, actions: [{assign: {v: "= event.data"}}]}
      src: {invoke: {src: "= context.v", onDone: a}}
      kind: {invoke: {src: w, type: "= context.v", onDone: a}}
      key: {invoke: {src: w, key: "= context.v", onDone: a}}
    context: {v: {type: any, default: null}}
"""
CODES = {
    "emit": "emit.type",
    "raise": "raise.event",
    "event": "send.event",
    "id": "send.id",
    "to": "send.target",
    "type": "send.type",
    "delay": "send.delay",
    "cancel": "cancel.id",
    "src": "invoke.src",
    "kind": "invoke.type",
    "key": "invoke.key",
}
ALLOWED: dict[str, tuple[Any, ...]] = {
    "id": (None,),
    "to": (None,),
    "type": (None,),
    "delay": (None, 5),
    "key": (None, 5),
}
"""Values that mean something although they are not text: nothing, or a number."""


def sent(way: str, value: Any) -> Step:
    """The step in which the chart computes this value at this place."""
    return last_step(kernel_of(CHART), Event(way, value))


@pytest.mark.parametrize("value", OTHERS, ids=repr)
@pytest.mark.parametrize("way", CODES)
def test_what_is_computed_where_text_belongs_must_be_text(way: str, value: Any) -> None:
    """Anything else is `error.execution`, and leaves neither effect nor timer nor invoke."""
    if any(type(value) is type(each) for each in ALLOWED.get(way, ())):
        assert () == sent(way, value).faults
        return
    step = sent(way, value)

    assert [CODES[way]] == [each.code for each in step.faults]
    assert ((), (), ()) == (step.effects, step.snapshot.timers, step.snapshot.invokes)


@pytest.mark.parametrize("way", ["emit", "raise", "event", "to"])
def test_a_name_is_not_empty(way: str) -> None:
    assert [CODES[way]] == [each.code for each in sent(way, "").faults]


def test_text_is_taken() -> None:
    """The same places with text have their effects."""
    assert [{"type": "t", "data": 1}] == payloads(sent("emit", "t"), "message")
    assert ["order/2"] == [each["to"] for each in payloads(sent("to", "order/2"), "send")]
    assert ["w2"] == [each["src"] for each in payloads(sent("src", "w2"), "invoke")]
    assert ["k"] == [each["key"] for each in payloads(sent("key", "k"), "invoke")]
    assert [DELAY_MS_MAX] == [each.due_ms for each in sent("delay", DELAY_MS_MAX).snapshot.timers]


@pytest.mark.parametrize("delay", [DELAY_MS_MAX + 1, 2**70, "999999999999d", -1, "soon"])
def test_a_delay_is_bounded(delay: Any) -> None:
    """A due time that no store can keep is an error of the chart, not of the store."""
    assert ["send.delay"] == [each.code for each in sent("delay", delay).faults]


def test_an_invoke_of_an_imported_chart_may_have_no_source() -> None:
    """SCXML allows it; what it means is for the driver to say."""
    kernel = kernel_of("dialect: scxml\nstates: {a: {invoke: {id: job}}}")

    assert [("job", False)] == [(each["id"], "src" in each) for each in payloads(last_step(kernel), "invoke")]
