"""A saga is drawn as its states and transitions, without what it notes for itself."""

import re

from interlock.assemble.charts import loads
from interlock.model.charts.chart import DIALECTS, Chart, SagaInfo, State
from interlock.model.document.actions import Assign, Expression, GuardName, If
from interlock.render.diagram.mermaid import mermaid
from interlock.render.saga_bookkeeping import hide_bookkeeping

SAGA = """\
interlock: 1
kind: trip
context: {flight: {type: string, nullable: true}}
states:
  booked:
    saga:
      steps:
        - {id: flight, if: "= context.flight == null", timeout: 1m,
           do: {src: flight.book, output: flight}, compensate: {src: flight.cancel}}
        - {id: hotel, do: {src: hotel.book}, timeout: 1m}
      onDone: done
      onError: failed
  done: {type: final}
  failed: {type: final}
"""


def test_a_saga_is_drawn_without_its_notes() -> None:
    """The steps, their calls and what the author assigns are there; the compiler's own field is not assigned."""
    text = mermaid(loads(SAGA).chart)

    assert [] == re.findall(r"saga_booked[\w.]* = ", text)
    assert "invoke flight.book" in text
    assert "/ flight = event.data" in text


def test_guards_of_sagas_are_shown_as_text() -> None:
    """No reader knows the compiler's field, or how an error says that nothing was done."""
    text = mermaid(loads(SAGA).chart)
    asked = set(re.findall(r"\[[^\]]*(?:done|skipped)[^\]]*\]", text))

    assert {"[flight not done]", "[surely not done]", "[skipped]"} <= asked
    assert "saga_booked" not in text
    assert "get(event.data" not in text


def test_a_guard_of_the_author_is_shown_as_written() -> None:
    """Also one that looks at what a saga did, and one that only looks like the compiler's own."""
    chart = loads(
        SAGA.replace(
            "done: {type: final}",
            """done:
    on:
      a: {target: failed, guard: "= context.saga_booked.done['hotel'] != null"}
      b: {target: failed, guard: "= context.flight == null"}
""",
        )
    ).chart
    text = mermaid(chart)

    assert "context.saga_booked.done" in text
    assert "context.flight == null" in text


def test_a_chart_without_sagas_is_drawn_as_it_is() -> None:
    chart = loads("interlock: 1\nkind: k\ncontext: {saga_x: {type: any}}\nstates: {a: {}}\n").chart

    assert chart is hide_bookkeeping(chart)


def test_a_guard_outside_the_saga_keeps_its_text() -> None:
    """Even if it reads like a generated one."""
    chart = loads(
        """
interlock: 1
kind: k
states:
  booked: {saga: {steps: [{id: hotel, do: {src: f}}], onDone: end, onError: end}, on: {leave: left}}
  left: {on: {a: {target: end, guard: "= context.saga_booked.step == null"}}}
  end: {type: final}
"""
    ).chart

    assert "context.saga_booked.step == null" in mermaid(chart)


def test_only_notes_are_left_out() -> None:
    note, said = ("saga_a.step", "x"), ("n", Expression("1"))
    guard = GuardName(name="g")
    block = (
        Assign(values=(note, said)),
        Assign(values=(note,)),
        If(branches=((guard, (Assign(values=(note,)),)),)),
        If(branches=((guard, (Assign(values=(note,)),)),), otherwise=(Assign(values=(said,)),)),
        If(branches=((guard, (Assign(values=(said, note)),)),)),
    )
    root = State(
        index=0,
        id="",
        key="",
        type="compound",
        parent=-1,
        last=0,
        depth=0,
        saga=SagaInfo(field="saga_a", steps=(), completed=0, blocked=0),
        entry=(block,),
        exit=(block,),
    )
    chart = Chart(kind="k", revision="0", dialect=DIALECTS["interlock"], states=(root,), transitions=())
    shown = hide_bookkeeping(chart).states[0]

    expected = (
        Assign(values=(said,)),
        If(branches=((guard, ()),), otherwise=(Assign(values=(said,)),)),
        If(branches=((guard, (Assign(values=(said,)),)),)),
    )
    assert (expected,) == shown.entry
    assert (expected,) == shown.exit
