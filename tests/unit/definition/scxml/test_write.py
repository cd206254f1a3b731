"""Documents to SCXML: what other tools see, what can be read back, and what is reported as lost."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from interlock.compiler.build import compile_document
from interlock.definition.scxml.format import read_scxml
from interlock.definition.scxml.structure import SCXML
from interlock.definition.scxml.write import write_scxml
from interlock.definition.yaml.format import FORMAT as YAML
from interlock.kernel.step import Kernel
from interlock.model.document.actions import (
    Action,
    Assign,
    AssignCall,
    Cancel,
    Do,
    Emit,
    Expression,
    Foreach,
    GuardAll,
    GuardAny,
    GuardExpression,
    GuardIn,
    GuardName,
    GuardNot,
    If,
    Log,
    Raise,
    Script,
    Send,
)
from interlock.model.document.document import Document, Initial, Invoke, Retry, Saga, State, Transition
from interlock.model.document.field import Field
from interlock.testing.simulation import Simulation
from tests.unit.definition.scxml_reading import back, chart, expression


def plain(text: str) -> str:
    """The file as a tool that does not know our namespace reads it."""
    text = re.sub(r" (?:xmlns:)?interlock(?::\w+)?=(?:\"[^\"]*\"|'[^']*')", "", text)
    return re.sub(r"<interlock:\w+[^>]*/>|<interlock:(\w+).*?</interlock:\1>", "", text, flags=re.DOTALL)


def ends(document: Document, events: list[tuple[str, int]]) -> list[tuple[tuple[str, ...], Any]]:
    """Configuration and context after each event and each wait."""
    compilation = compile_document(document)
    assert compilation.chart is not None, compilation.diagnostics
    simulation = Simulation(Kernel(compilation.chart))
    simulation.create("k/1")
    seen = []
    for name, wait_ms in events:
        simulation.settle()
        simulation.send("k/1", name)
        simulation.settle()
        simulation.advance(wait_ms)
        snapshot = simulation.snapshots["k/1"]
        seen.append((snapshot.configuration, snapshot.context))
    return seen


ALIKE = """
interlock: 1
kind: k
context: {n: {type: integer, default: 0}, log: {type: array, default: []}}
initial: {target: a, actions: [{assign: {log: "= context.log + ['begin']"}}]}
entry: []
on: {reset: {target: a, actions: [{assign: {n: 0}}]}, quit: {target: over, guard: "= context.n > 2"}}
after: {40s: {target: b, actions: [{assign: {log: "= context.log + ['late']"}}]}}
states:
  a:
    entry:
      - {assign: {n: "= context.n + 1"}}
      - {if: "= context.n > 3", then: [{raise: {event: many, data: {n: "= context.n"}}}]}
    after: {5s: b, "= 1000 * context.n": {actions: [{assign: {log: "= context.log + ['tick']"}}]}}
    on: {many: {target: b, actions: [{assign: {log: "= context.log + [event.data.n]"}}]}, go: b}
  b:
    onDone: {target: c, actions: [{assign: {log: "= context.log + ['done b']"}}]}
    on: {back: {target: .two, reenter: true}, skip: {target: .two, reenter: false}}
    states:
      one: {on: {go: two}, after: {3s: two}}
      two:
        onDone: {actions: [{assign: {log: "= context.log + ['done two']"}}]}
        states: {x: {on: {go: y}}, y: {type: final}}
        on: {stop: end}
      end: {type: final}
  c:
    type: parallel
    on: {go: a}
    onDone: {target: a}
    states:
      left: {states: {l1: {on: {step: l2}}, l2: {type: final}}}
      right:
        states:
          r1: {on: {step: {target: r2, guard: {all: [{in: left.l1}, {not: {in: r2}}]}}, turn: keep}}
          r2: {on: {step: {guard: "= In('left.l2')", target: r3}}}
          r3: {type: final}
          keep: {type: history, target: r1}
  over: {type: final, output: {n: "= context.n"}}
"""


@pytest.mark.slow
def test_a_tool_without_our_namespace_sees_the_same_behaviour() -> None:
    """`after`, `onDone`, root transitions and raised data are plain SCXML, exact even if one id is a prefix of
    another.
    """
    document = YAML.read(ALIKE.replace("entry: []\n", ""), source="alike.yaml").document
    assert document is not None
    text = plain(write_scxml(document).text)
    other = read_scxml(text, source="alike.scxml").document
    assert other is not None
    assert "interlock" not in text
    random = Random(7)
    names = ["go", "go", "step", "back", "skip", "stop", "turn", "reset", "quit"]
    for _ in range(40):
        events = [(random.choice(names), random.choice([0, 0, 1000, 3000, 6000])) for _ in range(12)]

        assert ends(document, events) == ends(other, events), events


def test_expressions_are_written_with_the_names_of_scxml() -> None:
    """Where every expression comes back, the datamodel is Python; one that would not changes it for the whole file."""
    guard = expression("context.a > 0 and event.name == 'x' and entity.id != entity.kind")
    fine = chart(State(key="s", transitions=(Transition(origin="always", guard=guard),)))
    own = chart(State(key="s", transitions=(Transition(origin="always", guard=expression("get(context, 'a')")),)))

    assert 'datamodel="python"' in write_scxml(fine).text
    assert "cond=\"a &gt; 0 and _event.name == 'x' and _sessionid != _name\"" in write_scxml(fine).text
    assert 'datamodel="interlock"' in write_scxml(own).text
    assert (fine, own) == (back(fine), back(own))


def test_a_plain_scxml_document_needs_no_namespace_of_ours() -> None:
    """What came from SCXML goes back as SCXML."""
    text = (
        f'<scxml xmlns="{SCXML}" name="k" initial="s"><datamodel><data id="x"/></datamodel>'
        '<state id="s"><transition event="a" cond="x" target="s"/></state></scxml>'
    )
    document = read_scxml(text).document
    assert document is not None

    assert "interlock" not in write_scxml(document).text
    assert () == write_scxml(document).diagnostics


@pytest.mark.parametrize(
    ("guard", "expected"),
    [
        (GuardIn(state="s"), "In('s')"),
        (GuardNot(guard=expression("context.a")), "not (a)"),
        (GuardAll(guards=(expression("context.a"), GuardIn(state="s"))), "(a) and (In('s'))"),
        (GuardAny(guards=(expression("context.a"), expression("context.b"))), "(a) or (b)"),
        (GuardAll(guards=()), "true"),
        (GuardAny(guards=()), "false"),
        (GuardName(name="f", arguments={"x": Expression("context.a")}), "false"),
        (expression("In('inner')"), "In('s.inner')"),
    ],
)
def test_every_guard_has_a_condition_for_others(guard: GuardExpression, expected: str) -> None:
    """One expression of SCXML, with ids instead of names; our own form is in our namespace."""
    inner = State(key="inner", transitions=(Transition(origin="always", guard=guard),))
    document = chart(State(key="s", states=(inner,)))
    text = write_scxml(document).text

    assert f'cond="{expected}"' in text
    assert document == back(document)


def test_values_that_no_expression_can_hold_are_written_as_json() -> None:
    """A long text, a large number, a structure with expressions inside: all come back."""
    deep = {"a": [Expression("context.x"), {"b": "= not one"}], "c": 2**70}
    values = (
        ("a", "x" * 3_000),
        ("b", 2**70),
        ("c", deep),
        ("d", Expression("1")),
        ("e", {"f": Expression("In('s')")}),
    )
    document = chart(State(key="s", entry=((Assign(values=values),),)))
    writing = write_scxml(document)

    assert document == back(document)
    assert "export.value" in [each.code for each in writing.diagnostics]


def test_in_our_own_datamodel_a_field_may_be_called_context() -> None:
    """A location that starts with `context.` is written twice over, so that it means the field."""
    action = Assign(values=(("context.a", Expression("get(context, 'x')")),))
    document = chart(State(key="s", entry=((action,),)))

    assert 'location="context.context.a"' in write_scxml(document).text
    assert document == back(document)


@pytest.mark.parametrize(
    "action",
    [
        Send(event="a", to="self"),
        Send(event="a", to="internal"),
        Send(event="a", to="parent", delay="5m"),
        Send(event="a", to="child", delay=Expression("context.d")),
        Send(event="a", to="order/1", delay="1500ms", id="x"),
        Send(event="a", to="#_scxml_order/1", delay="3s", type="other"),
        Send(event=Expression("context.e"), to=Expression("context.t"), type=Expression("context.k"), data=[1]),
        Foreach(items=["x" * 3_000], item="i", index="n", block=(Script(text="a < 1\n"), Script(text=""))),
        If(branches=((expression("context.a"), (Log(),)), (GuardName(name="f"), ())), otherwise=(Log(label="x"),)),
        Assign(values=(("a", {"b": 1, "c": {"d": [True, 1.0]}}), ("e", {}), ("f", None))),
        Do(name="f", arguments={"a": {"b": Expression("context.x")}}),
        AssignCall(name="f", arguments=[]),
        Emit(type=Expression("context.t"), data={}),
    ],
    ids=lambda action: type(action).__name__,
)
def test_every_action_comes_back(action: Action) -> None:
    document = chart(State(key="s", entry=((action,),)))

    assert document == back(document)


def test_every_invoke_comes_back() -> None:
    inline = chart(State(key="x", type="final"), dialect="scxml")
    invokes = (
        Invoke(src="f", input=[1], done=(Transition(targets=("s",), reenter=True),)),
        Invoke(src="f", input={"a": 1}, id="b", id_location="c", finalize=()),
        Invoke(
            src="k", type="chart", input=Expression("context.a"), error=(Transition(guard=expression("context.a")),)
        ),
        Invoke(src=inline, type="chart", input={}, autoforward=True, id_location="c"),
        Invoke(src=Expression("context.a"), type=Expression("context.b"), finalize=(Log(),)),
        Invoke(type="other", src="x", key=Expression("event.id"), restore="restart", retry=Retry(max=1), timeout="1m"),
    )
    document = chart(State(key="s", invokes=invokes))

    assert document == back(document)


def test_event_names_that_are_prefixes_are_exact_in_other_tools() -> None:
    """`done.state.a` would match `done.state.a.b` too; the original guard is in our namespace."""
    inner = State(key="b", states=(State(key="c", type="final"),))
    done = Transition(origin="onDone", targets=("x",), guard=expression("context.n > 0"))
    document = chart(State(key="a", transitions=(done, replace(done, guard=None)), states=(inner,)), State(key="x"))
    text = write_scxml(document).text

    assert "cond=\"_event.name == 'done.state.a' and (n &gt; 0)\"" in text
    assert 'interlock:guard="null" target="x" interlock:origin="onDone"' in text
    assert document == back(document)


def test_in_the_dialect_of_scxml_reenter_is_written_next_to_the_type() -> None:
    """External is the default there, so our reader would not take it for a word of the author's."""
    document = chart(State(key="s", transitions=(Transition(origin="transitions", reenter=True),)), dialect="scxml")

    assert document == back(document)


def test_a_literal_where_a_text_belongs_is_written_as_an_expression() -> None:
    """An id that is a number is a mistake of the chart; it fails when it runs, there as here."""
    document = chart(State(key="s", entry=((Cancel(id=5), Cancel(id=2**70)),)))

    assert '<cancel sendidexpr="5"/>' in write_scxml(document).text
    assert (Cancel(id=Expression("5")), Cancel(id=Expression(str(2**70)))) == back(document).root.states[0].entry[0]


def test_a_history_without_a_default_gets_the_initial_state_of_its_parent() -> None:
    """SCXML wants one; for us it stays absent."""
    history = State(key="h", type="history")
    one = chart(State(key="p", states=(history, State(key="a"))), dialect="xstate")
    two = chart(
        State(key="p", initial=Initial(targets=("b",)), states=(State(key="a"), State(key="b"), history)),
        dialect="xstate",
    )
    alone = chart(State(key="p", states=(history,)), dialect="xstate")

    assert '<transition target="p.a" interlock:target="[]"/>' in write_scxml(one).text
    assert '<transition target="p.b" interlock:target="[]"/>' in write_scxml(two).text
    assert [one, two, alone] == [back(one), back(two), back(alone)]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (chart(State(key="a"), type="parallel", entry=((Log(),),)), '<parallel id="_root" interlock:root="true">'),
        (chart(State(key="_root"), exit=((Log(),),)), '<state id="_root_" interlock:root="true">'),
        (
            chart(State(key="a"), invokes=(Invoke(src="f"),), id="me"),
            '<state id="me" interlock:root="true" interlock:id="me">',
        ),
        (
            chart(State(key="a"), initial=Initial(targets=("a",), actions=(Log(),))),
            '<state id="_root" interlock:root="true">',
        ),
        (
            chart(
                State(key="a", transitions=(Transition(events=("x",), targets=("#me",)),)), id="me", dialect="xstate"
            ),
            'target="me" interlock:target=\'["#me"]\'',
        ),
        (chart(State(key="a"), id="me"), 'interlock:id="me"'),
    ],
    ids=["parallel", "taken", "invoke", "initial", "target", "id"],
)
def test_what_a_root_of_scxml_cannot_have_is_in_an_outer_state(document: Document, expected: str) -> None:
    assert expected in write_scxml(document).text
    assert document == back(document)


def test_keys_that_are_not_in_the_id_are_written_separately() -> None:
    document = chart(State(key="a", id="first", states=(State(key="b", id="a.b"), State(key="c", id="x.c"))))

    assert 'id="first" interlock:key="a"' in write_scxml(document).text
    assert document == back(document)


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (chart(State(key="a", transitions=(Transition(events=("x",), targets=("nowhere",)),))), "export.target"),
        (chart(State(key="a", states=(State(key="b"),), initial=Initial(targets=("nowhere",)))), "export.target"),
        (chart(State(key="a", id="1 2")), "export.id"),
        (chart(State(key="a", description="\x00")), "export.characters"),
        (chart(State(key="a", entry=((Log(label="\x00"),),)), script="\x01"), "export.characters"),
        (chart(State(key="a", entry=((Emit(type="t"),),))), "export.emit"),
        (chart(State(key="a", transitions=(Transition(roles=("r",)),))), "export.roles"),
        (chart(State(key="a", invokes=(Invoke(src="f", timeout="1m"),))), "export.timeout"),
        (chart(State(key="a", saga=Saga(steps=()))), "export.saga"),
        (chart(State(key="a"), dialect="xstate"), "export.dialect"),
        (chart(State(key="a"), unhandled="defer", dialect="scxml"), "export.unhandled"),
        (chart(State(key="a"), events=()), "export.events"),
        (chart(State(key="a", entry=((Send(event="x", id=Expression("context.a")),),))), "export.id"),
        (chart(State(key="a", entry=((Send(event="x", id="y", id_location="z"),),))), "export.id_location"),
        (chart(State(key="a"), type="parallel", exit=((Log(),),)), "export.root"),
        (chart(State(key="a"), context=(Field(name="f", type="string"),)), "export.types"),
    ],
)
def test_what_others_will_not_see_is_reported(document: Document, expected: str) -> None:
    found = [each.code for each in write_scxml(document).diagnostics]

    assert expected in found
    assert sorted(set(found)) == sorted(found) or expected in ("export.target", "export.characters")


def test_the_same_loss_is_reported_once() -> None:
    document = chart(
        *(State(key=f"s{n}", entry=((Emit(type="t"), Emit(type="u")),)) for n in range(5)), dialect="scxml"
    )

    assert ["export.emit"] == [each.code for each in write_scxml(document).diagnostics]


def test_a_raise_with_data_is_a_send_to_the_internal_queue_for_others() -> None:
    """`raise` has no data in SCXML."""
    document = chart(State(key="s", entry=((Raise(event="x", data={"a": 1}), Raise(event=Expression("context.e"))),)))
    text = write_scxml(document).text

    assert '<send event="x" target="#_internal" interlock:raise="true">' in text
    assert '<send eventexpr="e" target="#_internal" interlock:raise="true"/>' in text
    assert document == back(document)
