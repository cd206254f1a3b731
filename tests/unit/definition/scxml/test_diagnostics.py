"""What is wrong with an SCXML file: every code, all at once, and never at any price."""

from __future__ import annotations

import pytest

from interlock.definition.scxml.format import read_scxml
from interlock.errors import NotFoundError
from interlock.model.document.actions import Expression, GuardExpression
from interlock.model.limits import STATES_MAX, TRANSITIONS_MAX
from tests.unit.definition.scxml_reading import codes, read, scxml


@pytest.mark.parametrize(
    ("inside", "attributes", "expected"),
    [
        ("<state/>", 'datamodel="xpath"', ["scxml.datamodel"]),
        ("<state/>", 'datamodel="pyton"', ["scxml.datamodel"]),
        ("<state/>", 'binding="never"', ["scxml.value"]),
        ('<state initial="a"/>', "", ["scxml.initial"]),
        ('<state><initial><transition target="a"/></initial></state>', "", ["scxml.initial"]),
        ('<state initial="a"><initial><transition target="a"/></initial><state id="a"/></state>', "",
         ["scxml.exclusive"]),
        ("<state><initial/><state/></state>", "", ["scxml.default"]),
        ('<state><initial><transition event="x" target="a"/></initial><state id="a"/></state>', "", ["scxml.default"]),
        ('<state><history><transition target="a" cond="x"/></history><state id="a"/></state>', "", ["scxml.default"]),
        ("<state><history/></state>", "", ["scxml.default"]),
        ('<state><history type="wide"><transition target="a"/></history><state id="a"/></state>', "", ["scxml.value"]),
        ('<state><transition type="extern"/></state>', "", ["scxml.value"]),
        ('<state><transition event=".* a"/></state>', "", ["warning scxml.event"]),
        ('<state><transition event="#a"/></state>', "", ["warning scxml.event"]),
        ('<state id="a b"/>', "", ["name.invalid"]),
        ('<state id=""/>', "", ["name.invalid"]),
        ('<parallel id="a,b"/>', "", ["name.invalid"]),
        ('<final id="a..b"/>', "", ["name.invalid"]),
        ('<state/><datamodel><data id="a.b"/></datamodel>', "", ["scxml.data"]),
        ('<state/><datamodel><data id="a" src="x"/></datamodel>', "", ["scxml.src"]),
        ('<state/><datamodel><data id="a" interlock:field=\'{"type": 1}\'/></datamodel>', "", ["scxml.extension"]),
        ("<state/><interlock:events>{</interlock:events>", "", ["scxml.extension"]),
        ('<state/><interlock:events>[{"name": 1}, {"name": "a"}]</interlock:events>', "", ["scxml.extension"]),
        ('<state><transition interlock:guard="[1]"/></state>', "", ["scxml.extension"]),
        ('<state><invoke src="x"/></state>', "", ["warning scxml.src"]),
        ("<state><invoke><content>text</content></invoke></state>", "", ["scxml.invoke"]),
        ('<state><invoke src="x"><content expr="a"/></invoke></state>', "", ["scxml.exclusive"]),
        ('<state><invoke src="x" srcexpr="y"/></state>', "", ["scxml.exclusive", "warning scxml.src"]),
        ('<state><interlock:saga><interlock:step id="a"/></interlock:saga></state>', "", ["scxml.required"]),
        ("<state><stat/></state>", "", ["scxml.element"]),
        ("<onentry/>", "", ["scxml.misplaced"]),
    ],
)  # fmt: skip
def test_what_is_wrong_has_a_code(inside: str, attributes: str, expected: list[str]) -> None:
    assert expected == codes(inside, attributes)


def test_a_transition_that_can_take_no_event_is_passed_over() -> None:
    """`.*` is not a descriptor; as an eventless transition it would mean something else (W3C 311)."""
    reading = read_scxml(scxml('<state id="s"><transition event=".*" target="s"/><transition event=".* a"/></state>'))

    assert reading.document is not None
    assert [("a",)] == [each.events for each in reading.document.root.states[0].transitions]


def test_files_of_invokes_can_be_wrong_too() -> None:
    """A file that is missing, is not XML, or is something else is a diagnostic of the whole file."""

    def loader(src: str) -> str:
        if src == "absent":
            raise NotFoundError("no such file")
        return src

    for src, expected in (("absent", "scxml.src"), ("&lt;a", "scxml.syntax"), ("&lt;a/>", "scxml.root")):
        assert [expected] == codes(f'<state><invoke src="{src}"/></state>', loader=loader)


@pytest.mark.parametrize(
    ("inside", "expected"),
    [
        ("<state/>" * (STATES_MAX + 1), "more than 2,000 states; reading stops here"),
        (
            f"<state>{'<transition/>' * (TRANSITIONS_MAX + 1)}</state>",
            "more than 20,000 transitions; reading stops here",
        ),
        ("<stat/>" * 300, "more than 200 diagnostics; reading stops here"),
    ],
    ids=["states", "transitions", "diagnostics"],
)
def test_a_file_that_is_too_large_to_be_a_chart_is_not_read_on(inside: str, expected: str) -> None:
    reading = read_scxml(scxml(inside))

    assert reading.document is None
    assert expected in [each.message for each in reading.diagnostics]


@pytest.mark.parametrize(("depth", "expected"), [(1, "scxml.src"), (50, "scxml.nesting")])
def test_a_file_that_invokes_itself_is_stopped(depth: int, expected: str) -> None:
    text = scxml("<state>" * depth + '<invoke src="me"/>' + "</state>" * depth)
    reading = read_scxml(text, loader=lambda _: text)

    assert expected in [each.code for each in reading.diagnostics]


def test_an_expression_that_is_too_long_is_left_alone() -> None:
    """Translating it could take the square of its length, and it is refused anyway."""
    text = "a" + ".get(1)" * 100_000
    document = read(f'<state id="s"><transition cond="{text}"/></state>')

    assert GuardExpression(expression=Expression(text)) == document.root.states[0].transitions[0].guard


def test_many_states_may_want_the_same_key() -> None:
    ids = [f"{number:011b}".replace("0", "·").replace("1", ":") for number in range(1_500)]
    document = read("".join(f'<state id="{each}"/>' for each in ids))

    assert 1_500 == len({each.key for each in document.root.states})
    assert ids == [each.id for each in document.root.states]


def test_files_without_a_namespace_are_read_as_scxml() -> None:
    """Some published files forget it (W3C 330): one warning, and they work."""
    reading = read_scxml('<scxml><state id="s"/></scxml>')

    assert reading.document is not None
    assert ["warning"] == [each.severity for each in reading.diagnostics]


@pytest.mark.parametrize("text", ["<state/>", "<scxml", '<scxml xmlns="other"/>'])
def test_what_is_not_scxml_gives_no_document(text: str) -> None:
    reading = read_scxml(text)

    assert reading.document is None
    assert 1 == len(reading.diagnostics)


def test_diagnostics_carry_places_in_order() -> None:
    reading = read_scxml(scxml('\n<state id="s">\n  <transition type="x"/>\n</state>\n<stat/>'), source="a.scxml")

    assert ["a.scxml:3:21", "a.scxml:5:1"] == [str(each.place) for each in reading.diagnostics]
