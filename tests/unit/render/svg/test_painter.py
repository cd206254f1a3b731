"""SVG: ids, classes, escapes, themes, and nothing that could do harm."""

import re
import xml.etree.ElementTree as ET

import pytest

from interlock.errors import UsageError
from interlock.model.document.document import State, Transition
from interlock.render.drawing import Options, draw_diff_svg, draw_svg
from interlock.render.svg.painter import Look, encoded, escaped, svg
from interlock.render.svg.theme import DARK, LIGHT, THEMES, style, theme_named
from tests.unit.render.charts import expression, flat, hostile, nested, on, parallel_root
from tests.unit.render.pictures import chart_of, frame_of, picture_of


def parsed(text: str) -> ET.Element:
    """The document; no reader of XML refuses it."""
    return ET.fromstring(text)


def classes(text: str, ident: str) -> list[str]:
    """The classes of the element with this id."""
    found = next(each for each in parsed(text).iter() if each.attrib.get("id") == ident)
    return found.attrib["class"].split()


def test_an_id_keeps_letters_digits_and_hyphens() -> None:
    """Every other byte is written as a number, so that no two states share an id and no page breaks."""
    assert "a-1_2eb" == encoded("a-1.b")
    assert "_e7_8a_b6" == encoded("状")
    assert "_5f" == encoded("_")


def test_a_text_of_any_characters_is_legal_xml() -> None:
    assert "&lt;b&gt; &amp; &quot;x&quot; \\x00 \\x7f" == escaped('<b> & "x" \x00 \x7f')
    assert "\\xd800 \\xffff \u2028" == escaped("\ud800 \uffff \u2028")


def test_hostile_texts_do_not_break_out() -> None:
    root = parsed(draw_svg(hostile()).svg)
    tags = {each.tag.split("}")[1] for each in root.iter()}

    assert {"svg", "title", "desc", "style", "rect", "g", "text", "path", "circle", "tspan"} >= tags
    assert not any(name.startswith("on") for each in root.iter() for name in each.attrib)


def test_states_and_transitions_are_found_by_their_ids() -> None:
    text = svg(picture_of(State(key="a", transitions=(on("go", "b"),)), State(key="b")), Look(prefix="p1-"))
    ids = {each.attrib["id"] for each in parsed(text).iter() if "id" in each.attrib}

    assert {"p1-s-a", "p1-s-b", "p1-t-a-0", "p1-title", "p1-desc", "p1-b-a", "p1-b-b", "p1-w-0", "p1-w-1"} == ids
    assert 'data-transitions="p1-t-a-0"' in text


def test_transitions_that_a_label_only_counts_have_an_id_too() -> None:
    many = tuple(on(f"e{number}", "b") for number in range(9))
    text = svg(picture_of(State(key="a", transitions=many), State(key="b")), Look())
    ids = [each.attrib["id"] for each in parsed(text).iter() if each.attrib.get("id", "").startswith("t-")]

    assert sorted(f"t-a-{number}" for number in range(9)) == sorted(ids)
    assert ">+4<" in text


def test_active_states_are_highlighted_with_their_ancestors() -> None:
    """And what was taken or visited; an arrowhead is lit with its line, for both are in one group."""
    options = Options(
        active=frozenset({"live.health.poor"}),
        took=frozenset({("live.health.good", 0), ("live", 2)}),
        visited=frozenset({("setup.address", 0)}),
        classes=(("paused", "stuck"), ("live", "heat-3")),
    )
    text = draw_svg(nested(), options).svg
    groups = [each for each in parsed(text).iter() if "took" in each.attrib.get("class", "").split()]

    assert "on" in classes(text, "s-live_2ehealth_2epoor")
    assert "on" in classes(text, "s-live_2ehealth")
    assert {"on", "heat-3"} <= set(classes(text, "s-live"))
    assert "on" not in classes(text, "s-live_2epower")
    assert "stuck" in classes(text, "s-paused")
    assert any({"line", "head"} <= {each.attrib.get("class") for each in group} for group in groups)
    assert any("path" in each.attrib.get("class", "").split() for each in parsed(text).iter())


def test_a_badge_is_next_to_the_title_of_its_state() -> None:
    """At the right end of the title's line, inside the box; a class of the root is not taken by its dot."""
    picture = picture_of(
        State(key="a", transitions=tuple(on(f"e{number}", "b") for number in range(2))), State(key="b")
    )
    text = svg(picture, Look(states={"": "heat-9"}))
    frame = frame_of(picture, "s/a")
    found = re.search(r'id="b-a" class="badge" transform="translate\(([\d.]+) ([\d.]+)\)"', text)
    assert found is not None
    x, y = float(found[1]), float(found[2])

    assert frame.area.x + frame.title < x < x + 40.0 < frame.area.right
    assert frame.area.y < y < y + 16.0 < frame.area.bottom
    assert "heat-9" not in text.split("</style>")[1]


def test_a_drawing_has_a_text_description() -> None:
    text = draw_svg(flat()).svg
    root = parsed(text)
    described = root.find("{http://www.w3.org/2000/svg}desc")

    assert ("img", "title desc") == (root.attrib["role"], root.attrib["aria-labelledby"])
    assert described is not None
    assert "unpaid" in (described.text or "")
    assert "pay → paid" in (described.text or "")
    assert "tabindex" not in text


def test_in_a_page_states_can_have_the_focus() -> None:
    text = draw_svg(flat(), Options(role="group")).svg

    assert 'role="group"' in text
    assert '<g id="s-unpaid" tabindex="-1" aria-label="unpaid" class="state">' in text


@pytest.mark.parametrize("theme", THEMES)
def test_a_theme_colours_by_its_sheet_alone(theme: str) -> None:
    """`vars` follows the reader, `light` and `dark` write the colours out, `bare` brings none."""
    text = draw_svg(flat(), Options(theme=theme_named(theme))).svg
    sheet = re.search(r"<style>(.*?)</style>", text, re.DOTALL)

    assert (theme == "bare") == (sheet is None)
    assert ("var(--il-" in text) == ("prefers-color-scheme" in text) == (theme == "vars")
    assert "$" not in style(theme_named(theme))


def test_an_unknown_theme_is_refused_with_a_hint() -> None:
    with pytest.raises(UsageError) as near:
        theme_named("drak")
    with pytest.raises(UsageError) as far:
        theme_named("zzz")

    assert "dark" in (near.value.hint or "")
    assert "vars, light, dark, bare" in (far.value.hint or "")


def luminance(colour: str) -> float:
    """The relative luminance of a colour, as WCAG defines it."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("word", ["text", "quiet", "guard", "actions", "added", "removed", "changed"])
@pytest.mark.parametrize("behind", ["bg", "box", "group", "deep"])
def test_texts_can_be_read_on_what_is_behind_them(colours: dict[str, str], word: str, behind: str) -> None:
    """4.5 to 1 at least, in both themes."""
    light, dark = sorted((luminance(colours[word]), luminance(colours[behind])), reverse=True)

    assert (light + 0.05) / (dark + 0.05) >= 4.5


def test_both_themes_have_the_same_colours() -> None:
    assert LIGHT.keys() == DARK.keys()


def test_every_shape_is_painted() -> None:
    """A choice, rings with notes, a bar, dashed lines, shut boxes, marks and captions that stand aside."""
    always = (
        Transition(origin="always", targets=("b",), guard=expression("1 < 2")),
        Transition(origin="always", targets=("c",)),
    )
    ends = (State(key="b", type="final", output="x"), State(key="c", type="final"))
    chosen = draw_svg(chart_of(State(key="q", transitions=always), *ends)).svg
    shut = svg(picture_of(State(key="only")), Look()) + draw_svg(nested(), Options(collapse=1)).svg
    group = State(
        key="g",
        states=(State(key="x", transitions=(on("n", "end"),)), State(key="end", type="final", output="x")),
        transitions=tuple(on(f"e{number}", f"z{number}") for number in range(4)),
    )
    later = [State(key=f"z{number}", transitions=(on("back", "g.end"),)) for number in range(4)]
    aside = draw_svg(chart_of(group, *later)).svg

    assert "<polygon" in chosen
    assert "states inside" in shut
    assert 'class="bar"' in draw_svg(nested()).svg
    assert 'class="wire dashed"' in draw_svg(nested()).svg
    assert 'class="divider"' in draw_svg(parallel_root()).svg
    assert aside.count("ring") >= 1


def test_marks_are_classes_and_signs() -> None:
    old = chart_of(
        State(key="a", transitions=(on("go", "b"), on("note"))), State(key="b"), State(key="end", type="final")
    )
    new = chart_of(State(key="a", transitions=(on("went", "b"),)), State(key="c"), State(key="b"), State(key="end"))
    text = draw_diff_svg(old, new).svg

    assert re.search(r'class="state added"', text)
    assert "+ went" in text
    assert "- go" in text
    assert 'class="note removed"' in text


def test_numbers_have_one_decimal_and_bytes_are_the_same_every_time() -> None:
    text = draw_svg(nested()).svg

    assert text == draw_svg(nested()).svg
    assert not re.search(r'[ "]-?\d+\.\d\d+[ "]', re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL))
