"""The smcat language as text: what is accepted, what it means, and every problem with its position."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.definition.smcat.parse import Body, TextSpan, parse_smcat
from interlock.definition.smcat.read import read_smcat
from interlock.definition.source.node import SourceLines
from interlock.model.diagnostics import Diagnostics
from interlock.model.limits import DEFINITION_BYTES_MAX, DEPTH_MAX, STATES_MAX, TRANSITIONS_MAX


def parse(text: str) -> tuple[Body | None, Diagnostics]:
    """The syntax of a text and what was found."""
    diagnostics = Diagnostics()
    return parse_smcat(text, SourceLines(text, "t.smcat"), diagnostics), diagnostics


def accepted(text: str) -> Body:
    """The syntax of a text in which nothing is found."""
    body, diagnostics = parse(text)
    assert [] == diagnostics.items
    assert body is not None
    return body


def problems(text: str) -> list[str]:
    """What is found in a text, as `line:column code`."""
    _, diagnostics = parse(text)
    return [f"{each.location.line}:{each.location.column} {each.code}" for each in diagnostics.items]


@pytest.mark.parametrize("arrow", ["->", "=>", "=>>", ">>", "--", "=="])
def test_every_forward_arrow_leads_to_the_right(arrow: str) -> None:
    (found,) = accepted(f"a {arrow} b;").arrows

    assert ("a", "b") == (found.source, found.target)


@pytest.mark.parametrize("arrow", ["<-", "<=", "<<=", "<<", "<:"])
def test_every_backward_arrow_is_turned_round(arrow: str) -> None:
    """`a <- b` is `b -> a`."""
    (found,) = accepted(f"a{arrow}b;").arrows

    assert ("b", "a") == (found.source, found.target)


def test_a_colon_arrow_is_one_only_behind_other_statements() -> None:
    """Before all other statements it starts the activities of a state, as in state-machine-cat."""
    first = accepted("a :> b;")
    later = accepted("a; a :> b;")

    assert (["a"], []) == ([each.name for each in first.declarations], first.arrows)
    assert 1 == len(later.arrows)


def test_names_may_be_quoted() -> None:
    body = accepted(r'"a; \"b\"" -> "";')

    assert ('a; "b"', "") == (body.arrows[0].source, body.arrows[0].target)


def test_comments_stand_anywhere_between_words() -> None:
    body = accepted("/* a; \n */ a // b ->\n -> /**/ b /* ; */ ; // end")

    assert 1 == len(body.arrows)


def test_notes_belong_to_what_follows() -> None:
    body = accepted("# one\n#two \na;\n# three\na -> b;")

    assert ["one", "two"] == body.declarations[0].notes
    assert ["three"] == body.arrows[0].notes


def test_attributes_are_read() -> None:
    body = accepted(
        'a [Label="x \\"y\\"" COLOR="red" class="b c" active type=parallel type=regular];a->b[width=2.5 type=internal];'
    )

    expected = {"label": 'x "y"', "color": "red", "class": "b c", "active": True, "type": "regular"}
    assert expected == body.declarations[0].attributes
    assert {"width": 2.5, "type": "internal"} == body.arrows[0].attributes


def test_texts_end_at_their_separators() -> None:
    body = accepted('a: entry/ x, b: "c, d; {" {x;}; a -> b: e, f [g]/ h ; a -> b: "i; j";')

    assert [TextSpan("entry/ x", 3), TextSpan("c, d; {", 17)] == [each.activities for each in body.declarations]
    assert ["e, f [g]/ h", "i; j"] == [each.label.text for each in body.arrows if each.label]


def test_a_state_declared_twice_is_the_last_one_in_the_place_of_the_first() -> None:
    body, diagnostics = parse("a: x, b, a: y;")

    assert body is not None
    assert ["y", None] == [each.activities.text if each.activities else None for each in body.declarations]
    assert ["smcat.state_repeated"] == [each.code for each in diagnostics.items]


def test_a_quote_that_is_not_closed_is_text() -> None:
    body, diagnostics = parse('a -> b: "x;')

    assert body is not None
    assert TextSpan('"x', 8) == body.arrows[0].label
    assert ["smcat.quote"] == [each.code for each in diagnostics.items]


PROBLEMS = {
    "a": "1:2 smcat.syntax",
    "a -> b": "1:7 smcat.syntax",
    "a -> ;": "1:6 smcat.syntax",
    "a -> b: {x};": "1:9 smcat.syntax",
    "a; b;": "1:4 smcat.syntax",
    "a; b ~ c;": "1:6 smcat.syntax",
    "a, b -> c;": "1:6 smcat.syntax",
    "a,": "1:3 smcat.syntax",
    "a, }": "1:4 smcat.syntax",
    "= a;": "1:1 smcat.syntax",
    '"a;': "1:1 smcat.syntax",
    "a; # end": "1:9 smcat.syntax",
    "a { b;": "1:7 smcat.syntax",
    "a { };": "1:3 smcat.syntax",
    "a; /* b": "1:4 smcat.syntax",
    "a [tpye=final];": "1:4 smcat.syntax",
    "a [x; b -> c;": "1:4 smcat.syntax",
    "a -> b [x; c -> d;": "1:9 smcat.syntax",
    "a [=];": "1:4 smcat.syntax",
    "a [type final];": "1:9 smcat.syntax",
    "a [type=finale];": "1:9 smcat.syntax",
    "a [type=1];": "1:9 smcat.syntax",
    "a [label=x];": "1:10 smcat.syntax",
    'a [class="x;"];': "1:10 smcat.syntax",
    "a -> b [width=x];": "1:15 smcat.syntax",
    "a -> b [active];": "1:9 smcat.syntax",
}


@pytest.mark.parametrize("text", PROBLEMS)
def test_a_problem_is_reported_at_its_place(text: str) -> None:
    assert PROBLEMS[text] == problems(text)[0]
    assert read_smcat(text, source="t.smcat").document is None


def test_all_problems_are_reported_together() -> None:
    """Reading continues after the next semicolon, inside and outside of braces, and skips what is nested or quoted."""
    text = 'a [x "]" y] { z; }, b {\n = c;\n d -> ; e -> f;\n};\ng -> [h];\ni -> "j;" k {;};\na -> b;\n l -> m'

    assert ["1:4", "2:2", "3:7", "5:6", "6:11", "8:8"] == [each.split(" ")[0] for each in problems(text)]


def test_a_stray_brace_is_reported_and_skipped() -> None:
    assert ["1:4 smcat.syntax"] == problems("a; } a -> b;")


def test_a_text_that_is_not_smcat_gives_a_bounded_number_of_diagnostics() -> None:
    reading = read_smcat(";" * 1_000_000, source="t.smcat")

    assert 101 == len(reading.diagnostics)
    assert "smcat.problems" in {each.code for each in reading.diagnostics}


def test_depth_is_limited() -> None:
    """Hundreds of thousands of braces are refused without recursion."""
    body, diagnostics = parse("a{" * 200_000)

    assert body is None
    assert ["smcat.depth"] == [each.code for each in diagnostics.items]


def test_a_chart_as_deep_as_the_limit_is_read() -> None:
    """The limit counts states, not braces."""
    body, diagnostics = parse("a{" * (DEPTH_MAX - 1) + "b;" + "};" * (DEPTH_MAX - 1))

    assert body is not None
    assert [] == diagnostics.items


def test_the_number_of_states_is_limited() -> None:
    body, diagnostics = parse(",".join(f"s{each}" for each in range(STATES_MAX + 1)) + ";")

    assert body is None
    assert ["smcat.size"] == [each.code for each in diagnostics.items]


def test_the_number_of_transitions_is_limited() -> None:
    body, diagnostics = parse("a->b;" * (TRANSITIONS_MAX + 1))

    assert body is None
    assert ["smcat.size"] == [each.code for each in diagnostics.items]


@pytest.mark.parametrize("text", ["a" * (DEFINITION_BYTES_MAX + 1), b"\xff"])
def test_a_text_too_large_or_not_in_utf_8_is_refused(text: str | bytes) -> None:
    reading = read_smcat(text, source="t.smcat")

    assert reading.document is None
    assert reading.diagnostics[0].code in {"smcat.size", "smcat.encoding"}


@given(st.text(alphabet='ab;,{}[]:#"->=</* \n\\', max_size=60))
def test_no_text_breaks_the_reader(text: str) -> None:
    """Whatever the characters: a document or diagnostics, never an exception, and places lie inside the text."""
    reading = read_smcat(text, source="t.smcat")

    assert reading.document is not None or reading.diagnostics
    assert all(1 <= each.location.line <= text.count("\n") + 1 for each in reading.diagnostics)
