"""Executable content of SCXML: every action, every value, and what is wrong with one."""

from __future__ import annotations

import pytest

from interlock.errors import NotFoundError
from interlock.model.document.actions import (
    Action,
    Assign,
    AssignCall,
    Cancel,
    Do,
    Emit,
    Expression,
    Foreach,
    GuardExpression,
    GuardName,
    If,
    Log,
    Raise,
    Script,
    Send,
)
from interlock.model.event import SCXML_PROCESSOR
from tests.unit.definition.scxml_reading import block, codes, read, state

VAR = Expression("context.Var1")


def inside(text: str) -> list[str]:
    """The codes of diagnostics about some actions."""
    return codes(f'<state id="s"><onentry>{text}</onentry></state>')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('<raise event="a.b"/>', Raise(event="a.b")),
        ('<log label="x" expr="Var1"/>', Log(label="x", value=VAR)),
        ("<log/>", Log()),
        ('<cancel sendid="x"/>', Cancel(id="x")),
        ('<cancel sendidexpr="Var1"/>', Cancel(id=VAR)),
        ("<script>a = 1</script>", Script(text="a = 1")),
        ('<assign location="Var1" expr="Var1 + 1"/>', Assign(values=(("Var1", Expression("context.Var1 + 1")),))),
        ('<assign location="a[\'b\']" expr="1"/>', Assign(values=(("a.b", 1),))),
        ('<assign location="a"> [1, {"b": null}] </assign>', Assign(values=(("a", [1, {"b": None}]),))),
        ('<assign location="a">two\n  words</assign>', Assign(values=(("a", "two words"),))),
        ('<assign location="a"/>', Assign(values=(("a", None),))),
        (
            '<foreach array="Var1" item="i" index=" n "><log/></foreach>',
            Foreach(items=VAR, item="i", index="n", block=(Log(),)),
        ),
        ('<foreach array="[1]" item="i"/>', Foreach(items=[1], item="i", block=())),
        ('<interlock:do name="f"><param name="a" expr="1"/></interlock:do>', Do(name="f", arguments={"a": 1})),
        ('<interlock:assign name="f"/>', AssignCall(name="f")),
        ('<interlock:emit type="t"><content expr="Var1"/></interlock:emit>', Emit(type="t", data=VAR)),
        ('<interlock:emit typeexpr="Var1"/>', Emit(type=VAR)),
    ],
)
def test_an_element_is_an_action(text: str, expected: Action) -> None:
    """Each element of SCXML, and each of ours, has one action that means it."""
    assert (expected,) == block(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('event="a"', Send(event="a")),
        ('eventexpr="Var1" targetexpr="Var1" typeexpr="Var1"', Send(event=VAR, to=VAR, type=VAR)),
        ('event="a" target="#_internal"', Send(event="a", to="internal")),
        ('event="a" target="#_parent" id="x"', Send(event="a", to="parent", id="x")),
        ('event="a" target="#_child" idlocation="Var1"', Send(event="a", to="#_child", id_location="Var1")),
        ('event="a" target="order/1"', Send(event="a", to="order/1")),
        (f'event="a" type="{SCXML_PROCESSOR}"', Send(event="a")),
        ('event="a" type="scxml"', Send(event="a")),
        ('event="a" type="http"', Send(event="a", type="http")),
        ('event="a" delay="1.5s"', Send(event="a", delay="1s500ms")),
        ('event="a" delay=".5s"', Send(event="a", delay="500ms")),
        ('event="a" delay="3s"', Send(event="a", delay="3s")),
        ('event="a" delay="3s" interlock:restore="restart"', Send(event="a", delay="3s", restore="restart")),
        ('event="a" delayexpr="\'1.5s\'"', Send(event="a", delay="1s500ms")),
        ('event="a" delayexpr="\'2s\'"', Send(event="a", delay=Expression("'2s'"))),
        ('event="a" delayexpr="\'soon\'"', Send(event="a", delay=Expression("'soon'"))),
        ('event="a" delayexpr="Var1"', Send(event="a", delay=VAR)),
        ('event="a" namelist="Var1 x"', Send(event="a", data={"Var1": VAR, "x": Expression("context.x")})),
        ('event="a" interlock:to="self" interlock:delay="2m" interlock:id=\'"= context.x"\'',
         Send(event="a", to="self", delay="2m", id=Expression("context.x"))),
        ('event="a" id="x" interlock:idlocation="y"', Send(event="a", id="x", id_location="y")),
        ('event="a" target="#_internal" interlock:raise="true"', Raise(event="a")),
    ],
)  # fmt: skip
def test_send_has_many_forms(text: str, expected: Action) -> None:
    """Every attribute of `send`, literal or computed, and what our writer adds."""
    assert (expected,) == block(f"<send {text}/>")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ('<param name="a" expr="1"/><param name="b" location="Var1"/><param name="c"/>', {"a": 1, "b": VAR, "c": None}),
        ("<content>123</content>", 123),
        ("<content>  a  b </content>", "a b"),
        ("<content/>", None),
        ('<content expr="Var1"/>', VAR),
        (
            '<content interlock:value=\'{"a": ["= context.x", "\\\\=y", "\\\\z"]}\'/>',
            {"a": [Expression("context.x"), "=y", "\\z"]},
        ),
        (f"<content>{'9' * 90}</content>", "9" * 90),
        (f"<content>{'[' * 5000}</content>", "[" * 5000),
    ],
    ids=["none", "params", "json", "text", "empty", "expression", "extension", "digits", "depth"],
)
def test_a_payload_is_a_mapping_or_one_value(text: str, expected: object) -> None:
    """Parameters make a mapping; content is JSON if it parses as such within the limits, else its text (S5)."""
    assert (Send(event="a", data=expected),) == block(f'<send event="a">{text}</send>')


def test_inline_xml_is_its_text_with_the_namespaces_in_scope() -> None:
    """What can be invoked later must be a complete document (W3C 530)."""
    (action,) = block('<assign location="a"> <scxml><final/></scxml> </assign>')

    assert isinstance(action, Assign)
    ((_, value),) = action.values
    assert value.startswith('<scxml xmlns="http://www.w3.org/2005/07/scxml"')
    assert value.endswith("><final/></scxml>")


def test_if_is_cut_at_elseif_and_else() -> None:
    """`elseif` and `else` are among the actions; the actions between two of them are one branch."""
    (action,) = block('<if cond="a"><log/><elseif cond="b"/><raise event="x"/><log/><else/><log label="z"/></if>')

    assert (
        If(
            branches=(
                (GuardExpression(expression=Expression("context.a")), (Log(),)),
                (GuardExpression(expression=Expression("context.b")), (Raise(event="x"), Log())),
            ),
            otherwise=(Log(label="z"),),
        )
        == action
    )


def test_an_empty_condition_is_not_a_guard_on_a_transition_and_a_mistake_in_a_branch() -> None:
    """W3C 233 has an empty `cond`; a branch without a condition can only fail when it is asked."""
    (action,) = block('<if cond=" "><log/></if>')
    (transition,) = state('<transition event="a" cond="" target="s"/>').transitions

    assert If(branches=((GuardExpression(expression=Expression("")), (Log(),)),)) == action
    assert transition.guard is None


def test_assigns_that_were_one_action_are_one_again() -> None:
    """The writer takes an assign of several fields apart; a stray mark changes nothing."""
    text = '<assign location="a" expr="1"/><assign location="b" expr="2" interlock:joined="true"/>'

    assert (Assign(values=(("a", 1), ("b", 2))),) == block(text)
    assert (Log(), Assign(values=(("b", 2),))) == block(f"<log/>{text[text.index('<assign', 2) :]}")


def test_a_guard_may_be_a_registered_function() -> None:
    """Our namespace says what `cond` cannot."""
    (transition,) = state('<transition cond="false" interlock:guard=\'"is_fine"\' target="s"/>').transitions

    assert GuardName(name="is_fine") == transition.guard


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<raise/>", ["scxml.required"]),
        ('<assign expr="1"/>', ["warning scxml.assign"]),
        ("<send/>", ["warning scxml.send"]),
        ('<send event="a" target="baz"/>', ["warning scxml.target"]),
        ('<send event="a" delay="soon"/>', ["scxml.delay"]),
        ('<send event="a" eventexpr="b"/>', ["scxml.exclusive"]),
        ('<if cond="a"><else/><elseif cond="b"/></if>', ["scxml.else"]),
        ('<script src="x.js"/>', ["scxml.src"]),
        ('<log interlock:value="{"/>', ["scxml.extension"]),
        ('<param name="a"/>', ["scxml.misplaced"]),
        ("<print/>", ["scxml.element"]),
        ("<log>text</log>", ["scxml.text"]),
        ('<log lable="x"/>', ["warning scxml.attribute"]),
        ('<x:log xmlns:x="other"/>', ["info scxml.foreign"]),
        ("<raise/><if><log/></if><foreach/>", ["scxml.required", "scxml.required", "scxml.required", "scxml.required"]),
    ],
)
def test_what_is_wrong_is_reported_together(text: str, expected: list[str]) -> None:
    """Structure is an error; what SCXML leaves to run time is a warning."""
    assert expected == inside(text)


def test_a_target_that_scxml_does_not_know_is_marked() -> None:
    """Sending to it must be `error.execution`, not a search for an invoke of that name (W3C 194)."""
    action = read_unchecked('<send event="a" target="baz"/>')

    assert Send(event="a", to="!baz") == action


def read_unchecked(text: str) -> Action:
    """The one action of a file that has diagnostics."""
    from interlock.definition.scxml.format import read_scxml
    from tests.unit.definition.scxml_reading import scxml

    document = read_scxml(scxml(f'<state id="s"><onentry>{text}</onentry></state>')).document
    assert document is not None
    return document.root.states[0].entry[0][0]


def test_texts_of_others_come_through_the_resolver_only() -> None:
    """A reader opens nothing; what the loader cannot give is a diagnostic, not an exception."""

    def loader(src: str) -> str:
        if src == "file:a.js":
            return "a = 1"
        raise NotFoundError(f"no {src}")

    document = read('<script src="file:a.js"/><state id="s"/>', loader=loader)

    assert "a = 1" == document.script
    assert ["scxml.src"] == codes('<script src="file:b.js"/><state id="s"/>', loader=loader)
