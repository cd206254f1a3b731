"""SCXML to documents: states and ids, transitions, context, invokes, and what our namespace brings back."""

from __future__ import annotations

import pytest

from interlock.definition.scxml.format import FORMAT, read_scxml
from interlock.model.document.actions import Assign, Expression, GuardExpression, GuardName, If, Log
from interlock.model.document.document import (
    Document,
    EventType,
    Expect,
    Initial,
    Invoke,
    Retry,
    Saga,
    SagaCall,
    SagaStep,
    Sensitive,
    State,
    Transition,
)
from interlock.model.document.field import UNSET, Field
from tests.unit.definition.scxml_reading import read, scxml, state


def keys(found: State) -> list[tuple[str, str | None]]:
    """The key and id of every state below one, in document order."""
    return [pair for each in found.states for pair in [(each.key, each.id), *keys(each)]]


def test_a_small_file_is_a_document() -> None:
    """States, transitions and content arrive in document order, in SCXML's dialect."""
    document = read(
        '<state id="s0"><onentry><log/></onentry><onentry/><onexit/><transition event="a b.*" target="f"/></state>'
        '<final id="f"><donedata><param name="x" expr="1"/></donedata></final>',
        'name="order" initial="s0"',
    )

    assert (
        Document(
            kind="order",
            dialect="scxml",
            root=State(
                initial=Initial(targets=("#s0",)),
                states=(
                    State(
                        key="s0",
                        entry=((Log(),), ()),
                        exit=((),),
                        transitions=(Transition(origin="transitions", events=("a", "b.*"), targets=("#f",)),),
                    ),
                    State(key="f", type="final", output={"x": 1}),
                ),
            ),
        )
        == document
    )


@pytest.mark.parametrize(
    ("source", "attributes", "expected"),
    [
        ("a/b/light.scxml", "", "light"),
        ("light.v2.scxml", "", "light"),
        ("<definition>", "", "definition"),
        ("123", "", "123"),
        ("x", 'name="order"', "order"),
        ("x", 'name=" "', "x"),
        ("x", 'name="my chart!"', "my_chart_"),
        ("x", 'name="..."', "chart"),
    ],
)
def test_a_chart_without_a_name_is_called_like_its_file(source: str, attributes: str, expected: str) -> None:
    reading = read_scxml(scxml('<state id="s"/>', attributes), source=source)

    assert reading.document is not None
    assert expected == reading.document.kind
    assert {each.code for each in reading.diagnostics} <= {"scxml.name"}


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ('<state id="a"><state id="b"/></state>', [("a", None), ("b", "b")]),
        ('<state id="a"><state id="a.b"/></state>', [("a", None), ("b", None)]),
        ('<state id="a.b"/><state id="a:b"/>', [("a_b", "a.b"), ("a_b_2", "a:b")]),
        ("<state/><state/><final/>", [("state_1", None), ("state_2", None), ("final_1", None)]),
        ('<state/><state id="state_1"/>', [("state_2", None), ("state_1", None)]),
        ('<state id="a"><state/></state><state id="a.state_1"/>',
         [("a", None), ("state_2", None), ("a_state_1", "a.state_1")]),
        ('<state id="x" interlock:key="y"/>', [("y", "x")]),
        ('<state id="x" interlock:id="x"/>', [("x", "x")]),
    ],
)  # fmt: skip
def test_every_state_keeps_its_id_and_gets_a_key(inside: str, expected: list[tuple[str, str | None]]) -> None:
    """An id that equals the path of keys is not repeated; a state without one gets a path that is not an id."""
    assert expected == keys(read(inside).root)


def test_initial_is_an_attribute_or_an_element_with_content() -> None:
    document = read(
        '<state id="a" initial="b c"><parallel id="p"><state id="b"/><state id="c"/></parallel></state>'
        '<state id="d"><initial><transition target="e"><log/></transition></initial><state id="e"/></state>'
    )

    assert Initial(targets=("#b", "#c")) == document.root.states[0].initial
    assert Initial(targets=("#e",), actions=(Log(),)) == document.root.states[1].initial
    assert document.root.initial is None


def test_history_has_a_kind_and_a_default() -> None:
    document = read(
        '<state id="a"><history id="h"><transition target="b"><log/></transition></history>'
        '<history id="d" type="deep"><transition target="b"/></history><state id="b"/></state>'
    )
    h, d, _ = document.root.states[0].states

    assert ("history", "shallow", ("#b",), (Log(),)) == (h.type, h.history, h.targets, h.actions)
    assert ("deep", ()) == (d.history, d.actions)


def test_a_transition_says_whether_it_is_internal() -> None:
    """External is SCXML's default, so saying it says nothing; files of ours say `reenter` by it."""
    text = (
        '<state id="s"><transition target="s"/><transition type="internal" target="s"/><transition type="external"/>'
        "</state>"
    )
    plain, ours = read(text), read(text, 'interlock:dialect="interlock"')

    assert [None, False, None] == [each.reenter for each in plain.root.states[0].transitions]
    assert [None, False, True] == [each.reenter for each in ours.root.states[0].transitions]
    assert ["transitions"] * 3 == [each.origin for each in plain.root.states[0].transitions]


def test_marks_of_the_writer_bring_the_original_back() -> None:
    """`after`, `onDone`, roles and the rest are SCXML for others and themselves for us."""
    found = read(
        '<state id="s"><onentry interlock:generated="after"><send event="after.5m.s" delay="300s"/></onentry>'
        '<transition event="after.5m.s" target="s" interlock:origin="after" interlock:delay=\'"5m"\''
        ' interlock:restore="restart" interlock:reenter="true"/>'
        '<transition event="done.state.s" interlock:origin="onDone" interlock:roles=\'["a"]\' interlock:description="d"'
        ' interlock:meta=\'{"x": "= 1"}\' interlock:target=\'["#s"]\' target="s"/>'
        '<transition event="go" target="s"/><transition cond="x"/></state>',
        'interlock:dialect="interlock"',
    )  # fmt: skip

    assert () == found.root.states[0].entry
    assert (
        Transition(origin="after", targets=("s",), delay="5m", restore="restart", reenter=True),
        Transition(origin="onDone", targets=("#s",), roles=("a",), description="d", meta={"x": Expression("1")}),
        Transition(events=("go",), targets=("s",)),
        Transition(origin="always", guard=GuardExpression(expression=Expression("context.x"))),
    ) == found.root.states[0].transitions


def test_targets_of_our_own_files_are_written_short() -> None:
    """By key where that is enough, below the source with a dot, by parent and key, else by id."""
    document = read(
        '<state id="a"><transition event="1" target="a.b"/><transition event="2" target="c.d"/>'
        '<transition event="3" target="deep"/><transition event="4" target="gone"/><state id="a.b"/></state>'
        '<state id="c" initial="c.d"><state id="c.d"/>'
        '<state id="c.e"><state id="c.e.f"><state id="deep" interlock:key="g"/></state></state></state>',
        'interlock:dialect="interlock" initial="a"',
    )
    first, second = document.root.states

    assert [(".b",), ("c.d",), ("#deep",), ("#gone",)] == [each.targets for each in first.transitions]
    assert Initial(targets=("d",)) == second.initial
    assert Initial(targets=("a",)) == document.root.initial


def test_the_context_comes_from_data() -> None:
    """Values by `expr`, inline or through the loader; late binding and fields of states are kept."""
    document = read(
        '<datamodel><data id="a" expr="1"/><data id="b" expr="a + 1"/><data id="c">[1]</data><data id="d"/>'
        '<data id="e" src="file:e.txt"/>'
        '<data id="f" expr="0" interlock:field=\'{"type": "integer", "min": 1, "max": 9}\'/></datamodel>'
        '<state id="s"><datamodel><data id="g"/></datamodel></state>',
        'binding="late"',
        lambda _: " two\n words ",
    )

    assert (
        Field(name="a", default=1),
        Field(name="b", default=Expression("context.a + 1")),
        Field(name="c", default=[1]),
        Field(name="d"),
        Field(name="e", default="two words"),
        Field(name="f", type="integer", default=0, min=1, max=9),
    ) == document.root.context
    assert (Field(name="g", default=UNSET),) == document.root.states[0].context
    assert "late" == document.binding


def test_an_invoke_starts_a_chart_unless_it_says_otherwise() -> None:
    """Inline charts and those the loader gives are documents; names of ours and computed ones stay."""
    other = '<scxml xmlns="http://www.w3.org/2005/07/scxml" name="other"><final id="f"/></scxml>'
    document = read(
        '<state id="s">'
        '<invoke id="one" namelist="Var1"><param name="b" expr="2"/><content><scxml><final id="f"/></scxml></content>'
        "</invoke>"
        '<invoke type="http://www.w3.org/TR/scxml/" src="file:other.scxml" idlocation="Var1" autoforward="true"/>'
        '<invoke type="scxml" src="interlock:order"/>'
        '<invoke srcexpr="Var1" typeexpr="Var1"/>'
        '<invoke><content expr="Var1"/></invoke>'
        '<invoke type="urn:interlock:scxml:1#handler" src="net.call"><content expr="1"/></invoke>'
        '<invoke type="other" src="x"/>'
        "</state>",
        'name="parent"',
        lambda _: other,
    )  # fmt: skip
    child = Document(kind="parent.one", dialect="scxml", root=State(states=(State(key="f", type="final"),)))
    var = Expression("context.Var1")

    assert (
        Invoke(id="one", src=child, type="chart", input={"Var1": var, "b": 2}),
        Invoke(
            src=Document(kind="other", dialect="scxml", root=child.root),
            type="chart",
            id_location="Var1",
            autoforward=True,
        ),
        Invoke(src="order", type="chart"),
        Invoke(src=var, type=var),
        Invoke(src=var, type="chart"),
        Invoke(src="net.call", input=1),
        Invoke(src="x", type="other"),
    ) == document.root.states[0].invokes


def test_an_empty_finalize_takes_the_locations_from_the_answer() -> None:
    """SCXML 6.5: each location that was passed is updated, if the answer has it. Absent is not empty."""
    found = state(
        '<invoke namelist="a"><param name="p" location="b.c"/><param name="q" expr="1"/><finalize/></invoke>'
        '<invoke namelist="a"><finalize><log/></finalize></invoke><invoke><finalize/></invoke>'
        '<invoke namelist="a"/>'.replace("<invoke", '<invoke src="interlock:x"')
    )

    def taken(name: str, path: str) -> If:
        guard = GuardExpression(expression=Expression(f"event.data != null and has(event.data, '{name}')"))
        return If(branches=((guard, (Assign(values=((path, Expression(f"get(event.data, '{name}')")),)),)),))

    assert [(taken("a", "a"), taken("p", "b.c")), (Log(),), (), None] == [each.finalize for each in found.invokes]


def test_the_extension_carries_what_scxml_cannot() -> None:
    """Everything a state, an invoke or the whole document may say beyond SCXML."""
    document = read(
        '<interlock:events>[{"name": "a", "payload": [{"name": "x", "type": "array", "default": "= 1", "items":'
        ' {"name": "", "min": 0}}, {"name": "o", "fields": [{"name": "p"}]}], "permit": "= true",'
        ' "dedupe": "= event.id"}]</interlock:events>'
        '<state id="s" interlock:expect=\'{"within": "1h"}\' interlock:sensitive=\'{"fields": ["a"], "hidden": true}\''
        ' interlock:monotonic="true" interlock:allow=\'{"x": "y"}\' interlock:tags=\'["t"]\' interlock:meta="[1]"'
        ' interlock:description="d"><state id="i" interlock:monotonic=\'["i"]\'/>'
        '<transition event="done.invoke.s.0" target="s" interlock:result="done 0"/>'
        '<transition event="error.invoke.s.0" target="s" interlock:result="error 0" interlock:origin="onDone"/>'
        '<invoke id="s.0" type="urn:interlock:scxml:1#handler" src="f" interlock:auto="true"'
        ' interlock:retry=\'{"max": 2, "on": ["a"]}\' interlock:timeout="1m" interlock:idempotency=\'"= 1"\''
        ' interlock:restore="fail"'
        " interlock:input='[]'/></state>",
        'name="k" interlock:revision="1" interlock:compatible="&gt;1" interlock:upgrade="pinned"'
        ' interlock:unhandled="defer"'
        ' interlock:errors="raise"'
        ' interlock:properties=\'{"a": 1}\' interlock:renamed=\'{"a": "b"}\' interlock:id="root"',
    )  # fmt: skip
    field = Field(name="x", type="array", default=Expression("1"), items=Field(name="", min=0))
    other = Field(name="o", fields=(Field(name="p"),))

    assert (
        Document(
            kind="k",
            dialect="scxml",
            revision="1",
            compatible=">1",
            upgrade="pinned",
            unhandled="defer",
            errors="raise",
            properties={"a": 1},
            renamed=(("a", "b"),),
            events=(
                EventType(name="a", payload=(field, other), permit=Expression("true"), dedupe=Expression("event.id")),
            ),
            root=State(
                id="root",
                states=(
                    State(
                        key="s",
                        expect=Expect(within="1h"),
                        sensitive=Sensitive(fields=("a",), hidden=True),
                        monotonic=True,
                        allow=(("x", "y"),),
                        tags=("t",),
                        meta=[1],
                        description="d",
                        states=(State(key="i", id="i", monotonic=("i",)),),
                        invokes=(
                            Invoke(
                                src="f",
                                input=[],
                                done=(Transition(targets=("#s",)),),
                                error=(Transition(origin="onDone", targets=("#s",)),),
                                retry=Retry(max=2, on=("a",)),
                                timeout="1m",
                                key=Expression("1"),
                                restore="fail",
                            ),
                        ),
                    ),
                ),
            ),
        )
        == document
    )


def test_a_saga_is_read_from_our_namespace() -> None:
    found = state(
        '<interlock:saga compensation="none">'
        '<interlock:step id="a" cond="x" timeout="1m" interlock:retry=\'{"max": 1}\'>'
        '<interlock:call src="f" output="x" interlock:idempotency=\'"k"\'><param name="p" expr="1"/></interlock:call>'
        '<interlock:compensate src="g"/></interlock:step>'
        '<interlock:step id="b" interlock:guard=\'"fine"\'><interlock:call src="h"/></interlock:step>'
        '<interlock:done><transition target="s"/></interlock:done>'
        '<interlock:compensated><transition target="s" cond="x"/></interlock:compensated>'
        "<interlock:error><transition/></interlock:error></interlock:saga>"
    )
    x = GuardExpression(expression=Expression("context.x"))

    assert (
        Saga(
            compensation="none",
            steps=(
                SagaStep(
                    id="a",
                    guard=x,
                    timeout="1m",
                    retry=Retry(max=1),
                    do=SagaCall(src="f", output="x", input={"p": 1}, key="k"),
                    compensate=SagaCall(src="g"),
                ),
                SagaStep(id="b", guard=GuardName(name="fine"), do=SagaCall(src="h")),
            ),
            done=(Transition(targets=("#s",)),),
            compensated=(Transition(targets=("#s",), guard=x),),
            error=(Transition(),),
        )
        == found.saga
    )


def test_a_synthetic_outer_state_is_taken_away_again() -> None:
    """What the writer put into it belongs to the root; finals go back to their place among the others."""
    document = read(
        '<state id="_root" initial="a" interlock:root="true" interlock:order=\'["a","f","b"]\'>'
        '<transition event="x" target="b" type="internal" interlock:reenter="null"/>'
        '<state id="a"/><state id="b"/></state>'
        '<final id="f"/>',
        'initial="_root" interlock:dialect="interlock" interlock:tags=\'["t"]\'',
    )

    assert ["a", "f", "b"] == [each.key for each in document.root.states]
    assert (Transition(events=("x",), targets=("b",)),) == document.root.transitions
    assert Initial(targets=("a",)) == document.root.initial
    assert ("t",) == document.root.tags


def test_a_parallel_root_comes_back() -> None:
    """SCXML's root is never parallel, so ours is one level down."""
    document = read('<parallel id="_root" interlock:root="true"><state id="a"/><state id="b"/></parallel>')

    assert ("parallel", ["a", "b"]) == (document.root.type, [each.key for each in document.root.states])


def test_expressions_carry_the_place_of_their_text() -> None:
    document = read('<state id="s">\n <transition cond="a + b"/></state>')
    guard = document.root.states[0].transitions[0].guard

    assert isinstance(guard, GuardExpression)
    assert (2, 20) == (guard.expression.location.line, guard.expression.location.column)


def test_the_format_knows_its_name_and_suffix() -> None:
    assert ("scxml", (".scxml", ".xml")) == (FORMAT.name, FORMAT.suffixes)
