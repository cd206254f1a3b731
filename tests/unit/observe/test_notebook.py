"""What notebooks show: an entity lit in its chart, a kind by its population; in words, and as HTML that stays text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import interlock
from interlock.errors import NotFoundError, UsageError
from interlock.render.notebook import FIELDS_MAX, TEXT_MAX, EntityView, KindView
from interlock.testing.clock import VirtualClock

PROBE = "\"><img src=x onerror=alert(1)><script>alert(2)</script><b data-xss=1>'"
BEGIN_MS = 1_700_000_000_000

NOTE = """
interlock: 1
kind: note
revision: 1.0.0
description: '<script>alert(3)</script>'
context: {text: {type: string, nullable: true}, more: {type: object, default: {}}}
events: {written: {payload: {text: {type: string, required: true}}}, closed: {}}
initial: open
states:
  open:
    description: '<img src=x onerror=alert(4)>'
    expect: {within: forever}
    on:
      written: {actions: [{assign: {text: "= event.data.text"}}]}
      closed: {target: shut, description: '<b data-xss=1>'}
  shut: {type: final}
"""

ALLOWED = {"div", "b", "p", "table", "thead", "tbody", "tr", "td", "th"}
SVG = {"svg", "style", "g", "path", "rect", "text", "tspan", "title", "desc", "circle", "ellipse", "line", "polygon"}
SVG |= {"polyline", "defs", "marker", "use", "clippath", "metadata"}


class Tags(HTMLParser):
    """Notes every element and attribute of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        """Note what is read."""
        self.text += data


def parsed(html: str) -> Tags:
    """Gives what a browser would see."""
    tags = Tags()
    tags.feed(html)
    tags.close()
    return tags


async def shown(*names: str, url: str = "memory:", entries: int = 10) -> list[Any]:
    """Gives what is shown of a note that hostile people wrote, or of all."""
    clock = VirtualClock(BEGIN_MS)
    chart = interlock.loads(NOTE)
    writer = {"id": PROBE, "reason": PROBE}
    async with interlock.open(url, charts=[chart], clock=clock, work=False) as notes:
        await notes.create(f"note/{PROBE}", {"text": PROBE, "more": {PROBE: PROBE}}, principal=writer)
        await notes.send(f"note/{PROBE}", "written", {"text": PROBE}, principal=writer)
        await notes.create("note/2")
        await notes.send("note/2", "closed")
        return [await interlock.show(notes, each, entries=entries) for each in names]


async def test_an_entity_is_shown_with_active_states_context_and_last_entries() -> None:
    (found,) = await shown("note/2")
    html = found._repr_html_()

    assert isinstance(found, EntityView)
    assert re.search(r'<g id="il\d+-s-shut" class="[^"]*\bon\b', html)
    assert not re.search(r'<g id="il\d+-s-open" class="[^"]*\bon\b', html)
    assert [
        "note/2  ■ shut  version 2  revision 1.0.0",
        "  text = null",
        "  more = {}",
        "  1  2023-11-14 22:13:20  create   → open    applied",
        "  2  2023-11-14 22:13:20  closed  open → shut    applied",
    ] == [re.sub(r" b1\.\w{20}", "", each) for each in found.text.splitlines()]
    assert {"text/html", "text/plain"} == set(found._repr_mimebundle_())


async def test_a_kind_is_shown_with_its_population_as_heat() -> None:
    (found,) = await shown("note")
    html = found._repr_html_()

    assert isinstance(found, KindView)
    assert (2, (("open", 1), ("shut", 1)), False) == (found.entities, found.states, found.more)
    assert 2 == len(re.findall(r'<g id="il\d+-s-\w+" class="[^"]*heat-9', html))
    assert found.text.splitlines()[1:] == ["  open  1", "  shut  1"]


async def test_a_store_without_counters_is_counted_and_with_them_is_the_same(tmp_path: Path) -> None:
    (walked,) = await shown("note", url=f"file:{tmp_path}/notes")
    (counted,) = await shown("note", url=f"sqlite:///{tmp_path}/notes.db")

    assert walked == counted


@pytest.mark.parametrize("what", [f"note/{PROBE}", "note"])
async def test_user_text_never_becomes_an_html_element(what: str) -> None:
    (found,) = await shown(what)
    tags = parsed(found._repr_html_())

    assert set() == tags.names - ALLOWED - SVG
    assert [] == [each for each in tags.attributes if each.startswith("on") or each in ("data-xss", "src", "href")]
    if what != "note":
        assert f"note/{PROBE}" in tags.text


async def test_two_outputs_on_one_page_have_no_id_in_common() -> None:
    (found,) = await shown("note/2")
    ids = [set(re.findall(r'id="([^"]+)"', found._repr_html_())) for _ in range(2)]

    assert ids[0]
    assert set() == ids[0] & ids[1]


async def test_long_texts_and_many_fields_are_cut() -> None:
    fields = "".join(f"f{number}: {{type: integer, default: 0}}, " for number in range(60))
    chart = interlock.loads(NOTE.replace("context: {", f"context: {{{fields}"))
    async with interlock.open("memory:", charts=[chart], work=False) as notes:
        await notes.create("note/1", {"text": "x" * 10_000})
        found = await interlock.show(notes, "note/1")

    assert "… = 22 more" in found.text
    assert FIELDS_MAX + 2 < len(found.text.splitlines()) < FIELDS_MAX + 6
    assert max(map(len, found.text.splitlines())) < TEXT_MAX + 40


async def test_earlier_entries_are_counted_and_not_shown() -> None:
    few, none = (await shown("note/2", entries=1))[0], (await shown("note/2", entries=0))[0]

    assert ([2], 1, "  and 1 earlier") == (
        [each.version for each in few.entries],
        few.left_out,
        few.text.splitlines()[-1],
    )
    assert ((), 2) == (none.entries, none.left_out)


async def test_an_unknown_name_or_an_invalid_limit_is_refused() -> None:
    for name in ("note/9", "nothing"):
        with pytest.raises(NotFoundError):
            await shown(name)
    for entries in (-1, 201, True):
        with pytest.raises(UsageError) as found:
            await shown("note/2", entries=entries)
        assert "show.entries" == found.value.code


def test_show_works_with_a_blocking_runtime() -> None:
    with interlock.open("memory:", charts=[interlock.loads(NOTE)], work=False).blocking() as notes:
        notes.create("note/1")
        found = interlock.show(notes, "note/1")

    assert found.text.startswith("note/1  ● open")


async def test_the_record_of_a_saga_is_hidden_and_a_field_named_like_one_is_shown() -> None:
    chart = interlock.loads("""
interlock: 1
kind: film
context: {saga_title: {type: string, default: Dune}}
states: {made: {saga: {steps: [{id: shoot, do: {src: film.shoot}}], onDone: shown, onError: shown}}, shown: {}}
""")
    async with interlock.open("memory:", charts=[chart], clock=VirtualClock()) as runtime:
        await runtime.create("film/1")
        view = await interlock.show(runtime, "film/1")

    assert "saga_title" in view.text
    assert "saga_made" not in view.text
